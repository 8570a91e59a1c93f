"""Tries settings of Longboat's own policy on a trace: what less waiting costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from longboat.autoscaler.model.snapshot import AutoscalerSettings, Pool
from longboat.core.jobs import Value
from longboat.simulator.comparing import simulate
from longboat.simulator.results import PolicyFigures
from longboat.simulator.traces import Trace
from longboat.simulator.world import USUAL, Conditions

IDLE_S = (0.0, 60.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)  # what is tried: from at once to an hour
SPARE = (0, 1, 2)  # more of them cost more than the waits that they save


class Trial(Value, frozen=True):
    idle_s: float
    spare: int
    figures: PolicyFigures
    is_best: bool = False  # no other trial is at most as dear and waits at most as long


def trials(
    trace: Trace,
    pools: Sequence[Pool],
    settings: AutoscalerSettings,
    conditions: Conditions = USUAL,
    interval_s: float = 10.0,
) -> Iterator[Trial]:
    """Run the trials one after the other; yields each when it is done."""
    for spare in SPARE:
        for idle_s in IDLE_S:
            tried = msgspec.structs.replace(settings, idle_s=idle_s, spare=spare)
            outcome = simulate(trace, pools, tried, "longboat", conditions, interval_s)
            yield Trial(idle_s=idle_s, spare=spare, figures=outcome.figures)


def marked(rated: Sequence[Trial]) -> list[Trial]:
    """Mark trials on the Pareto front: none is both cheaper and faster to start jobs."""
    return [
        msgspec.structs.replace(trial, is_best=not any(_dominates(other, trial) for other in rated)) for trial in rated
    ]


def _dominates(trial: Trial, other: Trial) -> bool:
    mine, theirs = _axes(trial), _axes(other)
    return mine != theirs and all(left <= right for left, right in zip(mine, theirs))


def _axes(trial: Trial) -> tuple[float, float]:
    return trial.figures.gpu_hours_provisioned, trial.figures.wait_p99_s or 0.0
