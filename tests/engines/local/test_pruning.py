"""Old runs are removed, and with them what was kept for them alone."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.core.runs import FINAL_PHASES, PruneQuery, RunStatus
from longboat.engines.local import pruning
from longboat.engines.shared.home import Home
from tests.engines.local.conftest import WAITS, LocalJobs


def later() -> float:
    return time.time() + 60


def names(local: LocalJobs, query: PruneQuery) -> list[tuple[str, str]]:
    return [(item.kind, item.name) for item in local.engine.prune(query)]


def test_ended_runs_go_and_running_ones_stay(local: LocalJobs) -> None:
    running = local.submit(WAITS, name="running")
    local.until_said(running.name, "ready")
    ended = local.run("open('kept.txt', 'w').write('x' * 100_000)", name="ended", artifacts=["kept.txt"])
    (item,) = local.engine.prune(PruneQuery(ended_before=later(), dry_run=True))
    assert (item.name, item.phase) == ("ended", "succeeded") and item.size is not None and item.size >= 100_000
    assert local.files(ended.name).directory.is_dir()
    assert names(local, PruneQuery(ended_before=0.0)) == []
    assert names(local, PruneQuery(ended_before=later())) == [("run", "ended")]
    assert [run.name for run in local.engine.list()] == ["running"]
    local.let_go(running.name)
    assert local.wait(running.name).phase == "succeeded"


def test_environments_and_data_go_with_the_last_run_that_used_them(local: LocalJobs, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1")
    data = [{"url": (tmp_path / "data.txt").as_uri(), "to": "data"}]
    first = local.run("print(1)", name="first", setup="pip --version", data=data)
    assert first.phase == "succeeded", local.text("first")
    kept = {
        kind: [path for path in (local.home.root / kind).iterdir() if path.is_dir()]
        for kind in ("environments", "data")
    }
    for folders in kept.values():
        assert len(folders) == 1
        os.utime(folders[0], (1.0, 1.0))
    old = PruneQuery(ended_before=2.0)
    assert names(local, old) == []  # the run needs them, though they are old
    assert names(local, PruneQuery(ended_before=2.0, phases=("failed",), dry_run=True)) == []
    everything = [("run", "first"), ("environment", kept["environments"][0].name), ("data", kept["data"][0].name)]
    assert names(local, PruneQuery(ended_before=later(), dry_run=True)) == everything
    assert names(local, PruneQuery(ended_before=later(), phases=FINAL_PHASES)) == everything
    assert not any(folder.exists() for folders in kept.values() for folder in folders)


def test_what_a_run_uses_again_is_young(local: LocalJobs, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1")
    data = [{"url": (tmp_path / "data.txt").as_uri(), "to": "data"}]
    for name in ("first", "second"):
        local.run("print(1)", name=name, data=data)
        (folder,) = (path for path in (local.home.root / "data").iterdir() if path.is_dir())
        assert folder.stat().st_mtime > 1.0
        os.utime(folder, (1.0, 1.0))


def test_nothing_shared_goes_while_a_record_is_damaged(local: LocalJobs) -> None:
    local.run("print(1)", name="odd")
    (local.files("odd").directory / "record.json").write_text("{")
    shared = local.home.folder("data") / "0123456789abcdef"
    shared.mkdir()
    os.utime(shared, (1.0, 1.0))
    assert names(local, PruneQuery(ended_before=2.0)) == []
    assert shared.is_dir()


def test_one_that_cannot_be_removed_does_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(_: Home, directory: Path, **__: bool) -> None:
        if directory.name == "stuck":
            raise EngineError("the disk is full")

    monkeypatch.setattr(pruning, "remove_run", remove)
    home = Home(tmp_path)
    home.prepare()
    facts = {"uid": "1", "job": "j", "engine": "local", "created": 0.0, "nodes": 1, "gpus": 0, "ended": 1.0}
    runs = [RunStatus(name=name, phase="succeeded", **facts) for name in ("stuck", "last")]  # type: ignore[arg-type]
    found = list(pruning.prune(home, runs, PruneQuery(ended_before=2.0)))
    assert [(item.name, item.problem) for item in found] == [("stuck", "the disk is full"), ("last", None)]


def test_the_environment_of_a_running_run_stays_whatever_python_is_now(local: LocalJobs, tmp_path: Path) -> None:
    link = tmp_path / "bin" / "python"
    link.parent.mkdir()
    link.symlink_to(sys.executable)
    environment = {**local.place.environment, "PATH": f"{link.parent}{os.pathsep}{os.environ['PATH']}"}
    run = local.submit(WAITS, setup="pip --version", environment=environment)
    local.until_said(run.name, "ready")
    (folder,) = (path for path in (local.home.root / "environments").iterdir() if path.is_dir())
    os.utime(folder, (1.0, 1.0))
    link.unlink()
    assert names(local, PruneQuery(ended_before=2.0)) == []
    assert folder.is_dir()
    note = local.files(run.name).environment
    noted = note.read_bytes()
    note.write_bytes(b"")
    assert names(local, PruneQuery(ended_before=2.0)) == [], "what it uses is not known"
    note.write_bytes(noted)
    local.let_go(run.name)
    assert local.wait(run.name).phase == "succeeded"
