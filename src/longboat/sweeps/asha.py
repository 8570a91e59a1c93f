"""Asynchronous successive halving: which running trials are stopped early. Pure.

A trial is compared at rungs: after `stop.steps` steps, `factor` times as many, and so on. At each rung the best one of
`factor` goes on, judged by the trials that have come there so far; nobody waits for others.
"""

from __future__ import annotations

from collections.abc import Sequence

from longboat.core.jobs import SweepStop


def rung_below(stop: SweepStop, step: int) -> int | None:
    """The highest rung that this step has reached; None before the first."""
    if step < stop.steps:
        return None
    rung = stop.steps
    while rung * stop.factor <= step:
        rung *= stop.factor
    return rung


def is_promoted(loss: float, others: Sequence[float], factor: int) -> bool:
    """Whether a trial goes on from a rung. `others`: the losses of all that have come there, its own included."""
    kept = len(others) // factor
    if kept == 0:  # too few to compare with: nobody is stopped for having been first
        return True
    return loss <= sorted(others)[kept - 1]
