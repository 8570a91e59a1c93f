"""An evaluator that follows the run's checkpoints, and what `keep` makes of its word."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import longboat
from longboat.launcher import following, trainer
from longboat.storage.checkpoints import begin_attempt, complete_steps, prune, remove_own
from longboat.storage.inventory.folder_place import FolderPlace
from longboat.storage.retention import Retention


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's checkpoint folder; the run has been asked to stop, so that one look is all."""
    for name in ("LONGBOAT_NODE", "LONGBOAT_NODE_DIR", "LONGBOAT_ATTEMPT", "LONGBOAT_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LONGBOAT_CHECKPOINT_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(trainer, "_listens", True)
    monkeypatch.setattr(trainer, "_stop_seen", True)
    monkeypatch.setattr(following, "_followed", {})  # of a process that evaluates, which begins with each test
    return tmp_path / "run"


def save(folder: Path, step: int, attempt: int = 0) -> None:
    path = folder / f"step-{step}"
    path.mkdir(parents=True)
    (path / ".complete").write_text(json.dumps({"step": step, "attempt": attempt}))


def steps(**options: bool) -> list[int]:
    return [step for step, _ in longboat.new_checkpoints(**options)]


def test_each_complete_one_comes_once_in_order_and_not_after_it_was_evaluated(folder: Path) -> None:
    assert steps() == []
    for step in (10, 9, 100):
        save(folder, step)
    (folder / "step-7").mkdir()
    (folder / ".step-8.a0.x.tmp").mkdir()
    assert steps() == [9, 10, 100]
    assert steps(newest_only=True) == [100]
    longboat.evaluated(9, accuracy=0.5)
    longboat.evaluated(10, accuracy=float("nan"), text="x")
    assert steps() == [100]


def test_one_that_is_written_while_another_is_evaluated_comes_at_the_last_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "_stop_seen", False)
    monkeypatch.setattr(following, "_LOOK_S", 0.0)
    save(folder, 1)
    followed = longboat.new_checkpoints()
    assert next(followed)[0] == 1
    save(folder, 2)
    monkeypatch.setattr(trainer, "_stop_seen", True)
    assert [step for step, _ in followed] == [2]


def test_what_a_replaced_attempt_wrote_is_passed_over(folder: Path) -> None:
    save(folder, 1)
    begin_attempt(folder, 1, "uid")
    save(folder, 2)
    save(folder, 3, attempt=1)
    assert steps() == [1, 3] == [step for step, _ in complete_steps(folder)]


def test_the_best_is_known_by_the_evaluators_word(folder: Path) -> None:
    for step, accuracy in ((1, 0.5), (2, 0.9), (3, 0.7), (4, 0.1)):
        save(folder, step)
        longboat.evaluated(step, accuracy=accuracy)
    prune(folder, Retention(last=1, best=1, metric="accuracy"))
    entries = FolderPlace(folder).entries()
    assert [(entry.step, entry.metrics) for entry in entries] == [(2, {"accuracy": 0.9}), (4, {"accuracy": 0.1})]
    assert remove_own(folder) == [] and not folder.exists()


def test_what_a_retry_writes_again_is_judged_again(folder: Path) -> None:
    for step, accuracy in ((1, 0.9), (2, 0.5), (3, 0.1)):
        save(folder, step)
        longboat.evaluated(step, accuracy=accuracy)
    shutil.rmtree(folder / "step-1")
    save(folder, 1, attempt=1)
    assert steps() == [1], "the metrics beside it are of the one that was there before"
    assert FolderPlace(folder).entries()[0].metrics == {}
    prune(folder, Retention(last=1, best=1, metric="accuracy"))
    assert [step for step, _ in complete_steps(folder)] == [2, 3]


def test_a_judgement_of_one_that_is_gone_or_replaced_is_not_kept(folder: Path) -> None:
    save(folder, 1)
    save(folder, 2)
    followed = longboat.new_checkpoints()
    assert next(followed)[0] == 1
    shutil.rmtree(folder / "step-1")
    save(folder, 1, attempt=1)
    longboat.evaluated(1, accuracy=0.9)
    longboat.evaluated(7, accuracy=0.9)
    assert sorted(path.name for path in folder.iterdir()) == ["step-1", "step-2"]


def test_a_judgement_goes_with_its_checkpoint(folder: Path) -> None:
    for step in (1, 2, 3):
        save(folder, step)
        longboat.evaluated(step, accuracy=0.5)
    prune(folder, 2)
    (two, three) = FolderPlace(folder).entries()
    FolderPlace(folder).remove(two)
    assert sorted(path.name for path in folder.iterdir()) == [".metrics-step-3", "step-3"]
