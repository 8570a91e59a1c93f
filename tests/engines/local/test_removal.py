"""Removing runs, also after removals that were interrupted."""

from __future__ import annotations

import os
from pathlib import Path

from longboat.engines.local.removal import remove_run
from tests.engines.local.conftest import LocalJobs


def test_leftovers_of_an_interrupted_removal_go_with_the_next(local: LocalJobs) -> None:
    run = local.run("print(1)")
    left = local.home.runs / ".gone-abc123"
    (left / "deep").mkdir(parents=True)
    (left / "deep" / "file").touch()
    assert [status.name for status in local.engine.list()] == [run.name]
    local.engine.delete(run.name)
    assert list(local.home.runs.iterdir()) == []


def test_a_run_without_a_readable_record(local: LocalJobs) -> None:
    folder = local.home.folder("runs") / "odd"
    folder.mkdir()
    remove_run(local.home, folder, purge=True)
    assert not folder.exists()


def test_a_purge_leaves_what_is_not_its_own(local: LocalJobs, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "of-another-run").mkdir(parents=True)
    run = local.run(
        "import os; open(os.environ['LONGBOAT_CHECKPOINT_DIR'] + '/x', 'w')", checkpoints={"to": str(shared)}
    )
    assert os.listdir(shared / run.name) == ["x"]
    local.engine.delete(run.name, purge=True)
    assert os.listdir(shared) == ["of-another-run"]
