"""A list of many ended runs: what it reads of each."""

from __future__ import annotations

import shutil
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


def end_run(home: Path, name: str, step: int) -> None:
    folder = RunFolder(home / "runs" / name)
    folder.directory.mkdir(parents=True)
    job = Job(name="train", roles=(Role(name="worker", run=("true",)),), ends=("worker",))
    folder.write_record(LocalRecord(name=name, uid=f"{step:012x}", job=job, base="/", created=step, user="anna"))
    folder.write_state(LocalState(phase="succeeded", step=step))


def test_a_process_that_lists_again_reads_no_ended_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_run(tmp_path, "a", 1)
    end_run(tmp_path, "b", 2)
    engine = LocalEngine(environment={"LONGBOAT_HOME": str(tmp_path)})
    first = [engine.list() for _ in range(2)][-1]
    reads: list[str] = []
    monkeypatch.setattr(
        "longboat.engines.local.records.read_value",
        lambda path, kind: reads.append(path.parent.name) or read_value(path, kind),
    )
    assert engine.list() == first and reads == []
    end_run(tmp_path, "c", 3)
    assert [run.name for run in engine.list()] == ["c", "b", "a"] and set(reads) == {"c"}


def test_a_run_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    end_run(tmp_path, "a", 1)
    engine = LocalEngine(environment={"LONGBOAT_HOME": str(tmp_path)})
    assert [engine.list()[0].step for _ in range(3)] == [1, 1, 1]
    shutil.rmtree(tmp_path / "runs" / "a")
    end_run(tmp_path, "a", 7)
    assert [engine.list()[0].step for _ in range(2)] == [7, 7]
    shutil.rmtree(tmp_path / "runs" / "a")
    assert engine.list() == []
