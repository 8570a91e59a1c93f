"""Backends of the proxy: the replicas that may be asked, how busy each is, and which of them is asked next."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable

MOST_IDLE = 64
"""Connections to one replica that are kept open for the next request."""

AGAIN_S = 0.1
"""Before a replica that failed a request is asked the same again: its end is noticed about as fast."""


class Backend:
    """One replica as the proxy sees it."""

    def __init__(self, name: str, version: int, host: str, port: int) -> None:
        self.name = name
        self.version = version
        self.host = host
        self.port = port
        self.in_flight = 0
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def take_idle(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """An open connection; those that the replica has closed meanwhile are dropped."""
        while self.idle:
            reader, writer = self.idle.pop()
            if is_quiet(reader) and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    def give_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self.idle) < MOST_IDLE and is_quiet(reader):
            self.idle.append((reader, writer))
        else:
            writer.close()

    def close(self) -> None:
        """Close connections that nobody uses; those in use end with their request."""
        while self.idle:
            with contextlib.suppress(OSError):
                self.idle.pop()[1].close()


def is_quiet(reader: asyncio.StreamReader) -> bool:
    """Whether the replica has neither closed the connection nor said more than it was asked: what lies there unread
    would be taken for the answer to somebody else's request."""
    buffered = getattr(reader, "_buffer", b"")  # there is no public way to look without waiting
    return not buffered and not reader.at_eof() and reader.exception() is None


class Backends:
    """The replicas that take requests. A canary takes its share of them by chance, the others the rest."""

    def __init__(self) -> None:
        self._ready: dict[str, Backend] = {}
        self._canary: int | None = None  # its version
        self._weight = 0  # its share in per cent
        self._changed = asyncio.Event()
        self.waiting = 0  # requests that wait for a replica
        self.answered = 0
        self.failed = 0  # requests that the proxy itself had to refuse or break off

    def set_ready(self, backends: Iterable[Backend], canary: int | None = None, weight: int = 0) -> None:
        ready = {backend.name: backend for backend in backends}
        for name, backend in self._ready.items():
            if name not in ready:
                backend.close()
        self._ready, self._canary, self._weight = ready, canary, weight
        if ready:
            self._changed.set()
        else:
            self._changed.clear()

    @property
    def in_flight(self) -> int:
        return self.waiting + sum(backend.in_flight for backend in self._ready.values())

    def choose(self, without: Iterable[Backend] = ()) -> Backend | None:
        """The least busy replica. `without`: those that failed this request."""
        tried = set(map(id, without))
        candidates = [backend for backend in self._ready.values() if id(backend) not in tried]
        if self._canary is not None:
            canaries = [backend for backend in candidates if backend.version == self._canary]
            others = [backend for backend in candidates if backend.version != self._canary]
            if canaries and others:
                candidates = canaries if random.random() * 100 < self._weight else others
        if not candidates:
            return None
        least = min(backend.in_flight for backend in candidates)
        return random.choice([backend for backend in candidates if backend.in_flight == least])

    async def next(self, without: Iterable[Backend], hold_s: float) -> Backend | None:
        """A replica to ask, waited for where none is ready now; None when that takes too long."""
        backend = self.choose(without)
        if backend is not None:
            return backend
        deadline = asyncio.get_running_loop().time() + hold_s
        self.waiting += 1
        try:
            while (left := deadline - asyncio.get_running_loop().time()) > 0:
                if self._ready:  # only such as failed this request: it may be that one lost connection, or its end
                    await asyncio.sleep(min(AGAIN_S, left))
                    without = ()
                else:
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), left)
                backend = self.choose(without)
                if backend is not None:
                    return backend
            return None
        finally:
            self.waiting -= 1
