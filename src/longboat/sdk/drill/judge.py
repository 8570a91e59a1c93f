"""Judgement of a recovery drill: did the run resume, do its steps continue, does the loss agree. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from longboat.core.jobs import Value
from longboat.core.runs import RunStatus
from longboat.core.words import counted
from longboat.sdk.drill.kills import Kill
from longboat.sdk.drill.trace import TracedStep

Points = Mapping[tuple[int, int], float]
"""Rank and step -> value of the metric."""
_STEP = re.compile(r".*step-(\d{1,18})/?", re.DOTALL)
_SMALLEST = 1e-12
"""Two values that are both as good as 0 agree."""


class DoneKill(NamedTuple):
    kill: Kill
    attempt: int
    time: float


class Recovery(Value, frozen=True):
    """What followed on one kill. Seconds count from the kill."""

    kill: str
    attempt: int  # that was killed, counted from 1
    last_step: int | None  # before it
    noticed_s: float | None = None  # until the attempt was known to have failed
    restarted_s: float | None = None  # until the next one had started
    first_step_s: float | None = None  # until its first step
    resumed_from: str | None = None
    first_step: int | None = None
    lost_steps: int | None = None  # that were computed again


class DrillCheck(Value, frozen=True):
    name: str
    ok: bool
    detail: str


class DrillResult(Value, frozen=True):
    run: str
    reference: str
    ok: bool
    metric: str
    tolerance: float
    compared: int  # values at equal steps
    difference: float | None  # the largest, relative
    recoveries: tuple[Recovery, ...] = ()
    checks: tuple[DrillCheck, ...] = ()

    @property
    def failures(self) -> list[DrillCheck]:
        return [check for check in self.checks if not check.ok]


class Reference(NamedTuple):
    """The undisturbed run."""

    run: str
    points: Points
    last_step: int
    metric: str
    is_merged: bool = False  # its ranks cannot be told apart: all are under rank 0

    @property
    def ranks(self) -> frozenset[int]:
        """Those that report steps, as far as they are known."""
        return frozenset() if self.is_merged else frozenset(rank for rank, _ in self.points)


def points_of(steps: Iterable[TracedStep], metric: str) -> dict[tuple[int, int], float]:
    return {(each.rank, each.step): each.metrics[metric] for each in steps if metric in each.metrics}


def metric_of(steps: Sequence[TracedStep], wanted: str | None) -> str | None:
    """The metric to compare: what was asked for, else `loss`, else one whose name has it, else the first."""
    names = sorted({name for each in steps for name in each.metrics})
    if wanted is not None:
        return wanted if wanted in names else None
    return next((name for name in ("loss", *(name for name in names if "loss" in name), *names) if name in names), None)


def judge(
    reference: Reference, status: RunStatus, steps: Sequence[TracedStep], kills: Sequence[DoneKill], tolerance: float
) -> DrillResult:
    recoveries = [_recovery(done, status, steps) for done in kills]
    reported = sorted({step for _, step in reference.points} | {each.step for each in steps})
    compared, worst = _largest_difference(reference, steps)
    checks = [
        _ended(status),
        *(_resumed(recovery, status) for recovery in recoveries),
        *(_continues(recovery, reported) for recovery in recoveries),
        _reached(reference, steps),
        _agrees(reference.metric, compared, worst, tolerance),
    ]
    return DrillResult(
        run=status.name,
        reference=reference.run,
        ok=all(check.ok for check in checks),
        metric=reference.metric,
        tolerance=tolerance,
        compared=len(compared),
        difference=None if worst is None else worst[0],
        recoveries=tuple(recoveries),
        checks=tuple(checks),
    )


def _recovery(done: DoneKill, status: RunStatus, steps: Sequence[TracedStep]) -> Recovery:
    attempts = {attempt.number: attempt for attempt in status.attempts}
    killed, following = attempts.get(done.attempt), attempts.get(done.attempt + 1)
    before = [each.step for each in steps if each.attempt == done.attempt]
    after = [each for each in steps if each.attempt == done.attempt + 1]
    first = min(after, key=lambda each: each.time, default=None)
    last_step = max(before, default=None)
    return Recovery(
        kill=str(done.kill),
        attempt=done.attempt + 1,
        last_step=last_step,
        noticed_s=_after(done, killed.ended if killed is not None else None),
        restarted_s=_after(done, following.started if following is not None else None),
        first_step_s=_after(done, first.time if first is not None else None),
        resumed_from=following.resumed_from if following is not None else None,
        first_step=first.step if first is not None else None,
        lost_steps=None if first is None or last_step is None else max(0, last_step - first.step + 1),
    )


def _after(done: DoneKill, moment: float | None) -> float | None:
    """Clocks of a cluster's machines may differ by a little: nothing happens before its cause."""
    return None if moment is None else round(max(0.0, moment - done.time), 3)


