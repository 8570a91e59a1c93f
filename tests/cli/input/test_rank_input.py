"""What is typed, on its way to a rank: read in the foreground only, and no more than is asked for."""

from __future__ import annotations

import os
import pty
import threading
import time
from collections.abc import Iterator

import pytest

from longboat.cli.input import rank_input


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def started(terminal: int) -> tuple[threading.Thread, int]:
    reader, writer = os.pipe()
    thread = threading.Thread(target=rank_input.pass_on, args=(terminal, writer), daemon=True)
    thread.start()
    return thread, reader


def test_lines_until_the_end(terminal: tuple[int, int]) -> None:
    thread, reader = started(terminal[1])
    os.write(terminal[0], b"one\ntwo\n\x04")
    with open(reader, "rb") as file:
        assert file.read() == b"one\ntwo\n"
    thread.join(10)
    assert not thread.is_alive()


def test_in_the_background_nothing_is_read(terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    is_foreground = threading.Event()
    monkeypatch.setattr(rank_input, "may_read_stdin", is_foreground.is_set)
    monkeypatch.setattr(rank_input, "BACKGROUND_S", 0.01)
    _, reader = started(terminal[1])
    os.write(terminal[0], b"password\n")
    os.set_blocking(reader, False)
    time.sleep(0.1)
    with pytest.raises(BlockingIOError):
        os.read(reader, 100)
    os.set_blocking(reader, True)
    is_foreground.set()
    assert os.read(reader, 100) == b"password\n"
    os.close(reader)


def test_without_a_reader_the_terminal_is_left_alone(terminal: tuple[int, int]) -> None:
    thread, reader = started(terminal[1])
    os.close(reader)
    thread.join(10)
    assert not thread.is_alive()


def test_several_ranks_and_the_background_get_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_input, "may_read_stdin", lambda: True)
    with rank_input.rank_input(2) as given:
        assert given is None
    monkeypatch.setattr(rank_input, "may_read_stdin", lambda: False)
    with rank_input.rank_input(1) as given:
        assert given is None
