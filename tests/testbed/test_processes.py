"""Processes are marked, found again, and never mistaken for another with the same number."""

from __future__ import annotations

import functools
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import clusters, processes
from testbed.errors import TestbedError
from testbed.processes import Launch, Process


@pytest.fixture
def identity() -> Iterator[str]:
    found = clusters.new_id()
    yield found
    processes.kill_marked(found)


def launch(identity: str, folder: Path, *command: str) -> Launch:
    environment = {"PATH": os.environ["PATH"], **processes.marks(identity, folder)}
    return Launch("one", command, environment, folder / "one.log")


def test_started_marked_and_found(identity: str, tmp_path: Path) -> None:
    process = processes.start(launch(identity, tmp_path, "sleep", "600"))
    assert processes.is_alive(process)
    (found,) = processes.marked(identity)
    assert (found.pid, found.folder) == (process.pid, str(tmp_path))
    assert os.getsid(process.pid) != os.getsid(0), "a signal to the starter's group must not reach it"


def test_log_holds_both_streams_and_is_added_to(identity: str, tmp_path: Path) -> None:
    for _ in range(2):
        process = processes.start(launch(identity, tmp_path, "sh", "-c", "echo out; echo err >&2; sleep 0.2"))
        assert processes.wait_until(functools.partial(processes.ended, [process]), 10)  # type: ignore[arg-type]
    assert sorted((tmp_path / "one.log").read_text().split()) == ["err", "err", "out", "out"]


def test_another_process_with_the_same_number_is_left_alone(identity: str, tmp_path: Path) -> None:
    process = processes.start(launch(identity, tmp_path, "sleep", "600"))
    for other in (replace(process, start_ticks=process.start_ticks - 1), replace(process, boot_id="another boot")):
        assert not processes.is_alive(other)
        assert not processes.send(other, signal.SIGKILL)
        processes.stop(other)
    assert processes.is_alive(process)


def test_stop_kills_what_does_not_listen(identity: str, tmp_path: Path) -> None:
    script = 'trap "" TERM; echo ready; while :; do sleep 0.1; done'
    process = processes.start(launch(identity, tmp_path, "sh", "-c", script))
    assert processes.wait_until(lambda: "ready" in processes.tail(tmp_path / "one.log"), 10)
    processes.stop(process, grace_s=0.2)
    assert not processes.is_alive(process)


def test_kill_marked_takes_all_of_one_and_none_of_another(identity: str, tmp_path: Path) -> None:
    other = clusters.new_id()
    kept = processes.start(launch(other, tmp_path, "sleep", "600"))
    try:
        processes.start(launch(identity, tmp_path, "sh", "-c", "sleep 600 & sleep 600 & wait"))
        assert processes.wait_until(lambda: len(processes.marked(identity)) == 3, 10)
        assert processes.kill_marked(identity) == 3
        assert processes.marked(identity) == []
        assert processes.is_alive(kept)
    finally:
        processes.kill_marked(other)


def test_a_program_that_is_not_there_is_told(identity: str, tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="no-such-program"):
        process = processes.start(launch(identity, tmp_path, "/no-such-program"))
        # The shell may report its number before it failed; then the record shows it ended.
        assert processes.wait_until(lambda: not processes.is_alive(process), 10)
        raise TestbedError(processes.tail(tmp_path / "one.log"))


def test_records_survive_and_broken_ones_are_passed_over(tmp_path: Path) -> None:
    process = Process("etcd", 7, 8, "boot", "/x.log")
    processes.record(tmp_path, process)
    (tmp_path / "half.json").write_text('{"name": "ha')
    assert processes.recorded(tmp_path) == {"etcd": process}
    assert processes.ended([process]) == [process]


def test_listening_is_seen_without_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert processes.is_listening(os.getpid(), port)
    assert not processes.is_listening(os.getpid(), port)
