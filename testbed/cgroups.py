"""Control groups of a cluster's real nodes, for both versions of the kernel's interface.

A cluster's groups are all below `longboat-<cluster id>`. Not here: pods' own groups; those are the kubelet's.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from testbed.errors import TestbedError

ROOT = Path("/sys/fs/cgroup")
PREFIX = "longboat-"


def hierarchies(root: Path = ROOT) -> list[Path]:
    """Every tree of groups: the one of version 2, or each controller's of version 1.

    Beside the latter there may be one of version 2 without controllers; container runtimes make groups there, too.
    """
    if not root.exists():
        return []
    if (root / "cgroup.controllers").exists():
        return [root]
    trees = [entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink()]
    return sorted(tree for tree in trees if (tree / "cgroup.procs").exists())


def make(name: str, root: Path = ROOT) -> None:
    """Make the group in every tree, ready to have groups below it."""
    for tree in hierarchies(root):
        folder = tree
        if tree == root:
            enable_controllers(folder)
        for part in Path(name).parts:
            folder = folder / part
            folder.mkdir(exist_ok=True)
            if tree == root:
                enable_controllers(folder)
            inherit_cpuset(folder)


def enable_controllers(folder: Path) -> None:
    """Version 2: let children have every controller that is to be had."""
    for controller in (folder / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def inherit_cpuset(folder: Path) -> None:
    """Version 1: a new group may use no core at all until it is told which."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        own = folder / file
        with contextlib.suppress(OSError):
            if own.exists() and not own.read_text().strip():
                own.write_text((folder.parent / file).read_text())


def members(folder: Path) -> list[int]:
    pids = []
    for group in groups_of(folder):
        with contextlib.suppress(OSError):
            pids += [int(line) for line in (group / "cgroup.procs").read_text().split()]
    return pids


def groups_of(top: Path) -> list[Path]:
    """The group and all below it, the lowest first. One that its owner removes meanwhile is no error, as in a glob."""
    return [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]


def remove(name: str, *, root: Path = ROOT, within_s: float = 10.0) -> None:
    """Remove the group and all below it; the processes in it must have been ended."""
    deadline = time.monotonic() + within_s
    while True:
        left = [tree / name for tree in hierarchies(root) if (tree / name).exists()]
        for top in left:
            for folder in groups_of(top):
                with contextlib.suppress(OSError):
                    folder.rmdir()
        left = [folder for folder in left if folder.exists()]
        if not left:
            return
        if time.monotonic() > deadline:
            raise TestbedError(f"the control group {left[0]} cannot be removed: processes {members(left[0])}")
        time.sleep(0.05)


def present(root: Path = ROOT) -> set[str]:
    """Ids of the clusters that have groups on this machine."""
    return {entry.name.removeprefix(PREFIX) for tree in hierarchies(root) for entry in tree.glob(f"{PREFIX}*")}
