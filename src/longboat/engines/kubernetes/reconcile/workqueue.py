"""Delaying work queue, one worker per key, and the threads that take turns of its keys."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from longboat.core.errors import LongboatError
from longboat.kubeapi.watch import Reflector

AGAIN_S = 2.0
"""After a turn that failed: another try, then after twice as long, and so on."""
LEAVING_S = 10.0
"""How long turns under way are waited for, together, when all end: they may be cut off anywhere, and a pod that is
stopped has 30 s to give its Lease back."""


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


class TurnWorkers:
    """Threads that take a turn of each key that is due. `turn` returns the seconds until the next; None: when noted.

    A turn that fails is told once for each reason, and tried again with a backoff of at most `longest_s`. All end when
    `may_work` says no.
    """

    def __init__(
        self,
        turn: Callable[[RunKey], float | None],
        *,
        title: Callable[[RunKey], str],
        longest_s: float,
        say: Callable[[str], None],
        may_work: Callable[[], bool],
    ) -> None:
        self.queue = WorkQueue()
        self._turn, self._title, self._longest_s = turn, title, longest_s
        self._say, self._may_work = say, may_work
        self._trouble: dict[RunKey, tuple[int, str]] = {}  # turns that failed in a row, and why the last did
        self._threads: list[threading.Thread] = []

    def start(self, name: str, count: int) -> None:
        for number in range(count):
            thread = threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def join(self) -> None:
        """Wait for the turns under way, within reason; the queue is closed."""
        until = time.monotonic() + LEAVING_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, until - time.monotonic()))

    def ended(self) -> list[str]:
        """Threads that have ended, which none does by itself."""
        return [f"the thread {thread.name} has ended" for thread in self._threads if not thread.is_alive()]

    def note_trouble(self, key: RunKey, error: Exception) -> None:
        text = error.message if isinstance(error, LongboatError) else f"{type(error).__name__}: {error}"
        times, before = self._trouble.get(key, (0, ""))
        self._trouble[key] = (times + 1, text)
        if text != before:
            self._say(f"{self._title(key)}: {text}")
        self.queue.note(key, time.monotonic() + min(self._longest_s, AGAIN_S * 2 ** min(times, 10)))

    def _work(self) -> None:
        while (key := self.queue.take()) is not None:
            if not self._may_work():
                self.queue.close()
                return
            try:
                pause = self._turn(key)
                self._trouble.pop(key, None)
                if pause is not None:
                    self.queue.note(key, time.monotonic() + pause)
            except Exception as error:  # one bad key must not end the turns of all others
                self.note_trouble(key, error)
            finally:
                self.queue.done(key)


class WatchedTurns:
    """Turns of one kind of object beside the controller of runs, in some namespaces or in all (None).

    Works until it is closed, or until `may_work` says no. `say` is told one line for everything that goes wrong.
    `threads`: their name and number. Whoever derives from it says what is watched.
    """

    def __init__(
        self,
        turn: Callable[[RunKey], float | None],
        *,
        threads: tuple[str, int],
        say: Callable[[str], None],
        namespaces: Sequence[str] | None = None,
        may_work: Callable[[], bool] = lambda: True,
        **options: Any,
    ) -> None:
        self._workers = TurnWorkers(turn, say=say, may_work=may_work, **options)
        self._threads = threads
        self._namespaces: tuple[str | None, ...] = (None,) if namespaces is None else tuple(namespaces)
        self._reflectors: list[Reflector[Any]] = []

    def watch(self, namespace: str | None) -> Reflector[Any]:
        """A watch of the objects of a namespace, or of all, whose changes are noted in the queue."""
        raise NotImplementedError

    def start(self) -> None:
        for namespace in self._namespaces:
            self._reflectors.append(self.watch(namespace))
        self._workers.start(*self._threads)

    def close(self) -> None:
        self._workers.queue.close()
        for reflector in self._reflectors:
            reflector.close()
        self._workers.join()

    def blind_spots(self) -> list[str]:
        """Why they cannot be watched now, and changes that were not taken."""
        texts = [text for reflector in self._reflectors for text in (reflector.why_stale(), reflector.handler_trouble)]
        return [text for text in texts if text]

    def why_unhealthy(self) -> str:
        """Threads that ended; empty: none."""
        return "; ".join(self._workers.ended())
