"""Every file of a run emptied, cut and overwritten in turn: commands work, and tell how the run ended. Real runs."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.core.errors import NotFound
from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.local.supervise.processes import is_alive
from tests.engines.local.conftest import WAITS, LocalJobs

GARBAGE = bytes(range(256)) * 3
FAILS = "import sys; print('said'); sys.exit(7)"
LATE = "import time; print('said', flush=True); time.sleep(100)"
KINDS = {
    "succeeded": ({"code": "print('said')"}, ("succeeded", 0, None)),
    "retried": ({"code": FAILS, "retries": {"count": 1, "backoff": "0s"}}, ("failed", 7, "exit")),
    "late": ({"code": LATE, "timeout": "1s", "grace": "0s"}, ("failed", 207, "timeout")),
    "gang": ({"code": "print('said')", "nodes": 2}, ("succeeded", 0, None)),
}


def damages(data: bytes) -> Iterator[bytes]:
    yield b""
    yield data[: len(data) // 2]
    yield GARBAGE


def plain_files(directory: Path) -> list[Path]:
    """Not the user's own: what lies in the working copy."""
    found = [path for path in sorted(directory.rglob("*")) if stat.S_ISREG(path.lstat().st_mode)]
    return [path for path in found if "work" not in path.relative_to(directory).parts]


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in plain_files(directory)}


def until_left(local: LocalJobs, run: str) -> None:
    """The supervisor has told the end and may still be about to leave; while it lives, its run goes on."""
    supervisor = local.supervisor(run)
    local.until(lambda: not is_alive(supervisor), "the supervisor leaves")


def look(local: LocalJobs, name: str) -> RunStatus:
    """Every command that only looks, as a new process would run it."""
    engine = local.place.again()
    status = engine.status(name)
    assert [each.phase for each in engine.list() if each.name == name] == [status.phase]
    list(engine.logs(name, LogQuery()))
    assert engine.explain(name).phase == status.phase
    return status


@pytest.mark.parametrize("kind", KINDS)
def test_of_an_ended_run(local: LocalJobs, kind: str) -> None:
    fields, ended = KINDS[kind]
    run = local.run(**fields)  # type: ignore[arg-type]
    assert (run.phase, run.exit_code, run.cause) == ended, run.reason
    until_left(local, run.name)
    directory = local.files(run.name).directory
    whole, before = contents(directory), look(local, run.name)
    for path, data in whole.items():
        for damaged in damages(data):
            path.write_bytes(damaged)
            found = look(local, run.name)
            assert (found.phase, found.exit_code, found.cause) == ended, (path, damaged[:20], found.reason)
            assert (found.uid, found.nodes, found.command) == (before.uid, before.nodes, before.command), path
            assert [bool(attempt.failure) for attempt in found.attempts] == [bool(a.failure) for a in before.attempts]
            assert contents(directory) == {**whole, path: damaged}, "looking changes nothing"
        path.write_bytes(data)


def test_each_can_be_removed(local: LocalJobs) -> None:
    run = local.run("print('said')")
    directory = local.files(run.name).directory
    for number, path in enumerate(plain_files(directory)):
        copy = directory.parent / f"copy-{number}"
        shutil.copytree(directory, copy, symlinks=True)
        (copy / path.relative_to(directory)).write_bytes(b"")
        local.place.again().delete(copy.name)
        assert not copy.exists(), path
    assert local.home.run_names() == [run.name]


def test_a_stopped_run_stays_stopped(local: LocalJobs) -> None:
    run = local.submit(WAITS)
    local.until_said(run.name, "ready")
    local.engine.stop(run.name)
    before = local.wait(run.name)
    assert before.phase == "stopped"
    until_left(local, run.name)
    directory = local.files(run.name).directory
    for name in ("state.json", "stop.json"):
        for damaged in damages((directory / name).read_bytes()):
            whole = (directory / name).read_bytes()
            (directory / name).write_bytes(damaged)
            found = look(local, run.name)
            assert (found.phase, found.exit_code) == ("stopped", before.exit_code), (name, found.reason)
            (directory / name).write_bytes(whole)


