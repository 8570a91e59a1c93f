"""Entities of the simulated world: machines, jobs and their pods. Mutable state; the rules are in `world`."""

from __future__ import annotations

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
    __slots__ = ("trace", "name", "tasks", "created", "left", "started", "has_run", "round")

    def __init__(self, trace: TraceJob, name: str, largest: int) -> None:
        self.trace, self.name = trace, name
        self.tasks = [
            SimulatedPod(self, f"{name}-{index}", gpus) for index, gpus in enumerate(shares(trace.gpus, largest))
        ]
        self.created = trace.submitted  # of its pods: later than the job's if they were evicted
        self.left = trace.duration
        self.started: float | None = None
        self.has_run = False
        self.round = 0  # how often it was started: ends of earlier rounds are void

    @property
    def is_gang(self) -> bool:
        return len(self.tasks) > 1


def shares(gpus: int, largest: int) -> list[int]:
    """GPUs of each pod: as few machines as possible, as evenly as possible."""
    pods = -(-gpus // largest)
    each, more = divmod(gpus, pods)
    return [each + (index < more) for index in range(pods)]


def gpus_of(pool: Pool) -> int:
    return pool.machine.has(pool.gpu_resource)
