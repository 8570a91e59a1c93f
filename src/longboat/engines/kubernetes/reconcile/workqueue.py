"""Delaying work queue; one worker per key. No I/O."""

from __future__ import annotations

import heapq
import threading
import time
from typing import NamedTuple


class RunKey(NamedTuple):
    """A run; without a name, the gate."""

    namespace: str
    run: str = ""


class WorkQueue:
    """Keys and when they are due. One that is noted while it is worked on comes again afterwards."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[RunKey, float] = {}
        self._heap: list[tuple[float, RunKey]] = []
        self._busy: dict[RunKey, float | None] = {}  # in somebody's hands -> when it is due again
        self._is_closed = False

    def note(self, key: RunKey, at: float) -> None:
        """Schedule a key for this time (of `time.monotonic`); an earlier time noted before stays."""
        with self._changed:
            if key in self._busy:
                known = self._busy[key]
                self._busy[key] = at if known is None else min(known, at)
            else:
                self._push(key, at)

    def forget(self, key: RunKey) -> None:
        with self._changed:
            self._due.pop(key, None)
            if key in self._busy:
                self._busy[key] = None

    def take(self) -> RunKey | None:
        """The next that is due; blocks until there is one. None: closed. Whoever takes it says when it is `done`."""
        with self._changed:
            while not self._is_closed:
                while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
                    heapq.heappop(self._heap)  # forgotten, or an earlier entry took its place
                if not self._heap:
                    self._changed.wait()
                    continue
                at, key = self._heap[0]
                left = at - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                heapq.heappop(self._heap)
                del self._due[key]
                self._busy[key] = None
                return key
        return None

    def done(self, key: RunKey) -> None:
        with self._changed:
            again = self._busy.pop(key, None)
            if again is not None:
                self._push(key, again)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _push(self, key: RunKey, at: float) -> None:
        if at < self._due.get(key, float("inf")):
            self._due[key] = at
            heapq.heappush(self._heap, (at, key))
            self._changed.notify()
