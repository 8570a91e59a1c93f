"""Traces made up from a seed: the same seed, the same trace. No data of others: `philly` follows published statistics.

Of the Philly trace (Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", 2019)
it keeps the mix of sizes (93 % of jobs on one GPU), the median duration (1,144 s), the share of GPU-hours of 8-GPU jobs
(48 %), the load (a peak near 156 machines of 8 GPUs) and the daily wave, all of them roughly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from longboat.core.errors import UsageError
from longboat.simulator.traces import Trace, TraceJob, trace_of

START = 1_506_816_000.0  # 2017-10-01 00:00 UTC
HOUR, DAY = 3600.0, 86400.0
PHILLY_JOBS = 82_247  # in the published trace, those with GPUs
PHILLY_SPAN_S = 80 * DAY  # in which so many jobs came: the load, however few of them are made

# GPUs, share of jobs, median duration, mean duration; durations are log-normal.
PHILLY_MIX = (
    (1, 0.9317, 1040.0, 8_301.0),
    (2, 0.0221, 400.0, 30_942.0),
    (4, 0.0227, 17_431.0, 78_762.0),
    (8, 0.0200, 23_683.0, 145_000.0),
    (16, 0.0026, 52_548.0, 126_997.0),
    (32, 0.0009, 14_262.0, 29_920.0),
)
LONGEST_S = 40 * DAY  # half of that: a log-normal tail has no end


def _lasts(chance: random.Random, median: float, mean: float) -> float:
    sigma = math.sqrt(2 * math.log(mean / median))
    return min(max(round(median * math.exp(sigma * chance.gauss(0.0, 1.0)), 1), 1.0), LONGEST_S)


def philly(chance: random.Random, jobs: int) -> list[TraceJob]:
    """The load stays that of the whole trace: fewer jobs come in a shorter time."""
    span = PHILLY_SPAN_S * jobs / PHILLY_JOBS
    shares = [share for _, share, _, _ in PHILLY_MIX]
    moments: list[float] = []
    while len(moments) < jobs:
        # A busy month in the first half, and twice the jobs in the morning that come in the evening.
        moment = chance.random() * span
        day = 0.3 + 1.3 * math.exp(-(((moment / span - 0.35) / 0.15) ** 2))
        hour = 1.0 + 0.35 * math.sin(2 * math.pi * (moment % DAY) / DAY)
        if chance.random() < day * hour / (1.6 * 1.35):
            moments.append(moment)
    trace_jobs = []
    for number, moment in enumerate(sorted(moments)):
        gpus, _, median, mean = chance.choices(PHILLY_MIX, shares)[0]
        trace_jobs.append(_job(number, moment, _lasts(chance, median, mean), gpus))
    return trace_jobs


def bursts(chance: random.Random, jobs: int) -> list[TraceJob]:
    """Quiet, and now and then dozens of jobs at once; every tenth burst is a gang of 32 GPUs."""
    trace_jobs: list[TraceJob] = []
    moment = 0.0
    while len(trace_jobs) < jobs:
        moment += chance.expovariate(1 / (2 * HOUR))
        if chance.random() < 0.1:
            trace_jobs.append(_job(len(trace_jobs), moment, _lasts(chance, 3600.0, 7200.0), 32))
            continue
        for _ in range(min(chance.randint(10, 60), jobs - len(trace_jobs))):
            later = moment + chance.random() * 30
            trace_jobs.append(
                _job(len(trace_jobs), later, _lasts(chance, 900.0, 1500.0), chance.choice((1, 1, 1, 2, 4, 8)))
            )
    return trace_jobs


def diurnal(chance: random.Random, jobs: int) -> list[TraceJob]:
    """Office hours: ten times as many jobs at noon as at midnight, hardly any at the weekend."""
    trace_jobs: list[TraceJob] = []
    moment = 0.0
    while len(trace_jobs) < jobs:
        moment += chance.expovariate(1 / 90.0)
        wave = 0.55 - 0.45 * math.cos(2 * math.pi * (moment % DAY) / DAY)
        weekend = 0.2 if int(moment // DAY) % 7 >= 5 else 1.0
        if chance.random() < wave * weekend:
            gpus = chance.choices((1, 2, 4, 8, 16), (60, 15, 10, 12, 3))[0]
            trace_jobs.append(_job(len(trace_jobs), moment, _lasts(chance, 1800.0, 5400.0), gpus))
    return trace_jobs


def sweeps(chance: random.Random, jobs: int) -> list[TraceJob]:
    """Hyper-parameter sweeps: a hundred alike jobs at once, of which many stop early."""
    trace_jobs: list[TraceJob] = []
    moment = 0.0
    while len(trace_jobs) < jobs:
        moment += chance.expovariate(1 / (6 * HOUR))
        gpus = chance.choices((1, 2, 8), (70, 20, 10))[0]
        whole = _lasts(chance, 5400.0, 9000.0)
        for _ in range(min(chance.randint(20, 150), jobs - len(trace_jobs))):
            lasts = whole if chance.random() < 0.3 else max(whole * chance.random() * 0.4, 30.0)
            trace_jobs.append(_job(len(trace_jobs), moment + chance.random() * 5, round(lasts, 1), gpus))
    return trace_jobs


def even(chance: random.Random, jobs: int) -> list[TraceJob]:
    """A team's afternoon: one job after the other, two minutes apart, sizes as in a shared cluster."""
    moments = [120.0 * number + chance.random() * 60 for number in range(jobs)]
    return [_of_a_team(chance, number, moment) for number, moment in enumerate(moments)]


def waves(chance: random.Random, jobs: int) -> list[TraceJob]:
    """The same jobs in two waves of 40 minutes, an hour apart."""
    moments = sorted(chance.random() * 2400 + (6000.0 if number % 2 else 0.0) for number in range(jobs))
    return [_of_a_team(chance, number, moment) for number, moment in enumerate(moments)]


# Durations of the Philly trace, with more of the large jobs: of 72 jobs it would have one.
TEAM_MIX = ((1, 60), (2, 12), (4, 10), (8, 12), (16, 5), (32, 1))
TEAM_LONGEST_S = 4 * HOUR  # of an afternoon


def _of_a_team(chance: random.Random, number: int, moment: float) -> TraceJob:
    gpus = chance.choices([size for size, _ in TEAM_MIX], [share for _, share in TEAM_MIX])[0]
    return _job(number, moment, min(_lasts(chance, 1144.0, 2500.0), TEAM_LONGEST_S), gpus)


def _job(number: int, moment: float, lasts: float, gpus: int) -> TraceJob:
    return TraceJob(name=f"g-{number}", submitted=START + round(moment, 1), duration=lasts, gpus=gpus)


GENERATORS: dict[str, Callable[[random.Random, int], list[TraceJob]]] = {
    "philly": philly,
    "bursts": bursts,
    "diurnal": diurnal,
    "sweeps": sweeps,
    "even": even,
    "waves": waves,
}


def generate(kind: str, *, seed: int, jobs: int) -> Trace:
    make = GENERATORS.get(kind)
    if make is None:
        raise UsageError(f"no such generator: {kind}", hint=f"one of {', '.join(GENERATORS)}")
    if jobs < 1:
        raise UsageError("a trace has at least one job", hint="--jobs 1000")
    return trace_of(f"generate:{kind}", make(random.Random(f"{kind}-{seed}"), jobs))
