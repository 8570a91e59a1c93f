from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.storage import checkpoints
from longboat.storage.checkpoints import checkpoint_at, complete_steps, newest_complete, prune, remove_own


def checkpoint(folder: Path, name: str, *, complete: bool = True) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "model.bin").write_bytes(b"x" * 100)
    if complete:
        (place / ".complete").write_text("")
    return place


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_order_is_that_of_numbers(tmp_path: Path) -> None:
    for step in (9, 100, 10, 0):
        checkpoint(tmp_path, f"step-{step}")
    assert [step for step, _ in complete_steps(tmp_path)] == [0, 9, 10, 100]
    assert newest_complete(tmp_path) == tmp_path / "step-100"


def test_what_a_place_offers_to_resume_from(tmp_path: Path) -> None:
    own = checkpoint(tmp_path, "step-1")
    newest = checkpoint(tmp_path, "step-2")
    half = checkpoint(tmp_path, "step-3", complete=False)
    assert (checkpoint_at(tmp_path), checkpoint_at(own)) == (newest, own)
    assert checkpoint_at(half) is checkpoint_at(tmp_path / "missing") is checkpoint_at(own / "model.bin") is None


def test_half_written_ones_are_skipped(tmp_path: Path) -> None:
    checkpoint(tmp_path, "step-1")
    checkpoint(tmp_path, "step-2", complete=False)
    checkpoint(tmp_path, "step-3.tmp-77")
    checkpoint(tmp_path, ".step-4.77.tmp")
    checkpoint(tmp_path, "step-x")
    checkpoint(tmp_path, "step-5b")
    checkpoint(tmp_path, "other")
    (tmp_path / "step-6").write_text("a file")
    (tmp_path / "step-7").symlink_to(tmp_path / "step-1")
    (checkpoint(tmp_path, "step-8", complete=False) / ".complete").mkdir()
    assert complete_steps(tmp_path) == [(1, tmp_path / "step-1")]


def test_a_storage_that_fails_is_not_an_empty_one(tmp_path: Path) -> None:
    checkpoint(tmp_path, "step-1")
    (checkpoint(tmp_path, "step-2", complete=False) / ".complete").symlink_to("/proc/self/mem")  # reading it is EIO
    with pytest.raises(EngineError, match="step-2"):
        newest_complete(tmp_path)


def test_no_folder_no_checkpoints(tmp_path: Path) -> None:
    assert complete_steps(tmp_path / "none") == []
    assert newest_complete(tmp_path / "none") is None
    assert prune(tmp_path / "none", 1) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError):
        complete_steps(tmp_path / "file")