def _ended(status: RunStatus) -> DrillCheck:
    detail = (
        "the run ended well"
        if status.phase == "succeeded"
        else f"the run {status.phase}: {status.reason or status.cause}"
    )
    return DrillCheck(name="ended", ok=status.phase == "succeeded", detail=detail)


def _resumed(recovery: Recovery, status: RunStatus) -> DrillCheck:
    if recovery.restarted_s is None:
        detail = f"after {recovery.kill} the run was not started again: {status.reason or status.phase}"
    elif recovery.resumed_from is None:
        detail = f"after {recovery.kill} it began anew: no checkpoint was complete before step {recovery.last_step}"
    else:
        name = recovery.resumed_from.rstrip("/").rpartition("/")[2]
        return DrillCheck(name="resumed", ok=True, detail=f"after {recovery.kill} it resumed from {name}")
    return DrillCheck(name="resumed", ok=False, detail=detail)


def _continues(recovery: Recovery, reported: Sequence[int]) -> DrillCheck:
    """The first step after a checkpoint of step N is N or the next that is reported, as the trainer counts."""
    match = _STEP.fullmatch(recovery.resumed_from or "")
    begins, last, first = int(match.group(1)) if match else 0, recovery.last_step, recovery.first_step
    if first is None or last is None:
        return DrillCheck(name="steps", ok=False, detail=f"no step was reported after {recovery.kill}")
    following = next((step for step in reported if step > begins), begins + 1)
    is_next = begins <= first <= following if match else first <= last + 1
    detail = f"step {last} before, step {first} after: {counted(recovery.lost_steps or 0, 'step')} lost"
    if not is_next:
        detail = f"it resumed from step {begins} and went on with step {first}; the last one before was {last}"
    return DrillCheck(name="steps", ok=is_next, detail=detail)


def _reached(reference: Reference, steps: Sequence[TracedStep]) -> DrillCheck:
    last = max((each.step for each in steps), default=None)
    is_same = last == reference.last_step
    detail = f"the last step is {last}" + ("" if is_same else f", and {reference.last_step} without the kills")
    return DrillCheck(name="last step", ok=is_same, detail=detail)


def _largest_difference(
    reference: Reference, steps: Sequence[TracedStep]
) -> tuple[list[int], tuple[float, TracedStep, float] | None]:
    """The step of each value that was compared, and the pair that differs most. Every attempt's values are."""
    first_rank = min((each.rank for each in steps if reference.metric in each.metrics), default=0)
    compared: list[int] = []
    worst = None
    for each in steps:
        if reference.is_merged and each.rank != first_rank:
            continue
        expected = reference.points.get((0 if reference.is_merged else each.rank, each.step))
        value = each.metrics.get(reference.metric)
        if expected is None or value is None:
            continue
        compared.append(each.step)
        difference = relative_difference(value, expected)
        if worst is None or difference > worst[0]:
            worst = (difference, each, expected)
    return compared, worst


def relative_difference(value: float, expected: float) -> float:
    """Infinite where one of them is NaN and the other is not."""
    if value == expected or (value != value and expected != expected):
        return 0.0
    difference = abs(value - expected) / max(abs(value), abs(expected), _SMALLEST)
    return difference if difference == difference else float("inf")


def _agrees(
    metric: str, compared: Sequence[int], worst: tuple[float, TracedStep, float] | None, tolerance: float
) -> DrillCheck:
    if worst is None:
        return DrillCheck(name=metric, ok=False, detail=f"{metric} was reported at no step that both runs have")
    difference, at, expected = worst
    # A step has a value of each rank, and of each attempt that came to it: it is one step all the same.
    detail = f"{metric} agrees at {counted(len(set(compared)), 'step')}; the largest difference is {difference:.2g}"
    if difference > tolerance:
        detail = (
            f"{metric} differs at step {at.step} (attempt {at.attempt + 1}, rank {at.rank}): {at.metrics[metric]:.6g},"
            f" and {expected:.6g} without the kills; a difference of {difference:.2g}, and {tolerance:g} is allowed"
        )
    return DrillCheck(name=metric, ok=difference <= tolerance, detail=detail)
