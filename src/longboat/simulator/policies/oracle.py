"""The oracle: a lower bound on machines, not a policy that could be run.

It knows every job beforehand, so that each starts the moment it is submitted on machines that have just become ready.
It pays for no boot and no idle machine, and moves running pods for free, so that nothing is ever fragmented: at each
moment it has the fewest machines that hold the GPUs in use, sum of GPUs divided by those of a machine and rounded up.

Nobody who lets no job wait can need fewer GPU-hours. Who lets jobs wait can, in theory: by at most as much as
`lower_bound` with that longest wait allows. Below the GPU-hours requested nobody can go.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from longboat.autoscaler.model.snapshot import Pool
from longboat.simulator.entities import gpus_of, shares
from longboat.simulator.metrics import HOUR, PolicyMetrics
from longboat.simulator.results import PolicyOutcome
from longboat.simulator.traces import Trace
from longboat.simulator.world import gpu_pools

NAME = "oracle"


def oracle(trace: Trace, pools: Sequence[Pool]) -> PolicyOutcome:
    tally = PolicyMetrics()
    with_gpus = gpu_pools(pools)
    step = math.gcd(*(gpus_of(pool) for pool in with_gpus))
    price = min(pool.price / gpus_of(pool) for pool in with_gpus)  # per GPU and hour
    largest = max(gpus_of(pool) for pool in with_gpus)
    ends: list[tuple[float, int]] = []
    last = trace.jobs[0].submitted

    def pass_to(moment: float) -> None:
        nonlocal last
        tally.charge(tally.capacity, price * tally.capacity, moment - last)
        last = moment

    def change(gpus: int, moment: float) -> None:
        tally.demand += gpus
        tally.running = tally.demand
        tally.capacity = -(-tally.demand // step) * step
        tally.point(moment)

    for job in (*trace.jobs, None):
        while ends and (job is None or ends[0][0] <= job.submitted):
            moment, gpus = heapq.heappop(ends)
            pass_to(moment)
            change(-gpus, moment)
            tally.finished += 1
        if job is not None:
            pass_to(job.submitted)
            change(job.gpus, job.submitted)
            heapq.heappush(ends, (job.submitted + job.duration, job.gpus))
            tally.requested += job.gpus * job.duration
            tally.started(0.0, is_gang=len(shares(job.gpus, largest)) > 1)
    return PolicyOutcome(policy=NAME, figures=tally.figures(), points=tuple(tally.points))


def lower_bound(trace: Trace, pools: Sequence[Pool], longest_wait_s: float) -> float:
    """Lower bound on GPU-hours of any policy that starts every job within this time and evicts none.

    A job that lasts longer than that runs for certain from the latest start to the earliest end; the machines for what
    runs for certain, rounded up, are needed, and all the GPU-hours requested.
    """
    with_gpus = gpu_pools(pools)
    step = math.gcd(*(gpus_of(pool) for pool in with_gpus))
    moments: list[tuple[float, int]] = []
    for job in trace.jobs:
        if job.duration > longest_wait_s:
            moments += [(job.submitted + longest_wait_s, job.gpus), (job.submitted + job.duration, -job.gpus)]
    last = total = 0.0
    gpus = 0
    for moment, change in sorted(moments):
        total += -(-gpus // step) * step * (moment - last) if gpus else 0.0
        last = moment
        gpus += change
    return max(total, trace.gpu_seconds) / HOUR
