"""Events for browsers: one bounded history that every reader follows at its own pace.

A reader has a cursor and no queue: whoever falls behind the history is told to load everything anew, and no slow reader
costs memory. Written by watchers' threads, read by the server's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from longboat.core.times import format_time

MOST_EVENTS = 2048  # of the history; `MOST_BYTES` bounds it where they are large
MOST_BYTES = 16 << 20
"""Of the history. What is older is in `/api/runs`, which a reader loads again then."""
HEARTBEAT_S = 5.0
"""Pages show how old a source is; proxies end connections that are silent for a minute."""


class StoredEvent(NamedTuple):
    number: int
    data: bytes  # as it is sent


class EventLog:
    """The history of events. `epoch` tells this server's numbers from another's."""

    def __init__(self, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self.epoch = secrets.token_hex(4)
        self._most_events, self._most_bytes = most_events, most_bytes
        self._events: deque[StoredEvent] = deque()
        self._bytes = 0
        self._last = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self._wakers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def publish(self, kind: str, data: object) -> None:
        """Add an event and wake all readers. May be called by any thread."""
        with self._lock:
            self._last += 1
            text = encoded(kind, data, f"{self.epoch}-{self._last}")
            self._events.append(StoredEvent(self._last, text))
            self._bytes += len(text)
            while len(self._events) > self._most_events or (self._bytes > self._most_bytes and len(self._events) > 1):
                self._bytes -= len(self._events.popleft().data)
            wakers = list(self._wakers)
        self._wake(wakers)

    def forget(self) -> None:
        """Drop the history: every reader loads everything anew. For changes that are too many to be told."""
        with self._lock:
            self._last += 1
            self._events.clear()
            self._bytes = 0
            wakers = list(self._wakers)
        self._wake(wakers)

    def close(self) -> None:
        """Nothing follows: readers end with the last event."""
        with self._lock:
            self._is_closed = True
            wakers = list(self._wakers)
        self._wake(wakers)

    def _wake(self, wakers: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        for loop, event in wakers:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    @property
    def beginning(self) -> str:
        """The cursor before the oldest event that is kept."""
        with self._lock:
            return f"{self.epoch}-{self._events[0].number - 1 if self._events else self._last}"

    @property
    def cursor(self) -> str:
        with self._lock:
            return f"{self.epoch}-{self._last}"

    def after(self, cursor: str) -> list[StoredEvent] | None:
        """Events after a cursor; None where some of them are gone, or the cursor is not one of ours."""
        epoch, _, text = cursor.partition("-")
        with self._lock:
            is_number = text.isascii() and text.isdigit() and len(text) < 20
            if epoch != self.epoch or not is_number or int(text) > self._last:
                return None
            number = int(text)
            first = self._events[0].number if self._events else self._last + 1
            if number + 1 < first:
                return None
            return [event for event in self._events if event.number > number]

    async def follow(self, cursor: str, heartbeat: Any) -> AsyncIterator[bytes]:
        """Everything after the cursor, and heartbeats between; ends with `reset` where the history has a gap."""
        waker = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._wakers.add(waker)
        beat = 0.0
        try:
            while True:
                # Also between events: without it a source that always has news would look older and older.
                if time.monotonic() >= beat:
                    yield encoded("heartbeat", heartbeat())
                    beat = time.monotonic() + HEARTBEAT_S
                waker[1].clear()
                events = self.after(cursor)
                if events is None:
                    is_ours = cursor.startswith(f"{self.epoch}-")
                    yield encoded("reset", {"reason": "behind" if is_ours else "restarted"})
                    return
                for event in events:
                    yield event.data
                    cursor = f"{self.epoch}-{event.number}"
                if events:
                    continue
                if self._is_closed:
                    return
                with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                    await asyncio.wait_for(waker[1].wait(), max(0.0, beat - time.monotonic()))
        finally:
            with self._lock:
                self._wakers.discard(waker)


def encoded(kind: str, data: object, number: str | None = None) -> bytes:
    """One server-sent event. JSON has no raw newline, so that one `data` line holds all of it."""
    head = f"id: {number}\nevent: {kind}\ndata: " if number is not None else f"event: {kind}\ndata: "
    return head.encode() + msgspec.json.encode(data) + b"\n\n"


def now_text(now: float) -> str:
    return format_time(now, digits=3)
