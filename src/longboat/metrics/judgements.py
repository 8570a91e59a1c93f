"""Judgements about a run from what its ranks report: pace, idle and throttled GPUs, stragglers, a loss that is not a
number. Pure: a status in, a status with its figures and findings out.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from longboat.core.resources import show_quantity
from longboat.core.runs import RankStatus, RunStatus
from longboat.core.times import show_age
from longboat.core.words import counted, listing, three_digits

IDLE_S = 300.0
"""A GPU that computes nothing for less waits for an evaluation, a checkpoint or the first batch."""
STRAGGLER = 0.8
"""Of the median pace: ranks differ by a few percent always, and what differs more holds the others up."""
STRAGGLER_STEPS = 20
"""Fewer steps may be a slow batch."""
THROTTLED_S = 30.0
"""A GPU slows down for moments without anything being wrong."""
STARVED_PERCENT = 30.0  # a GPU that computes most of the time is far above
STARVED_STEPS = 50
"""After so many steps compiling and warming up are over."""
DATA_METRIC = "data_s"
DATA_SHARE = 0.3
"""Loaders that are a little late now and then cost less than the work on them would."""
MOST_NAMED = 4  # in one sentence; `status` shows every rank


def with_figures(run: RunStatus, now: float) -> RunStatus:
    """A run in full with its pace, GPU-hours and findings."""
    furthest = max(
        (rank for rank in run.ranks if rank.step is not None),
        key=lambda rank: (rank.step or 0, -rank.rank),
        default=None,
    )
    pace = furthest.usage.steps_per_s if furthest is not None else None
    return msgspec.structs.replace(
        run,
        steps_per_s=pace,
        step_s=1 / pace if pace else None,
        data_share=data_share(run.ranks),
        gpu_hours=gpu_hours(run, now),
        findings=(*run.findings, *findings(run)),
    )


def data_share(ranks: Sequence[RankStatus]) -> float | None:
    """Share of their time per step that ranks wait for data, as they report it (`data_s`, seconds of a step)."""
    shares = [
        rank.metrics[DATA_METRIC] * rank.usage.steps_per_s
        for rank in ranks
        if rank.usage.steps_per_s and rank.metrics.get(DATA_METRIC, -1.0) >= 0
    ]
    return min(1.0, sum(shares) / len(shares)) if shares else None


def gpu_hours(run: RunStatus, now: float) -> float | None:
    """GPUs times the hours that attempts have had them; None for a run without GPUs."""
    if not run.gpus:
        return None
    spans = [
        (run.gpus if attempt.gpus is None else attempt.gpus)
        * max(0.0, (attempt.ended or run.ended or now) - attempt.started)
        for attempt in run.attempts
    ]
    return round(sum(spans) / 3600, 4)


def findings(run: RunStatus) -> tuple[str, ...]:
    """What somebody should look at, with the figures that show it."""
    bad = _not_finite(run.ranks)
    if run.phase != "running":
        return tuple(bad)
    alive = [rank for rank in run.ranks if rank.alive]
    idle = [rank for rank in alive if (rank.usage.gpu_idle_s or 0.0) >= IDLE_S]
    return (
        *bad,
        *_idle(idle, len(alive)),
        *stragglers(alive),
        *_throttled(alive),
        *_starved(alive, idle),
        *_late_data(alive),
    )


def _not_finite(ranks: Sequence[RankStatus]) -> list[str]:
    first: dict[str, tuple[int, int]] = {}
    for rank in ranks:
        for name, step in rank.usage.not_finite.items():
            first[name] = min(first.get(name, (step, rank.rank)), (step, rank.rank))
    return [
        f"{name} was not a finite number at step {step} (rank {rank})" for name, (step, rank) in sorted(first.items())
    ]


def _idle(idle: Sequence[RankStatus], of: int) -> list[str]:
    if not idle:
        return []
    longest = max(rank.usage.gpu_idle_s or 0.0 for rank in idle)
    held = sum(rank.usage.gpu_memory or 0.0 for rank in idle)
    ranks = f"rank {idle[0].rank}" if len(idle) == 1 else f"{counted(len(idle), 'rank')} of {of} ({_named(idle)})"
    memory = f", with {show_quantity(round(held))} of their memory in use" if held else ""
    return [f"the GPUs of {ranks} compute nothing for {show_age(longest)}{memory}"]


def stragglers(ranks: Sequence[RankStatus]) -> list[str]:
    """Ranks that step more slowly than the median of their role, over many steps."""
    words = []
    for role in dict.fromkeys(rank.role for rank in ranks):
        paced = [rank for rank in ranks if rank.role == role and rank.usage.steps_per_s]
        if len(paced) < 2:
            continue
        paces = sorted(rank.usage.steps_per_s or 0.0 for rank in paced)
        median = paces[len(paces) // 2]  # of two the faster one
        for rank in paced:
            pace, steps = rank.usage.steps_per_s or 0.0, rank.usage.pace_steps or 0
            if pace < STRAGGLER * median and steps >= STRAGGLER_STEPS:
                words.append(
                    f"rank {rank.rank} on {rank.node} is slow: {three_digits(pace)} steps/s over {steps:g} steps, "
                    f"the median is {three_digits(median)}"
                )
    more = len(words) - MOST_NAMED
    return [*words[:MOST_NAMED], f"and {counted(more, 'more slow rank')}"] if more > 0 else words


def _throttled(ranks: Sequence[RankStatus]) -> list[str]:
    slowed = [rank for rank in ranks if (rank.usage.gpu_throttled_s or 0.0) >= THROTTLED_S]
    if not slowed:
        return []
    longest = max(rank.usage.gpu_throttled_s or 0.0 for rank in slowed)
    degrees = max((rank.usage.gpu_temperature or 0.0 for rank in slowed), default=0.0)
    heat = f", now at {degrees:.0f} degrees Celsius" if degrees else ""
    return [
        f"GPUs of {_named(slowed)} slowed themselves down, by heat or power brake, for up to {show_age(longest)}{heat}"
    ]


def _starved(ranks: Sequence[RankStatus], idle: Sequence[RankStatus]) -> list[str]:
    starved = [
        rank
        for rank in ranks
        if rank not in idle
        and rank.usage.gpu is not None
        and rank.usage.gpu < STARVED_PERCENT
        and (rank.usage.pace_steps or 0) >= STARVED_STEPS
    ]
    if not starved:
        return []
    use = sum(rank.usage.gpu or 0.0 for rank in starved) / len(starved)
    cores = sum(rank.usage.cpu or 0.0 for rank in starved) / len(starved)
    return [
        f"the GPUs of {_named(starved)} wait most of the time: {use:.0f} % used, with {cores:.1f} cores busy "
        "in each rank; often the data loader"
    ]


def _late_data(ranks: Sequence[RankStatus]) -> list[str]:
    steady = [rank for rank in ranks if (rank.usage.pace_steps or 0) >= STARVED_STEPS]
    share = data_share(steady)
    if share is None or share < DATA_SHARE:
        return []
    return [f"{share:.0%} of the time per step is spent waiting for data: more loader processes, or a nearer disk"]


def _named(ranks: Sequence[RankStatus]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + listing([str(rank.rank) for rank in ranks], MOST_NAMED)
