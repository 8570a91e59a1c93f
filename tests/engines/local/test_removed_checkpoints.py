"""What removed runs leave: it is found by their name, and goes with a purge. Files only, no run is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longboat.core.errors import NotFound
from longboat.core.jobs import Checkpoints, Job
from longboat.core.runs import PruneQuery
from longboat.engines.engine import Submission
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.records import LocalRecord, LocalState
from longboat.engines.local.removal import NOTES, prune_left
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.submit.submission import record_of
from longboat.engines.shared.home import Home
from tests.engines.local.values import job


class Ended:
    """Runs that have ended, each with a checkpoint."""

    def __init__(self, root: Path) -> None:
        self.base = root
        self.notices: list[str] = []
        self.home = Home(root / "home")
        self.home.prepare()
        self.engine = LocalEngine(self.home.root, on_notice=self.notices.append)

    def submission(self, **checkpoints: str) -> Submission:
        made: Job = job(checkpoints=Checkpoints(**checkpoints))  # type: ignore[arg-type]
        return Submission(job=made, base=str(self.base), environment={"PATH": os.defpath})

    def add(self, name: str, **checkpoints: str) -> LocalRecord:
        record = record_of(self.home, self.submission(**checkpoints), name=name, snapshot=None)
        files = RunFiles(self.home.runs / name)
        files.directory.mkdir()
        files.write_record(record)
        files.write_state(LocalState(phase="succeeded", ended=1.0))
        step = Path(record.checkpoint_dir) / "step-1"
        step.mkdir(parents=True)
        (step / ".complete").touch()
        return record


@pytest.fixture
def ended(tmp_path: Path) -> Ended:
    return Ended(tmp_path)


@pytest.mark.parametrize("to", [{}, {"to": "new/deep"}])
def test_the_name_of_a_removed_run_leads_to_its_checkpoints(ended: Ended, to: dict[str, str]) -> None:
    folder = ended.add("mine", **to).checkpoint_dir
    ended.engine.delete("mine")
    assert ended.notices == [f"checkpoints of mine stay in {folder}; longboat rm --purge mine removes them"]
    assert ended.engine.kept_checkpoints("mine") == folder
    again = record_of(ended.home, ended.submission(resume="mine"), name="again", snapshot=None)
    assert again.resume_from == f"{folder}/step-1"
    ended.engine.delete("mine", purge=True)
    assert not Path(folder).exists() and not (ended.base / "new").exists()
    assert ended.engine.kept_checkpoints("mine") is None
    with pytest.raises(NotFound):
        ended.engine.delete("mine", purge=True)


def test_a_folder_that_the_user_made_stays(ended: Ended) -> None:
    (ended.base / "mine").mkdir()
    ended.add("first", to="mine")
    ended.engine.delete("first", purge=True)
    assert os.listdir(ended.base / "mine") == []


def test_checkpoints_of_removed_runs_are_pruned_by_age(ended: Ended) -> None:
    folder = ended.add("mine").checkpoint_dir
    ended.engine.delete("mine")
    assert list(prune_left(ended.home, PruneQuery(ended_before=1.0))) == [], "it was removed just now"
    old = PruneQuery(ended_before=float("inf"), checkpoints=True, dry_run=True)
    assert [(item.kind, item.name) for item in prune_left(ended.home, old)] == [("checkpoints", "mine")]
    assert Path(folder).is_dir()
    list(ended.engine.prune(PruneQuery(ended_before=float("inf"), checkpoints=True)))
    assert not Path(folder).exists() and ended.engine.kept_checkpoints("mine") is None
    assert os.listdir(ended.home.root / NOTES) == []


def test_a_status_does_without_a_folder_that_is_a_file(ended: Ended) -> None:
    record = ended.add("odd", to="new")
    for path in (".complete", ""):
        target = Path(record.checkpoint_dir) / "step-1" / path
        target.unlink() if path else target.rmdir()
    Path(record.checkpoint_dir).rmdir()
    Path(record.checkpoint_dir).touch()
    assert ended.engine.status("odd").checkpoint is None
    ended.engine.delete("odd", purge=True)
    assert Path(record.checkpoint_dir).is_file(), "it is not ours"


def test_a_run_stopped_before_it_started_has_one_exit_code_everywhere(ended: Ended) -> None:
    ended.add("mine")
    RunFiles(ended.home.runs / "mine").write_state(LocalState(phase="stopped", ended=1.0, serial=9))
    assert [ended.engine.list()[0].exit_code, ended.engine.status("mine").exit_code] == [143, 143]
