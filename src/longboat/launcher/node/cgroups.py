"""The control group this node lives in: its memory limit, how much was used, how often the kernel killed. v1 and v2.

In a container the group's files are at the root of the mount; outside they are below it, under the group's own name.
"""

from __future__ import annotations

from .jsonfiles import read_bytes

ROOT = "/sys/fs/cgroup"
_NO_LIMIT = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2**63."""


class CgroupFiles:
    """File names of one cgroup version."""

    __slots__ = ("events", "limit", "peak")

    def __init__(self, folder: str, is_v1: bool) -> None:
        self.limit = folder + ("/memory.limit_in_bytes" if is_v1 else "/memory.max")
        self.peak = folder + ("/memory.max_usage_in_bytes" if is_v1 else "/memory.peak")
        self.events = folder + ("/memory.oom_control" if is_v1 else "/memory.events")


def find(own: str = "/proc/self/cgroup", root: str = ROOT) -> CgroupFiles | None:
    """The files of this process's cgroup; None where it has none."""
    try:
        lines = read_bytes(own).decode("ascii", "replace").splitlines()
    except OSError:
        return None
    candidates = []
    for line in lines:
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        path = path.rstrip("/")
        if "memory" in controllers.split(","):
            candidates += [(root + "/memory" + path, True), (root + "/memory", True)]
        elif controllers == "":
            candidates += [(root + path, False), (root, False)]
    for folder, is_v1 in sorted(candidates, key=lambda each: not each[1]):
        files = CgroupFiles(folder, is_v1)
        try:
            read_bytes(files.events)
            return files
        except OSError:
            continue
    return None


def kills(files: CgroupFiles | None) -> int:
    """How often the OOM killer has acted in this cgroup."""
    try:
        for line in read_bytes(files.events).splitlines() if files else []:
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return 0


def limit(files: CgroupFiles | None) -> int | None:
    """The memory limit in bytes; None: unlimited."""
    number = _number(files.limit) if files else None
    return number if number is not None and number < _NO_LIMIT else None


def peak(files: CgroupFiles | None) -> int | None:
    """Peak memory use in bytes, page cache included."""
    return _number(files.peak) if files else None


def _number(path: str) -> int | None:
    try:
        text = read_bytes(path).strip()
        return int(text) if text.isdigit() else None
    except (OSError, ValueError):
        return None
