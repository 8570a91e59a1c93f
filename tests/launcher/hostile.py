"""Strangers for a test: what somebody without the token may do to a port, by a seeded random generator."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import threading
import time

from longboat.launcher.gang.handshake import FRAME, frame

KINDS = b"HWNMAPRIOEX?"


def garbage(rng: random.Random) -> bytes:
    """Bytes that look more or less like a request of a launcher."""
    body = rng.choice(
        [
            rng.randbytes(rng.randrange(0, 5000)),
            b"[" * rng.randrange(1, 4000),
            b'{"token":' * 400,
            b'{"token": ' + b"9" * rng.randrange(1, 4000) + b"}",
            b'{"token": 1e999, "node": null, "got": -1}',
            b'{"token": "\\ud800", "command": "touch pwned"}',
            b"\xff\xfe" * 50,
        ]
    )
    whole = frame(bytes([rng.choice(KINDS)]), body)
    return rng.choice(
        [
            body,
            whole,
            rng.randbytes(32) + whole,
            whole[: rng.randrange(0, len(whole))],
            FRAME.pack(b"H", rng.choice([0, 1, 0xFFFFFFFF])) + body,
            b"GET / HTTP/1.1\r\n\r\n",
        ]
    )


def throw(place: tuple[str, int], data: bytes, *, reset: bool = False) -> None:
    """Send the bytes and hang up, or have the connection reset."""
    with contextlib.suppress(OSError), socket.create_connection(place, timeout=5) as stranger:
        if reset:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        stranger.sendall(data)


class Crowd:
    """Many connections that stay open: silent ones, and ones that send a byte now and then."""

    def __init__(self, place: tuple[str, int]) -> None:
        self._place = place
        self.open: list[socket.socket] = []

    def grow(self, count: int) -> None:
        for _ in range(count):
            with contextlib.suppress(OSError):
                self.open.append(socket.create_connection(self._place, timeout=2))

    def drip(self) -> None:
        for stranger in self.open:
            with contextlib.suppress(OSError):
                stranger.send(b"\0")

    def close(self) -> None:
        for stranger in self.open:
            stranger.close()
        self.open.clear()


class Flood:
    """A thread that connects without end, holding a few hundred connections at a time."""

    def __init__(self, place: tuple[str, int], held: int = 300) -> None:
        self._crowd, self._held, self._is_over = Crowd(place), held, False
        self.made = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            self._crowd.grow(10)
            self.made += 10
            while len(self._crowd.open) > self._held:
                self._crowd.open.pop(0).close()
            time.sleep(0.005)  # leave the processor to the gang: two cores may be all there is
        self._crowd.close()

    def stop(self) -> None:
        self._is_over = True
        self._thread.join()


def limit_descriptors(pid: int, most: int) -> None:
    """From now on the process may have so many open: the hard limit too, to which a launcher raises its soft one."""
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))


def open_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
