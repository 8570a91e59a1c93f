"""Processes of this machine: identity that survives PID re-use, trees, and everything that carries a run's mark."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

from longboat.bundles.durable import boot_id
from longboat.core.jobs import Value

__all__ = [
    "ProcessId", "become_subreaper", "boot_id", "descendants", "identify", "is_alive", "kill_until_gone", "marked",
    "reap", "start_ticks",
]  # fmt: skip

_LINUX = sys.platform.startswith("linux")


class ProcessId(Value, frozen=True):
    """A process by pid, start time and boot: never mistaken for a later one with the same pid."""

    pid: int
    start_ticks: int | None = None
    boot_id: str | None = None


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it is gone (or off Linux)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def identify(pid: int) -> ProcessId:
    return ProcessId(pid=pid, start_ticks=start_ticks(pid), boot_id=boot_id())


def is_alive(process: ProcessId) -> bool:
    """Whether that very process still runs (a zombie does not)."""
    if not _LINUX:
        try:
            os.kill(process.pid, 0)
        except OSError:
            return False
        return True
    if process.boot_id not in (None, boot_id()):
        return False
    try:
        with open(f"/proc/{process.pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return fields[0] not in (b"Z", b"X") and process.start_ticks in (None, int(fields[19]))


def marked(uid: str, *, node: str | None = None, attempt: int | None = None) -> list[int]:
    """Pids of all live processes whose environment carries this run's mark. Linux only; elsewhere empty."""
    if not _LINUX:
        return []
    wanted = [b"LONGBOAT_RUN_UID=" + uid.encode()]
    if node is not None:
        wanted.append(b"LONGBOAT_NODE=" + node.encode())
    if attempt is not None:
        wanted.append(b"LONGBOAT_ATTEMPT=%d" % attempt)
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        if all(item in variables for item in wanted):
            found.append(int(name))
    return found


def descendants(root: int) -> list[int]:
    """All processes below this one (not itself), by a walk over /proc."""
    if not _LINUX:
        return []
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if fields[0] != b"Z":
                    children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    pending = [root]
    while pending:
        below = children.get(pending.pop(), [])
        found.extend(below)
        pending.extend(below)
    return found


def kill_until_gone(find: Callable[[], Iterable[int]], *, timeout_s: float = 10.0) -> bool:
    """SIGKILL whatever `find` returns, again and again (trees fork), until it returns nothing."""
    deadline = time.monotonic() + timeout_s
    pause = 0.002
    while True:
        pids = list(find())
        if not pids:
            return True
        for pid in pids:
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


def become_subreaper() -> None:
    """Orphans of our launchers come to us instead of to init, so that we can end them. Linux only."""
    if not _LINUX:
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)
