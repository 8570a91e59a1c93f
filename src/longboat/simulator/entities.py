"""Entities of the simulated world: machines, jobs and their pods. Mutable state; the rules are in `world`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from longboat.autoscaler.model.snapshot import Pool
from longboat.simulator.traces import TraceJob


class SimulatedMachine:
    __slots__ = (
        "name", "pool", "gpus", "free", "asked", "ready_at", "is_ready", "joins", "zone", "whom", "tasks",
        "cordoned_at", "idle_since", "seen",
    )  # fmt: skip

    def __init__(self, name: str, pool: Pool, asked: float, zone: str | None = None) -> None:
        self.name, self.pool, self.asked, self.zone = name, pool, asked, zone
        self.gpus = self.free = gpus_of(pool)
        self.ready_at = asked + pool.boot_s
        self.is_ready = False
        self.joins = True  # False: it will never become a node
        self.whom: str | None = None
        self.tasks: dict[SimulatedPod, None] = {}
        self.cordoned_at: float | None = None
        self.idle_since: float | None = None
        self.seen: Any = None  # what a policy keeps about it

    @property
    def used(self) -> int:
        return self.gpus - self.free


class SimulatedPod:
    """One pod of a job."""

    __slots__ = ("job", "name", "gpus", "machine", "bound_at", "seen")

    def __init__(self, job: SimulatedJob, name: str, gpus: int) -> None:
        self.job, self.name, self.gpus = job, name, gpus
        self.machine: SimulatedMachine | None = None
        self.bound_at = 0.0
        self.seen: Any = None


class SimulatedJob:
    __slots__ = (
        "trace", "name", "sizes", "gpus", "tasks", "created", "left", "started", "has_run", "round", "grows_at"
    )  # fmt: skip

    def __init__(self, trace: TraceJob, name: str, largest: int, sizes: tuple[int, ...] = ()) -> None:
        self.trace, self.name = trace, name
        self.sizes = sizes or (trace.gpus,)  # GPUs that it may have together, the smallest first
        self.gpus = 0
        self.tasks: list[SimulatedPod] = []
        self.resize(self.sizes[0], largest)
        self.grows_at: float | None = None
        self.created = trace.submitted  # of its pods: later than the job's if they were evicted
        self.left = trace.duration  # with all its GPUs; with half of them it takes twice as long
        self.started: float | None = None
        self.has_run = False
        self.round = 0  # how often it was started: ends of earlier rounds are void

    def resize(self, gpus: int, largest: int) -> None:
        """None of its pods has a place."""
        self.gpus = gpus
        self.tasks = pods_of(self, gpus, largest)

    @property
    def speed(self) -> float:
        return self.gpus / self.trace.gpus

    @property
    def is_gang(self) -> bool:
        return len(self.tasks) > 1


def pods_of(job: SimulatedJob, gpus: int, largest: int) -> list[SimulatedPod]:
    """Its pods with so many GPUs together."""
    return [SimulatedPod(job, f"{job.name}-{index}", each) for index, each in enumerate(shares(gpus, largest))]


def growth_of(job: SimulatedJob, largest: int) -> list[int]:
    """GPUs of each pod that its largest size has and it has not."""
    missing = Counter(shares(job.sizes[-1], largest))
    missing.subtract(task.gpus for task in job.tasks)
    return sorted(missing.elements())


def elastic_sizes(gpus: int, share: float, chance: float) -> tuple[int, ...]:
    """The sizes of a job: of an elastic one all of its GPUs, half and a quarter of them; at least one."""
    if gpus < 2 or chance >= share:
        return (gpus,)
    return tuple(sorted({max(1, gpus // 4), max(1, gpus // 2), gpus}))


def shares(gpus: int, largest: int) -> list[int]:
    """GPUs of each pod: as few machines as possible, as evenly as possible."""
    pods = -(-gpus // largest)
    each, more = divmod(gpus, pods)
    return [each + (index < more) for index in range(pods)]


def gpus_of(pool: Pool) -> int:
    return pool.machine.has(pool.gpu_resource)
