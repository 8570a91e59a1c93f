"""What is taken of the caller's stdin, and when."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from longboat.engines.kubernetes.exec import rank_input
from longboat.engines.kubernetes.exec.pod_exec import FramedOutput
from longboat.engines.kubernetes.exec.rank_input import InputOnDemand, RankInput, has_input, peek
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden, ObjectNotFound
from tests.engines.kubernetes.run_samples import running


def pipe_of(data: bytes) -> int:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


def test_nothing_is_taken_before_the_rank_has_read(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"first\nsecond\n")
    for descriptor in (pipe_of(b"first\nsecond\n"), os.open(tmp_path / "list", os.O_RDONLY)):
        source = InputOnDemand(descriptor)
        assert source.read(100) == b"f"
        assert peek(descriptor, 100) == b"first\nsecond\n", "another command may read it"
        threading.Timer(0.05, source.is_wanted.set).start()
        assert source.read(100) == b"irst\nsecond\n"
        assert source.read(100) == b""
        os.close(descriptor)


def test_the_end_is_passed_on() -> None:
    empty = pipe_of(b"")
    frames = FramedOutput(cast(BinaryIO, InputOnDemand(empty)))
    assert [frames.read(9), frames.read(9)] == [b"\0\0\0\0", b""]
    os.close(empty)


def test_where_there_is_nothing_to_pass_on(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"one\n")
    file, null, waiting = os.open(tmp_path / "list", os.O_RDONLY), os.open(os.devnull, os.O_RDONLY), os.pipe()
    assert has_input(file) and has_input(waiting[0]) and not has_input(null)
    os.lseek(file, 0, os.SEEK_END)
    assert not has_input(file)
    assert peek(null, 1) is None
    for descriptor in (file, null, *waiting):
        os.close(descriptor)


def test_a_retry_is_told_that_its_stdin_is_empty_if_the_first_attempt_had_some() -> None:
    told: list[str] = []
    descriptor = pipe_of(b"")
    given = RankInput(cast(Client, None), "default", descriptor, told.append)
    given.attach(running(attempt=1))
    assert told == [], "nobody has read anything"
    given._source.is_wanted.set()
    for _ in range(2):
        given.attach(running(attempt=1))
    assert len(told) == 1 and "empty stdin" in told[0]
    os.close(descriptor)


@pytest.mark.parametrize("sync_s", [60.0, 0.0])
def test_a_refusal_ends_it_only_if_it_lasts(sync_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that has just restarted refuses everybody until it has read its roles."""
    answers: list[Exception] = [Forbidden("pods/exec is forbidden"), Forbidden("pods/exec is forbidden")]

    def connect(*_: object, **__: object) -> object:
        raise answers.pop() if answers else ObjectNotFound("the pod has ended")

    monkeypatch.setattr(rank_input, "Session", connect)
    monkeypatch.setattr(rank_input, "AGAIN_S", 0.0)
    monkeypatch.setattr("longboat.kubeapi.refusals.SYNC_S", sync_s)
    told: list[str] = []
    descriptor = pipe_of(b"line")
    given = RankInput(cast(Client, None), "default", descriptor, told.append)
    given._pass_on("pod")
    assert [len(answers), len(told)] == ([0, 0] if sync_s else [1, 1])
    os.close(descriptor)
