"""The one setting of the machine that clusters need changed: how many inotify instances a user may have.

A cluster takes some 40 of them, and the kernel's default is 128. It is raised for as long as anything of the testbed
runs, whoever started it, and then set back. Needs root; without, a cluster lives with what there is.
"""

from __future__ import annotations

import os
from pathlib import Path

from testbed import clusters, processes

LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
WANTED = 4096
KEPT = Path("/run/longboat-testbed-inotify")
"""The machine's own value, while ours holds. /run, as the setting itself, does not outlive the machine's next start."""


def may_change() -> bool:
    return os.geteuid() == 0 and LIMIT.exists()


def raise_limit() -> None:
    """Make room for further clusters."""
    if not may_change():
        return
    with clusters.machine_lock("settings"):
        value = int(LIMIT.read_text())
        if value < WANTED:
            if not KEPT.exists():
                KEPT.write_text(str(value))
            LIMIT.write_text(str(WANTED))


def restore_limit() -> None:
    """Set the machine's own value back, unless something of the testbed still runs."""
    if not may_change() or not KEPT.exists():
        return
    with clusters.machine_lock("settings"):
        if KEPT.exists() and not processes.marked():
            # A value that somebody else has set meanwhile is theirs.
            if int(LIMIT.read_text()) == WANTED:
                LIMIT.write_text(KEPT.read_text())
            KEPT.unlink()
