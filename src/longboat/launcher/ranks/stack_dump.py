"""The dump of Python stacks of every rank of a hung node. The ranks end afterwards; the caller sees to that.

A rank that imported `longboat` prints its stacks on SIGUSR1 and lives on. Any other Python process prints them on
SIGABRT (PYTHONFAULTHANDLER=1) and dies. Stacks do not say whose they are, and all processes of a rank print into one
log: one process is asked at a time, the main one first, and the next one only when the kernel says that the one before
is finished: it is dead, or out of its signal handler.
"""

from __future__ import annotations

import os
import time

from ..node import processes
from ..node.jsonfiles import read_bytes
from ..vendored import load
from .ranks import Rank
from .state import LauncherState

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Callable
else:
    import _signal as signal

LOOK_S = 0.05  # a process prints its stacks within milliseconds
QUIET_S = 0.25
"""Silence after which a process that lives on has told all, where the kernel does not say so."""
SILENT_S = 2.0
"""A process that has neither written nor died for so long cannot: it hangs in the kernel, or ignores the signal."""
ALL_S = 10.0
"""For all processes of a rank together: the ranks are hung, and whoever asked waits to end them."""
PROCESSES_MAX = 8  # data loaders hang alike: the first few show it
_READ_MAX = 1 << 20  # a few hundred threads of one process


class _RankDump:
    """A stack dump of one rank: its processes, one after the other."""

    def __init__(self, state: LauncherState, rank: Rank) -> None:
        self._state = state
        self._rank = rank
        pids = [pid for pid in _tree(state, rank) if processes.is_python(pid) and not _is_ours(pid)]
        self._together = state.plan.starter in ("mpirun", "follower")  # else mpirun ends the rest after the first
        self._waiting = pids if self._together else pids[:PROCESSES_MAX]
        self._main = self._waiting[0] if self._waiting else 0
        self._pid = 0
        self._asked = 0.0
        self._is_listener = False  # it prints and lives on
        self._holding: set[str] = set()  # its threads that kept SIGUSR1 blocked before it was asked
        self._begin = 0  # where the stacks of the process being asked begin in the log
        self._quiet_since = 0.0
        self._seen = 0
        self._sections: list[str] = []
        self.done = not self._waiting

    def look(self, now: float) -> None:
        """Ask the next process when the last one has finished."""
        if self.done:
            return
        self._state.catch_up(self._rank.err)
        if self._rank.err.end != self._seen:
            self._seen, self._quiet_since = self._rank.err.end, now
        if self._pid:
            if not self._is_finished(now):
                return
            self._collect()
        if self._waiting:
            self._ask(self._waiting.pop(0), now)
            while self._together and self._waiting:
                self._signal(self._waiting.pop(0))
        else:
            self.finish()

    def _is_finished(self, now: float) -> bool:
        """Whether a dump is complete. Silence is no proof: a busy machine may pause between two lines."""
        printed_all = self._seen > self._begin and now - self._quiet_since > QUIET_S
        if self._together:
            return printed_all or now - self._asked > SILENT_S
        if processes.stat_fields(self._pid)[:1] in ([], ["Z"]):
            return True
        if not self._is_listener:
            return now - self._quiet_since > SILENT_S
        in_handler = processes.threads_holding(self._pid, signal.SIGUSR1) - self._holding
        return (printed_all and not in_handler) or now - self._asked > SILENT_S

    def finish(self) -> None:
        if self._pid:
            self._collect()
        self.done = True
        self._rank.stacks = "\n".join(self._sections)

    def _ask(self, pid: int, now: float) -> None:
        self._pid, self._asked, self._quiet_since = pid, now, now
        self._begin = self._seen = self._rank.err.end
        if processes.stat_fields(pid)[:1] == ["T"]:
            self._sections.append("# process %d is stopped (SIGSTOP or a debugger)" % pid)
        self._signal(pid)

    def _signal(self, pid: int) -> None:
        self._is_listener = pid in _listeners(self._state, self._rank)
        if self._is_listener:
            self._holding = processes.threads_holding(pid, signal.SIGUSR1)
            processes.send(pid, signal.SIGUSR1)
        else:
            _forbid_core(pid)
            processes.send(pid, signal.SIGABRT)
        processes.send(pid, signal.SIGCONT)

    def _collect(self) -> None:
        self._state.catch_up(self._rank.err)
        data = self._rank.err.read(self._begin, _READ_MAX)
        text = load("core.stacks").cut(data.decode("utf-8", "replace"))
        if text and self._pid != self._main:
            text = "# process %d\n%s" % (self._pid, text)
        if text:
            self._sections.append(text)
        self._pid = 0


def take_stacks(state: LauncherState, on_done: Callable[[], None]) -> None:
    """Dump the stacks of all ranks in parallel; `on_done` is called when all have answered or the time is up."""
    if state.plan.starter == "torchrun":
        for pid in state.running:  # it must not end the other workers when the first one dies; `terminate` wakes it
            processes.send_group(pid, signal.SIGSTOP)
    dumps = [_RankDump(state, rank) for rank in state.ranks if rank.alive]
    until = time.monotonic() + ALL_S

    def look() -> None:
        now = time.monotonic()
        for dump in dumps:
            dump.look(now)
            if now > until and not dump.done:
                dump.finish()
        if all(dump.done for dump in dumps):
            on_done()
        else:
            state.loop.after("dump", LOOK_S, look)

    look()


def _tree(state: LauncherState, rank: Rank) -> list[int]:
    """Processes of a rank. Under mpirun they cannot be told apart: all belong to the node's first rank."""
    if state.plan.starter in ("mpirun", "follower"):
        return processes.tree(os.getpid())[1:] if rank is state.ranks[0] else []
    return processes.tree(rank.pid) if rank.pid else []


def _is_ours(pid: int) -> bool:
    """Whether a process is a stand-in or an agent of ours."""
    try:
        words = read_bytes("/proc/%d/cmdline" % pid).split(b"\0")[:5]
    except OSError:
        return True
    return words[1:3] == [b"-I", b"-S"] and words[4:5] in ([b"--standin"], [b"--agent"])


def _listeners(state: LauncherState, rank: Rank) -> list[int]:
    """Processes of the rank that dump their stacks on SIGUSR1."""
    try:
        return [int(pid) for pid in read_bytes(state.path("steps", "%d.usr1" % rank.rank)).split()]
    except (OSError, ValueError):
        return []


def _forbid_core(pid: int) -> None:
    """Set the core limit to 0: a training's core file would fill the disk."""
    try:
        import resource

        resource.prlimit(pid, resource.RLIMIT_CORE, (0, resource.prlimit(pid, resource.RLIMIT_CORE)[1]))
    except (ImportError, AttributeError, OSError, ValueError):
        pass
