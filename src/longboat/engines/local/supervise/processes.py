"""Processes of this machine: identity that survives PID re-use, trees, and everything that carries a run's mark.

How /proc is read is known to the launcher, which does the same for its ranks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

from longboat.bundles.durable import boot_id as boot_id
from longboat.core.jobs import Value
from longboat.launcher.node.processes import HAS_PROC, carriers, stat_fields, tree
from longboat.launcher.node.processes import become_subreaper as become_subreaper
from longboat.launcher.node.processes import start_ticks as start_ticks


class ProcessId(Value, frozen=True):
    """A process by pid, start time and boot: never mistaken for a later one with the same pid."""

    pid: int
    start_ticks: int | None = None
    boot_id: str | None = None


def identify(pid: int) -> ProcessId:
    return ProcessId(pid=pid, start_ticks=start_ticks(pid), boot_id=boot_id())


def is_alive(process: ProcessId) -> bool:
    """Whether that very process still runs (a zombie does not)."""
    if not HAS_PROC:
        try:
            os.kill(process.pid, 0)
        except OSError:
            return False
        return True
    if process.boot_id not in (None, boot_id()):
        return False
    fields = stat_fields(process.pid)
    return bool(fields) and fields[0] not in ("Z", "X") and process.start_ticks in (None, int(fields[19]))


def marked(uid: str, *, node: str | None = None, attempt: int | None = None) -> list[int]:
    """Pids of all live processes whose environment carries this run's mark. Linux only; elsewhere empty."""
    wanted = [b"LONGBOAT_RUN_UID=" + uid.encode()]
    if node is not None:
        wanted.append(b"LONGBOAT_NODE=" + node.encode())
    if attempt is not None:
        wanted.append(b"LONGBOAT_ATTEMPT=%d" % attempt)
    return carriers(wanted)


def descendants(root: int) -> list[int]:
    """All processes below this one, not itself. Zombies are left out: they cannot be killed, only reaped."""
    if not HAS_PROC:  # the `ps` that would tell is a child as well
        return []
    return [pid for pid in tree(root)[1:] if stat_fields(pid)[:1] != ["Z"]]


def kill_until_gone(find: Callable[[], Iterable[int]], *, timeout_s: float = 10.0) -> bool:
    """SIGKILL whatever `find` returns, again and again (trees fork), until it returns nothing and all of it is gone.

    A process whose parent dies first may not be found any more while it still takes its time to die.
    """
    deadline = time.monotonic() + timeout_s
    pause = 0.002
    killed: dict[int, ProcessId] = {}
    while True:
        pids = list(find())
        if not pids and not any(map(is_alive, killed.values())):
            return True
        for pid in pids:
            killed.setdefault(pid, identify(pid))
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


def reap() -> list[tuple[int, int]]:
    """Collect every child that has ended: (pid, wait status)."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))
