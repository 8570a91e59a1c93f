"""A port-forward takes no more connections than it serves, and goes on after one that could not be taken."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from longboat.workbench import forwarding
from longboat.workbench.forwarding import PortForward

PATIENCE_S = 60.0


class Listener:
    """A listening socket without the kernel: it fails, then has connections, then none."""

    def __init__(self, connections: int) -> None:
        self.forward: Any = None
        self.had_room: list[bool] = []
        self.ends: list[socket.socket] = []
        self.over = threading.Event()
        self._left = connections
        self._has_failed = False

    def accept(self) -> tuple[socket.socket, None]:
        if not self._has_failed:
            self._has_failed = True
            raise OSError(errno.EMFILE, "Too many open files")
        if not self._left:
            self.over.wait(PATIENCE_S)
            raise OSError(errno.EBADF, "closed")
        self._left -= 1
        self.had_room.append(self.forward._room.acquire(blocking=False))
        here, there = socket.socketpair()
        self.ends.append(there)
        return here, None

    def shutdown(self, _how: int) -> None:
        self.over.set()

    def close(self) -> None:
        for end in self.ends:
            end.close()


@pytest.fixture
def forward(monkeypatch: pytest.MonkeyPatch) -> Iterator[PortForward]:
    monkeypatch.setattr(forwarding, "MOST_CONNECTIONS", 1)
    monkeypatch.setattr(forwarding, "ACCEPT_PAUSE_S", 0.01)
    client: Any = None
    made = PortForward(client, "web", 1)
    made._listener.close()
    made._listener = listener = Listener(3)  # type: ignore[assignment]
    listener.forward = made
    with made:
        yield made


def test_room_is_taken_first_and_a_failure_is_waited_out(forward: PortForward, monkeypatch: pytest.MonkeyPatch) -> None:
    served = threading.Semaphore(0)
    monkeypatch.setattr(forward, "_dial", served.release)  # no cluster: the connection ends at once
    for _ in range(3):
        assert served.acquire(timeout=PATIENCE_S)
    listener: Any = forward._listener
    assert listener.had_room == [False, False, False]
