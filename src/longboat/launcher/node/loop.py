"""The event loop: descriptors, named timers, signals and ended children. It knows nothing of ranks.

Signals wake the loop through a pipe, so nothing is polled: an idle node sleeps in the kernel.
"""

from __future__ import annotations

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Callable
else:
    import _signal as signal  # the public module costs an import of `enum`, several milliseconds

POLLIN = select.POLLIN
POLLOUT = select.POLLOUT
LONGEST_WAIT_S = 3600.0
"""poll takes milliseconds as a C int; a grace of a month, or of infinity, waits an hour at a time."""


class ChildEnd:
    """The exit of a reaped child: `ended_ns` is monotonic."""

    __slots__ = ("code", "ended", "ended_ns", "pid", "rss_peak", "signal")

    def __init__(self, pid: int, status: int, rss_peak: int) -> None:
        self.pid = pid
        self.ended_ns = time.monotonic_ns()
        self.ended = time.time()
        self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        self.code = 128 + self.signal if self.signal is not None else os.WEXITSTATUS(status)
        self.rss_peak = rss_peak

    def through_shell(self) -> None:
        """Convert a shell's exit code 128 + n to signal n."""
        if self.signal is None and 128 < self.code <= 192:
            self.signal = self.code - 128


class EventLoop:
    """An event loop: callbacks run one after the other in `turn`; signal handlers only take notes."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._watched: dict[int, Callable[[], object]] = {}
        self._timers: dict[object, tuple[float, Callable[[], object]]] = {}
        self._signals: list[int] = []
        self._ends: list[ChildEnd] = []
        self.on_signal: Callable[[int], None] = lambda number: None
        self.on_child: Callable[[ChildEnd], None] = lambda end: None
        self.on_turn: Callable[[], None] = lambda: None  # after everything that was due
        self.has_children = False
        wake_r, wake_w = os.pipe()
        os.set_blocking(wake_r, False)
        os.set_blocking(wake_w, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        self.watch(wake_r, lambda: self._drain(wake_r))

    def listen(self, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            signal.signal(number, lambda got, frame: self._signals.append(got))
        signal.signal(signal.SIGCHLD, lambda got, frame: self.reap())

    def watch(self, descriptor: int, callback: Callable[[], object], events: int = POLLIN) -> None:
        self._watched[descriptor] = callback
        self._poll.register(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        if self._watched.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def after(self, name: object, seconds: float, callback: Callable[[], object]) -> None:
        """Set the timer of this name, replacing an earlier one."""
        self._timers[name] = (time.monotonic() + seconds, callback)

    def cancel(self, name: object) -> None:
        self._timers.pop(name, None)

    def reap(self) -> None:
        """Reap all ended children; also called in the signal handler, to record the exact time."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self.has_children = False
                return
            if pid == 0:
                self.has_children = True
                return
            unit = 1 if os.uname().sysname == "Darwin" else 1024
            self._ends.append(ChildEnd(pid, status, usage.ru_maxrss * unit))

    def turn(self) -> None:
        """Wait for the next event or timer and run due callbacks: ended children first, then signals."""
        if not (self._ends or self._signals):
            self._wait()
        while self._ends:
            self.on_child(self._ends.pop(0))
        while self._signals:
            self.on_signal(self._signals.pop(0))
        now = time.monotonic()
        for name in [name for name, (when, _) in self._timers.items() if when <= now]:
            due = self._timers.pop(name, None)
            if due is not None:
                due[1]()
        self.on_turn()

    def _wait(self) -> None:
        timeout_ms = None
        if self._timers:
            first = min(when for when, _ in self._timers.values())
            timeout_ms = max(0, int(min(LONGEST_WAIT_S, first - time.monotonic()) * 1000) + 1)
        for descriptor, _ in self._poll.poll(timeout_ms):
            callback = self._watched.get(descriptor)
            if callback is not None:
                callback()

    @staticmethod
    def _drain(descriptor: int) -> None:
        try:
            while len(os.read(descriptor, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass
