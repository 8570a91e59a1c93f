"""What the files of an attempt say when its supervisor is gone. No process is started here."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from longboat.core.jobs import Job
from longboat.engines.local.records import LocalRecord, LocalState
from longboat.engines.local.recovery import RESPAWNS, ending_of_files
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_files import is_started, read_ending
from longboat.engines.local.supervise.attempt_outcome import NodeOutcome, judge
from longboat.engines.local.supervise.processes import ProcessId, boot_id
from longboat.engines.local.supervise.spawn import take_over
from tests.engines.local.values import job, report, role


def record(made: Job) -> LocalRecord:
    return LocalRecord(name="run", uid="feedfacecafe", job=made, base="/", created=0, user="u", bundle=None)


def put(
    folder: Path, node: str, *, outcome: NodeOutcome | None = None, started: bool = True, **reports: object
) -> None:
    place = folder / node
    place.mkdir(parents=True)
    (place / "plan.json").write_text("{}")
    if started:
        (place / "launcher.json").write_bytes(msgspec.json.encode(ProcessId(pid=1, start_ticks=1, boot_id="then")))
    if outcome is not None:
        (place / "outcome.json").write_bytes(msgspec.json.encode(outcome))
    for name, value in reports.items():
        (place / f"{name.replace('_', '-')}.json").write_bytes(msgspec.json.encode(value))


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(tmp_path / "runs" / "run")


def test_an_attempt_that_never_started(files: RunFiles) -> None:
    assert ending_of_files(files, record(job()), LocalState()) is None
    put(files.attempt_dir(0), "worker-0", started=False)
    assert not is_started(files, 0)
    assert ending_of_files(files, record(job()), LocalState()) is None


def test_one_that_finished(files: RunFiles) -> None:
    put(files.attempt_dir(0), "worker-0", outcome=NodeOutcome(exit_code=0), rank_0=report(0, 0))
    ending = ending_of_files(files, record(job()), LocalState())
    assert ending is not None and judge(ending) is None


def test_one_that_failed_by_itself(files: RunFiles) -> None:
    put(files.attempt_dir(0), "worker-0", outcome=NodeOutcome(exit_code=5), rank_0=report(0, 5))
    ending = ending_of_files(files, record(job()), LocalState())
    failure = judge(ending) if ending else None
    assert failure is not None and (failure.cause, failure.exit_code) == ("exit", 5)


def test_nodes_without_an_outcome_are_lost(files: RunFiles) -> None:
    made = job(roles=(role(nodes=2),))
    put(files.attempt_dir(0), "worker-0", outcome=NodeOutcome(exit_code=0), rank_0=report(0, 0))
    put(files.attempt_dir(0), "worker-1")
    ending = ending_of_files(files, record(made), LocalState())
    assert ending is not None and ending.nodes == ["worker-0", "worker-1"] == list(ending.deciding)
    failure = judge(ending)
    assert failure is not None and failure.exit_code == 208 and "supervisor was killed" in failure.message


def test_a_machine_that_restarted_is_told_apart(files: RunFiles) -> None:
    put(files.attempt_dir(0), "worker-0")
    before = LocalState(supervisor=ProcessId(pid=1, boot_id="another boot"))
    after = LocalState(supervisor=ProcessId(pid=1, boot_id=boot_id()))
    assert "restarted" in read_ending(files.attempt_dir(0), record(job()), before).lost_message
    assert "restarted" not in read_ending(files.attempt_dir(0), record(job()), after).lost_message


def test_a_stop_that_had_been_asked_for(files: RunFiles) -> None:
    put(files.attempt_dir(0), "worker-0", outcome=NodeOutcome(exit_code=143, ended_by="stop"))
    files.stop.write_text('{"at": 1}')
    ending = ending_of_files(files, record(job()), LocalState())
    assert ending is not None and ending.reason == "stop" and judge(ending) is None


def test_what_is_left_in_the_pipes_is_saved(files: RunFiles) -> None:
    """Nobody but a writer holds the pipe when the successor comes."""
    import os

    node = files.attempt_dir(0) / "worker-0"
    put(files.attempt_dir(0), "worker-0")
    for name in ("pipes", "logs"):
        (node / name).mkdir()
    os.mkfifo(node / "pipes" / "0.out")
    (node / "logs" / "0.out").write_bytes(b"first\n")
    writer = os.open(node / "pipes" / "0.out", os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"second\n")
    ending_of_files(files, record(job()), LocalState())
    os.close(writer)
    assert (node / "logs" / "0.out").read_bytes() == b"first\nsecond\n"
    assert not (node / "pipes" / "0.out").exists()


def test_however_often_another_user_looks_the_run_is_not_given_up(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.directory.mkdir(parents=True)
    files.write_state(LocalState(phase="running"))
    files.write_record(record(job()))
    monkeypatch.setattr(RunFiles, "is_own", lambda self: False)
    before = sorted(path.name for path in files.directory.iterdir())
    told: list[str] = []
    for _ in range(RESPAWNS + 2):
        assert not take_over(files, record(job()), {}, told.append)
    assert files.state().phase == "running" and "only its owner" in told[-1]
    assert sorted(path.name for path in files.directory.iterdir()) == sorted([*before, files.lock.name])
