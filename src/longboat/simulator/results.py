"""Results of a replay, in figures. Values; the counting while it runs is `metrics`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from longboat.core.jobs import Value


class PolicyFigures(Value, frozen=True, omit_defaults=False):
    """One policy on one trace. From the first submission to the end of the last job."""

    gpu_hours_provisioned: float  # of every machine from its order to its removal
    gpu_hours_requested: float
    gpu_hours_held_by_partial_gangs: float  # GPUs of pods that wait for the rest of their gang
    gpu_hours_lost: float  # work since the last checkpoint when a job was evicted
    cost: float
    wait_p50_s: float | None  # from submission to the first start, all pods; None: nothing started
    wait_p99_s: float | None
    gang_wait_p99_s: float | None  # of jobs on more than one machine; None: there are none
    turnaround_mean_s: float | None  # from submission to the end, of jobs that finished
    training_evictions: int
    evictions: int  # of pods; every pod of a trace is a training's
    flaps: int  # machines removed and ordered again, of the same pool, within ten minutes
    decide_cpu_s: float
    jobs_finished: int


class GpuPoint(Value, frozen=True):
    """GPUs at one moment, valid until the next."""

    moment: float
    demand: int  # of jobs that run or wait
    running: int
    capacity: int  # of machines that are ordered, boot or are ready


class PolicyOutcome(Value, frozen=True):
    policy: str
    figures: PolicyFigures
    points: tuple[GpuPoint, ...] = ()
    longest_wait_s: float = 0.0
    unfinished: int = 0


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest rank: the smallest value that at least this share of all does not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]
