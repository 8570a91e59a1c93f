"""A list of many ended runs: what it reads of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.core.jobs import Job, Role
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.records import LocalRecord, LocalState, RunFolder
from longboat.engines.shared.files import read_value

RUNS = 20


def test_of_an_ended_run_the_record_and_the_state_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(name="train", roles=(Role(name="worker", run=("true",)),), ends=("worker",))
    for number in range(RUNS):
        folder = RunFolder(tmp_path / "runs" / f"train-{number}")
        folder.directory.mkdir(parents=True)
        folder.write_record(
            LocalRecord(name=f"train-{number}", uid=f"{number:012x}", job=job, base="/", created=number, user="anna")
        )
        folder.write_progress(LocalState(phase="running", serial=3))
        folder.write_state(LocalState(phase="succeeded", step=number, serial=4))
    reads: list[str] = []
    monkeypatch.setattr(
        "longboat.engines.local.records.read_value",
        lambda path, kind: reads.append(path.name) or read_value(path, kind),
    )
    engine = LocalEngine(environment={"LONGBOAT_HOME": str(tmp_path)})
    assert [(run.phase, run.step) for run in engine.list()] == [("succeeded", n) for n in reversed(range(RUNS))]
    assert sorted(reads) == sorted(["record.json", "state.json"] * RUNS)
