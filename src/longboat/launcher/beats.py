"""The heartbeat: steps, memory and signs of life of every rank, written every two seconds; the memory limit and the
watch for hung ranks live on the same measurements.
"""

from __future__ import annotations

import os
import time

from . import processes
from .jsonfiles import read_json
from .ranks import Rank
from .state import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Callable
else:
    import _signal as signal

BEAT_S = 2.0
MEMORY_S = 10.0
MEMORY_LIMITED_S = 0.5
DUMP_AFTER_S = 5.0


class Beats:
    def __init__(self, state: State) -> None:
        self._state = state
        self._memory: int | None = None
        self.stalled: tuple[int, float] | None = None  # the silent rank and for how long, once stall.json is written

    def start(self) -> None:
        self.beat()

    def watch(self, on_stall: Callable[[Rank], None]) -> None:
        """The ranks run: watch their memory and their progress. `on_stall` is called if nobody else acts."""
        self._on_stall = on_stall
        self.write()
        self._state.loop.after("memory", MEMORY_LIMITED_S, self._measure)
        if self._state.plan.stall_s is not None:
            self._state.loop.after("stall", min(self._state.plan.stall_s, BEAT_S), self._check_progress)

    def beat(self) -> None:
        self._state.loop.after("beat", BEAT_S, self.beat)
        self.write()

    def write(self) -> None:
        state = self._state
        for rank in state.ranks:
            self._read_step(rank)
        beat = {
            "time": time.time(),
            "phase": state.phase,
            "missing": state.missing,
            "memory": self._memory,
            "problems": state.problems(),
            "ranks": {str(rank.rank): rank.beat() for rank in state.ranks},
        }
        state.write("beat.json", beat)

    def _read_step(self, rank: Rank) -> None:
        path = self._state.path("steps", str(rank.rank))
        try:
            stamp = os.stat(path).st_mtime_ns
            if stamp == rank.step_stamp:
                return
            value = read_json(path)
            rank.step_stamp = stamp
            rank.step = int(value["step"])
            rank.step_time = float(value["time"])
            rank.metrics = {str(name): float(number) for name, number in value["metrics"].items() if number is not None}
            rank.step_ns = time.monotonic_ns()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # none yet, or not a file of ours

    def _measure(self) -> None:
        """Memory of each rank's tree; the largest rank over the node's limit is killed."""
        state = self._state
        limit = state.plan.memory_limit
        state.loop.after("memory", MEMORY_LIMITED_S if limit else MEMORY_S, self._measure)
        trees = {rank: processes.tree(rank.pid) for rank in state.ranks if rank.alive}
        for rank, pids in trees.items():
            rank.note_memory(processes.rss(pids))
        self._memory = sum(rank.memory or 0 for rank in trees)
        if not limit or self._memory <= limit or state.ending is not None or not trees:
            return
        for rank, pids in trees.items():  # shared pages were counted more than once: look closely before killing
            rank.memory = processes.pss(pids)
        used = sum(rank.memory or 0 for rank in trees)
        if used <= limit:
            return
        largest = max(trees, key=lambda rank: rank.memory or 0)
        largest.over_limit = used
        processes.send_group(largest.pid, signal.SIGKILL)
        for pid in trees[largest]:
            processes.send(pid, signal.SIGKILL)

    def _check_progress(self) -> None:
        state, stall_s = self._state, self._state.plan.stall_s
        if state.ending is not None or stall_s is None:
            return
        for rank in state.ranks:
            self._read_step(rank)
        alive = [rank for rank in state.ranks if rank.alive]
        slowest = max(alive, key=lambda rank: rank.silent_s()) if alive else None
        if slowest is None or slowest.silent_s() < stall_s:
            wait_s = stall_s - slowest.silent_s() if slowest else BEAT_S
            state.loop.after("stall", max(0.05, min(wait_s, BEAT_S)), self._check_progress)
            return
        silent_s = slowest.silent_s()
        self.stalled = (slowest.rank, silent_s)
        state.write("stall.json", {"rank": slowest.rank, "silent_s": silent_s, "time": time.time()})
        hung = slowest
        state.loop.after("stall", DUMP_AFTER_S, lambda: self._on_stall(hung))
