"""The heartbeat: steps, memory and signs of life of every rank, written every two seconds; the memory limit and the
watch for hung ranks live on the same measurements.
"""

from __future__ import annotations

import os
import time

from ..node import processes
from ..node.plan import resumed_from
from .ranks import Rank
from .state import LauncherState

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Callable
else:
    import _signal as signal

BEAT_S = 2.0
"""As often as an engine looks."""
MEMORY_S = 10.0
"""Reading /proc of every process of a large tree takes a while, and without a limit it is only shown."""
MEMORY_LIMITED_S = 0.5
"""With a limit of our own: the sooner it is enforced, the less is used beyond it."""
DUMP_AFTER_S = 5.0
"""An engine that knows of other nodes asks all of them for stacks; without one the launcher acts by itself."""


class Heartbeats:
    def __init__(self, state: LauncherState) -> None:
        self._state = state
        self._memory: int | None = None
        self.stalled: tuple[int, float] | None = None  # the silent rank and for how long, once stall.json is written

    def start(self) -> None:
        self._state.on_change = self.write
        self.beat()

    def watch(self, on_stall: Callable[[Rank], None], on_kill: Callable[[Rank], None]) -> None:
        """Watch memory and progress of the running ranks.

        `on_stall` is called for a hung rank if nobody else acts, `on_kill` for one that was killed over the limit.
        """
        self._on_stall = on_stall
        self._on_kill = on_kill
        self.write()
        self._state.loop.after("memory", MEMORY_LIMITED_S, self._measure)
        if self._state.plan.stall_s is not None and self._state.plan.starter != "follower":
            self._state.loop.after("stall", min(self._state.plan.stall_s, BEAT_S), self._check_progress)

    def beat(self) -> None:
        self._state.loop.after("beat", BEAT_S, self.beat)
        self.write()

    def write(self) -> None:
        state = self._state
        for rank in state.ranks:
            rank.read_step(state.path("steps", str(rank.rank)))
        beat = {
            "time": time.time(),
            "phase": state.phase,
            "missing": state.missing,
            "memory": self._memory,
            "gpus": state.gpus,
            "problems": state.problems(),
            "resumed_from": resumed_from(state.plan) if state.phase == "running" else None,
            "ranks": {str(rank.rank): rank.beat() for rank in state.ranks},
        }
        state.write("beat.json", beat)

    def _measure(self) -> None:
        """Measure the memory of each rank's process tree; over the node's limit the largest rank is killed."""
        state = self._state
        limit = state.plan.memory_limit
        state.loop.after("memory", MEMORY_LIMITED_S if limit else MEMORY_S, self._measure)
        trees = self.trees()
        used_by = {pid: processes.rss([pid]) for pid in {pid for pids in trees.values() for pid in pids}}
        for rank, pids in trees.items():
            rank.note_memory(sum(used_by[pid] for pid in pids))
        self._memory = sum(used_by.values())
        if limit and self._memory > limit and state.ending is None and trees:
            self._look_closely(trees, limit)

    def trees(self) -> dict[Rank, list[int]]:
        """Process trees by rank. Under mpirun processes cannot be told apart: all count as the node's first rank."""
        ranks = self._state.ranks
        if self._state.plan.starter in ("mpirun", "follower"):
            return {rank: processes.tree(os.getpid())[1:] for rank in ranks[:1]}
        return {rank: processes.tree(rank.pid) for rank in ranks if rank.alive}

    def _look_closely(self, trees: dict[Rank, list[int]], limit: int) -> None:
        """Measure again without counting shared pages twice, and kill the largest rank if still over the limit."""
        used_by = {pid: processes.pss([pid]) for pid in {pid for pids in trees.values() for pid in pids}}
        used = sum(used_by.values())
        if used <= limit:
            return
        largest = max(trees, key=lambda rank: sum(used_by[pid] for pid in trees[rank]))
        largest.over_limit = used
        if largest.alive:
            processes.send_group(largest.pid, signal.SIGKILL)
        for pid in trees[largest]:
            processes.send(pid, signal.SIGKILL)
        self._on_kill(largest)

    def _check_progress(self) -> None:
        state, stall_s = self._state, self._state.plan.stall_s
        if state.ending is not None or stall_s is None:
            return
        for rank in state.ranks:
            rank.read_step(state.path("steps", str(rank.rank)))
        alive = [rank for rank in state.ranks if rank.alive]
        if state.plan.starter == "mpirun":  # one log for all: a word of any is a word of the node
            alive = sorted(alive, key=lambda rank: rank.silent_s())[:1]
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
