"""The resources of this machine: CPUs, memory, shared memory, disk, GPUs. Observes only."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from longboat.core.jobs import Value


class Gpu(Value, frozen=True):
    id: str  # UUID, or the id stated in LONGBOAT_GPUS
    index: int
    type: str | None = None
    memory: int | None = None  # bytes
    is_stated: bool = False  # stated by LONGBOAT_GPUS, unknown to NVML
    minor: int | None = None  # of its device file; None: not known


class LocalMachine(Value, frozen=True):
    cpus: float
    memory: int
    shm: int | None
    disk: int  # free bytes where the runs are
    gpus: tuple[Gpu, ...]


KNOWN_S = 60.0
"""GPUs come and go with the driver or with the machine: not while a run waits for its turn."""

_seen: list[tuple[float, tuple[Gpu, ...]]] = []


def observe_machine(home: Path, environment: Mapping[str, str], *, with_gpus: bool = True) -> LocalMachine:
    """`with_gpus=False`: of a job that asks for none; finding them takes its time."""
    return LocalMachine(
        cpus=float(_cpus()),
        memory=_memory(),
        shm=_total("/dev/shm"),
        disk=_free(home),
        gpus=observe_gpus(environment) if with_gpus else (),
    )


def observe_gpus(environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """GPUs by NVML, narrowed or stated by LONGBOAT_GPUS (ids, indexes or UUIDs; empty means none)."""
    stated = environment.get("LONGBOAT_GPUS")
    gpus = _nvml_gpus() if stated is None or stated.strip() else ()
    if stated is None:
        return gpus
    chosen: list[Gpu] = []
    for position, name in enumerate(dict.fromkeys(part.strip() for part in stated.split(",") if part.strip())):
        real = next((gpu for gpu in gpus if name in (gpu.id, str(gpu.index))), None)
        chosen.append(real or Gpu(id=name, index=position, is_stated=True))
    return tuple(chosen)


def _nvml_gpus() -> tuple[Gpu, ...]:
    """As they were found within the last moments: a supervisor asks often, and one that was forked has the answer of
    whoever submitted."""
    from longboat.engines.local.queue.nvml import list_gpus

    if _seen and time.monotonic() - _seen[0][0] < KNOWN_S:
        return _seen[0][1]
    gpus = tuple(
        Gpu(id=gpu.uuid, index=gpu.number, type=gpu.name, memory=gpu.memory, minor=gpu.minor) for gpu in list_gpus()
    )
    _seen[:] = [(time.monotonic(), gpus)]
    return gpus


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = int(Path(path).read_text())
        except (OSError, ValueError):
            continue
        total = min(total, limit)
    return total


def _total(path: str) -> int | None:
    try:
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize
    except OSError:
        return None


def _free(path: Path) -> int:
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize
    except OSError:
        return 0