def test_prune_keeps_the_newest(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        checkpoint(tmp_path, f"step-{step}")
    assert prune(tmp_path, 2) == [tmp_path / "step-1", tmp_path / "step-2"]
    assert names(tmp_path) == ["step-10", "step-3"]
    assert prune(tmp_path, 1) == [tmp_path / "step-3"]
    assert prune(tmp_path, 1) == []
    assert prune(tmp_path, 5) == []


def test_prune_zero_keeps_all(tmp_path: Path) -> None:
    for step in range(5):
        checkpoint(tmp_path, f"step-{step}")
    assert prune(tmp_path, 0) == []
    assert len(names(tmp_path)) == 5


def test_prune_clears_away_what_was_never_finished(tmp_path: Path) -> None:
    for name in ("step-1.tmp-5", ".step-2.5.tmp", ".step-2.5.tmp.old", "step-10.tmp-5", ".step-11.5.tmp"):
        checkpoint(tmp_path, name, complete=False)
    checkpoint(tmp_path, "step-3", complete=False)
    checkpoint(tmp_path, "step-4")
    checkpoint(tmp_path, "step-9", complete=False)
    checkpoint(tmp_path, "notes", complete=False)
    prune(tmp_path, 3)
    assert names(tmp_path) == [".step-11.5.tmp", "notes", "step-10.tmp-5", "step-4", "step-9"]


def test_prune_without_a_complete_one_removes_nothing(tmp_path: Path) -> None:
    checkpoint(tmp_path, "step-1", complete=False)
    checkpoint(tmp_path, "step-2.tmp-1", complete=False)
    assert prune(tmp_path, 1) == []
    assert len(names(tmp_path)) == 2


def test_prune_finishes_what_a_killed_one_began(tmp_path: Path) -> None:
    checkpoint(tmp_path, ".removed-step-1-55-abcd")
    checkpoint(tmp_path, "step-2")
    assert newest_complete(tmp_path) == tmp_path / "step-2"
    prune(tmp_path, 3)
    assert names(tmp_path) == ["step-2"]


def test_a_read_only_folder_inside_goes_too(tmp_path: Path) -> None:
    old = checkpoint(tmp_path, "step-1")
    checkpoint(tmp_path, "step-2")
    (old / "shards").mkdir()
    (old / "shards/0").write_text("x")
    (old / "shards").chmod(0o555)
    prune(tmp_path, 1)
    assert names(tmp_path) == ["step-2"]


def test_several_at_once(tmp_path: Path) -> None:
    for step in range(30):
        checkpoint(tmp_path, f"step-{step}")
    script = (
        "import sys; from pathlib import Path\n"
        "from longboat.storage.checkpoints import prune; prune(Path(sys.argv[1]), 2)"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert names(tmp_path) == ["step-28", "step-29"]


def test_what_the_trainer_writes_is_complete(tmp_path: Path) -> None:
    """The other side of the agreement: the package that trainers import."""
    launcher = Path(__file__).parents[2] / "src" / "longboat" / "launcher"
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import trainer\n"
        "with trainer.checkpoint(7) as folder: open(folder + '/model', 'w').write('x')\n"
        "try:\n    with trainer.checkpoint(8) as folder: raise KeyError\nexcept KeyError: pass\n"
    )
    environment = {**os.environ, "LONGBOAT_CHECKPOINT_DIR": str(tmp_path), "RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(launcher)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert complete_steps(tmp_path) == [(7, tmp_path / "step-7")]
    assert prune(tmp_path, 1) == []


OWN = (
    "step-7",
    "step-8.tmp-half",
    ".step-9.a1.worker-0.ab12.tmp",
    ".step-9.a1.worker-0.ab12.tmp.old",
    ".step-3.tmp-parts",
)


def test_all_that_is_our_own_goes_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    for name in (*OWN, ".removed-step-3-12-ab"):
        checkpoint(folder, name)
    (folder / ".attempt-2").write_text("{}")
    for name in ("step-one", "steps", "checkpoint-500", ".removed-by-me"):
        checkpoint(folder, name)
    (folder / "step-12").write_text("a file of that name")
    (folder / "step-13").symlink_to(tmp_path)
    kept = [".removed-by-me", "checkpoint-500", "step-12", "step-13", "step-one", "steps"]
    assert remove_own(folder) == kept == names(folder)
    assert remove_own(tmp_path / "missing") == []


def test_an_emptied_folder_goes_too(tmp_path: Path) -> None:
    checkpoint(tmp_path / "mine", "step-1")
    assert remove_own(tmp_path / "mine") == []
    assert not (tmp_path / "mine").exists()


def promoted_at(monkeypatch: pytest.MonkeyPatch, folder: Path, moment: str) -> None:
    """Somebody promotes step 2 while a prune is at work: at the removal before it, or right before its own rename."""
    rename = os.rename

    def renamed(source: str | Path, target: str | Path) -> None:
        if Path(source).name == moment:
            (folder / ".promoted-step-2").touch()
        rename(source, target)

    monkeypatch.setattr(os, "rename", renamed)


@pytest.mark.parametrize("moment", ["step-1", "step-2"])
def test_one_that_is_promoted_while_a_prune_is_under_way_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    for step in (1, 2, 3):
        checkpoint(tmp_path, f"step-{step}")
    promoted_at(monkeypatch, tmp_path, moment)
    assert prune(tmp_path, 1) == [tmp_path / "step-1"]
    assert names(tmp_path) == [".promoted-step-2", "step-2", "step-3"]
    assert (tmp_path / "step-2" / "model.bin").stat().st_size == 100
    assert checkpoints.remove_one(tmp_path, "step-2"), "who asks for it removes it all the same"
