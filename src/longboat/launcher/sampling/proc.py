"""Processor, memory, disk and network, of process trees and of the machine, from /proc. Zeros where there is none."""

from __future__ import annotations

import os
import time

from ..node import processes
from ..node.jsonfiles import read_bytes

_TICKS = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # of /proc/PID/stat, counted after the command


class TreeMeter:
    """Use of a rank's process tree since the last look."""

    def __init__(self, began: float) -> None:
        """`began`: when the tree was started, of `time.monotonic`."""
        self._seen: dict[int, tuple[int, int, int]] = {}
        self._at = began

    def measure(self, pids: list[int]) -> tuple[float, int, float, float]:
        """Busy cores, resident bytes, bytes read and written per second."""
        now = time.monotonic()
        seen = {pid: _counters(pid) for pid in pids}
        past_s = max(now - self._at, 1e-3)
        used = [0, 0, 0]
        for pid, counters in seen.items():
            before = self._seen.get(pid, (0, 0, 0))  # a process that is new has used all of it since
            for at in range(3):
                used[at] += max(0, counters[at] - before[at])
        self._seen, self._at = seen, now
        memory = processes.rss(pids)
        return round(used[0] / _TICKS / past_s, 3), memory, round(used[1] / past_s), round(used[2] / past_s)


def _counters(pid: int) -> tuple[int, int, int]:
    """Ticks of the processor, bytes read from and written to disks."""
    fields = processes.stat_fields(pid)
    ticks = int(fields[_UTIME]) + int(fields[_STIME]) if len(fields) > _STIME else 0
    read = written = 0
    try:
        for line in read_bytes("/proc/%d/io" % pid).splitlines():
            name, _, value = line.partition(b": ")
            if name == b"read_bytes":
                read = int(value)
            elif name == b"write_bytes":
                written = int(value)
    except (OSError, ValueError):
        pass
    return ticks, read, written


class MachineMeter:
    """Use of the machine since the last look; in a container the network is that of the container."""

    def __init__(self) -> None:
        self._before: list[int] | None = None
        self._at = time.monotonic()

    def measure(self) -> list[float | None]:
        """Busy cores, used bytes of memory, bytes per second: network in and out, disks read and written."""
        now, counters = time.monotonic(), [_busy_ticks(), *_network(), *_disks()]
        rates: list[float | None] = [None] * 5
        if self._before is not None:
            past_s = max(now - self._at, 1e-3)
            rates = [max(0, new - old) / past_s for new, old in zip(counters, self._before)]
        self._before, self._at = counters, now
        cores = round(rates[0] / _TICKS, 3) if rates[0] is not None else None
        return [cores, _used_memory(), *(rate if rate is None else round(rate) for rate in rates[1:])]


def _busy_ticks() -> int:
    try:
        numbers = read_bytes("/proc/stat").split(b"\n", 1)[0].split()[1:9]
        return sum(int(number) for at, number in enumerate(numbers) if at not in (3, 4))  # idle, and waiting for disks
    except (OSError, ValueError):
        return 0


def _used_memory() -> int | None:
    try:
        fields = {line.split(b":")[0]: int(line.split()[1]) for line in read_bytes("/proc/meminfo").splitlines()[:5]}
        return (fields[b"MemTotal"] - fields[b"MemAvailable"]) * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return None


def _network() -> tuple[int, int]:
    """Bytes in and out, of all interfaces but the loopback."""
    received = sent = 0
    try:
        for line in read_bytes("/proc/net/dev").splitlines()[2:]:
            name, _, rest = line.partition(b":")
            numbers = rest.split()
            if name.strip() != b"lo" and len(numbers) > 8:
                received += int(numbers[0])
                sent += int(numbers[8])
    except (OSError, ValueError):
        pass
    return received, sent


def _disks() -> tuple[int, int]:
    """Bytes that the kernel has read from and written to block devices."""
    counts = {}
    try:
        for line in read_bytes("/proc/vmstat").splitlines():
            if line.startswith((b"pgpgin ", b"pgpgout ")):
                name, number = line.split()
                counts[name] = int(number) * 1024
    except (OSError, ValueError):
        pass
    return counts.get(b"pgpgin", 0), counts.get(b"pgpgout", 0)
