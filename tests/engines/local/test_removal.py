"""Removing runs, also after removals that were interrupted."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from longboat.core.errors import NotFound
from longboat.core.runs import PruneQuery
from longboat.engines.local import removal
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.removal import remove_run
from longboat.engines.shared.files import remove_tree
from tests.engines.local.conftest import LocalJobs


def test_leftovers_of_an_interrupted_removal_go_with_the_next(local: LocalJobs) -> None:
    run = local.run("print(1)")
    left = local.home.runs / ".gone-abc123"
    (left / "deep").mkdir(parents=True)
    (left / "deep" / "file").touch()
    assert [status.name for status in local.engine.list()] == [run.name]
    local.engine.delete(run.name)
    assert list(local.home.runs.iterdir()) == []


def test_the_same_command_removes_what_a_killed_one_left(local: LocalJobs) -> None:
    left = local.home.folder("runs") / ".gone-abc123"
    (left / "deep").mkdir(parents=True)
    with pytest.raises(NotFound):
        local.engine.delete("train")
    assert not left.exists()


def test_a_purge_that_was_killed_is_finished_by_the_next(local: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run is gone by then: without a note nobody would find the checkpoints again."""

    class Killed(BaseException):
        pass

    def killed(*_: object) -> list[str]:
        raise Killed

    code = "import longboat\nwith longboat.checkpoint(1) as folder:\n    open(folder + '/weights', 'w').close()"
    checkpoints = Path(local.run(code, name="train").checkpoint_dir or "")
    draft = local.home.folder(removal.NOTES) / f"{local.engine.status('train').uid}.json.1.tmp"
    draft.touch()  # an earlier one was killed while it wrote its note
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(removal, "purge_folder", killed)
        local.engine.delete("train", purge=True)
    assert (checkpoints / "step-1").is_dir() and local.engine.list() == [] and not draft.exists()
    assert local.engine.kept_checkpoints("train") == str(checkpoints)
    local.engine.delete("train", purge=True)
    assert not checkpoints.exists() and local.engine.kept_checkpoints("train") is None


@pytest.mark.parametrize("had_one", [False, True], ids=["no checkpoint", "all removed but the folder"])
def test_a_purge_that_was_killed_leaves_no_empty_folder(
    local: LocalJobs, monkeypatch: pytest.MonkeyPatch, had_one: bool
) -> None:
    code = "import longboat\nwith longboat.checkpoint(1) as folder:\n    open(folder + '/weights', 'w').close()"
    checkpoints = Path(local.run(code if had_one else "pass", name="train").checkpoint_dir or "")
    checkpoints.mkdir(parents=True, exist_ok=True)

    class Killed(BaseException):
        pass

    def killed(*_: object) -> list[str]:
        if had_one:
            remove_tree(checkpoints / "step-1")
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(removal, "purge_folder", killed)
        local.engine.delete("train", purge=True)
    with contextlib.suppress(NotFound):
        local.engine.delete("train", purge=True)
    assert not checkpoints.exists()


def test_a_run_without_a_readable_record(local: LocalJobs) -> None:
    folder = local.home.folder("runs") / "odd"
    folder.mkdir()
    remove_run(local.home, folder, purge=True)
    assert not folder.exists()


@pytest.mark.parametrize("prunes", [False, True], ids=["rm", "prune"])
def test_a_record_that_may_not_be_read_keeps_no_other_run(local: LocalJobs, prunes: bool) -> None:
    """One that `sudo longboat run` has left: each `rm` failed with its name, once its own run was gone."""
    closed, name = local.run("print(1)"), local.run("print(2)").name
    record = local.home.runs / closed.name / "record.json"
    record.unlink()
    record.mkdir()  # what root cannot read either
    objects = local.home.root / "bundles" / "objects"
    kept = sorted(path for path in objects.rglob("*") if path.is_file())
    for path in (*kept, *(local.home.root / "bundles" / "manifests").iterdir()):
        os.utime(path, (0, 0))
    if prunes:
        removed = list(local.engine.prune(PruneQuery(ended_before=time.time() + 1)))
        assert [item.name for item in removed if not item.problem] == [name]
    else:
        local.engine.delete(name)
    assert not (local.home.runs / name).exists()
    assert sorted(path for path in objects.rglob("*") if path.is_file()) == kept  # what it needs is not known


def test_a_purge_leaves_what_is_not_its_own(local: LocalJobs, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "of-another-run").mkdir(parents=True)
    (shared / "mine").mkdir()
    (shared / "mine" / "thesis.tex").write_text("years")
    code = """
import os, longboat
with longboat.checkpoint(1) as folder:
    open(folder + "/weights", "w").close()
open(os.environ["LONGBOAT_CHECKPOINT_DIR"] + "/best.pt", "w").close()
"""
    run = local.run(code, run_id="mine", checkpoints={"to": str(shared)})
    assert run.phase == "succeeded", local.text(run.name)
    assert sorted(os.listdir(shared / "mine")) == ["best.pt", "step-1", "thesis.tex"]
    notices: list[str] = []
    LocalEngine(local.home.root, on_notice=notices.append).delete("mine", purge=True)
    assert sorted(os.listdir(shared)) == ["mine", "of-another-run"]
    assert sorted(os.listdir(shared / "mine")) == ["best.pt", "thesis.tex"]
    places = ", ".join(str(shared / "mine" / name) for name in ("best.pt", "thesis.tex"))
    assert f"not written by Longboat, so it stays: {places}" in notices


def test_a_purge_removes_all_of_a_folder_in_the_home(local: LocalJobs) -> None:
    run = local.run("import os; open(os.environ['LONGBOAT_CHECKPOINT_DIR'] + '/x', 'w')")
    assert run.checkpoint_dir is not None and os.listdir(run.checkpoint_dir) == ["x"]
    local.engine.delete(run.name, purge=True)
    assert not Path(run.checkpoint_dir).exists()


def test_the_same_id_after_a_removal_begins_anew(local: LocalJobs) -> None:
    code = """
import longboat
print(longboat.resume_from())
with longboat.checkpoint(1) as folder:
    open(folder + "/weights", "w").close()
"""
    first = local.run(code, run_id="mine")
    local.engine.delete("mine")
    again = local.run(code, run_id="mine")
    assert local.text("mine") == "None\n" and again.checkpoint != first.checkpoint
    assert Path(str(first.checkpoint)).is_dir(), "a removal leaves the checkpoints"
