"""Monotonic clock that also counts the time a machine was suspended. For leases and for the age of watched data."""

from __future__ import annotations

import time


def clock() -> float:
    """Seconds that also pass while the machine sleeps: a laptop that wakes up must not think that it still holds."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)