@pytest.mark.parametrize("code", ["print('said')", FAILS])
def test_the_ranks_reports_tell_where_the_outcome_is_damaged_too(local: LocalJobs, code: str) -> None:
    run = local.run(code)
    until_left(local, run.name)
    directory = local.files(run.name).directory
    for name in ("state.json", "progress.json", "attempts/0/worker-0/outcome.json"):
        (directory / name).write_bytes(b"")
    found = look(local, run.name)
    assert (found.phase, found.exit_code) == (run.phase, run.exit_code), found.reason
    assert "state.json was damaged" in found.reason


def test_what_no_file_tells_is_lost_and_never_run_again(local: LocalJobs) -> None:
    run = local.run("print('said')", retries=3)
    until_left(local, run.name)
    directory = local.files(run.name).directory
    for path in plain_files(directory):
        if path.name != "record.json" and "logs" not in path.parts:
            path.write_bytes(b"")
    found = look(local, run.name)
    assert (found.phase, found.exit_code, found.cause) == ("failed", 208, "lost")
    assert "state.json was damaged" in found.reason and "no file tells" in found.reason
    assert local.text(run.name) == "said\n" and local.files(run.name).attempts() == [0]
    local.engine.delete(run.name)
    with pytest.raises(NotFound):
        local.engine.status(run.name)


def test_of_a_running_run(local: LocalJobs) -> None:
    run = local.submit(WAITS)
    local.until_said(run.name, "ready")
    local.until(lambda: local.engine.status(run.name).phase == "running", "it runs")
    directory = local.files(run.name).directory
    for path in plain_files(directory):
        if "logs" in path.parts or "steps" in path.parts:
            continue  # somebody writes them
        data = path.read_bytes()
        for damaged in damages(data):
            path.write_bytes(damaged)
            found = look(local, run.name)
            # Without what was last noted, the state that was promised holds.
            phase = "starting" if path.name == "progress.json" else "running"
            assert (found.phase, found.uid) == (phase, run.uid), (path, found.reason)
        path.write_bytes(data)
    (directory / "state.json").write_bytes(b"")
    local.let_go(run.name)
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("succeeded", 0), ended.reason


def test_a_running_run_whose_record_is_damaged_can_be_removed(local: LocalJobs) -> None:
    run = local.submit(WAITS)
    local.until_said(run.name, "ready")
    (local.files(run.name).directory / "record.json").write_bytes(b"{")
    local.engine.delete(run.name)
    assert local.home.run_names() == []
    assert local.place.processes(run.uid) == []


def test_a_lost_run_whose_record_is_damaged_is_given_up(local: LocalJobs) -> None:
    """Without the record nothing can be tried again, whatever `retries` said."""
    run = local.submit(WAITS, grace="0s", retries=3)
    local.until_said(run.name, "ready")
    launcher = local.launchers(run.name)[0]
    local.kill(local.supervisor(run.name))
    local.until(lambda: not is_alive(launcher), "the launcher leaves")
    (local.files(run.name).directory / "record.json").write_bytes(b"")
    found = look(local, run.name)
    assert found.phase == "failed" and "record.json was damaged" in found.reason, found
    assert local.files(run.name).attempts() == [0]


def test_nothing_is_collected_while_a_record_is_damaged(local: LocalJobs) -> None:
    """Which code the run needs is not known; it might be all there is."""
    kept, other = local.run("print(1)", name="kept"), local.run("print(2)", name="other")
    before = sorted((local.home.root / "bundles").rglob("objects/*/*"))
    for path in before:
        os.utime(path, (0, 0))
    for path in (local.home.root / "bundles" / "manifests").iterdir():
        os.utime(path, (0, 0))
    (local.files(kept.name).directory / "record.json").write_bytes(b"")
    local.engine.delete(other.name)
    assert sorted((local.home.root / "bundles").rglob("objects/*/*")) == before
    local.engine.delete(kept.name)
    assert sorted((local.home.root / "bundles").rglob("objects/*/*")) == []
