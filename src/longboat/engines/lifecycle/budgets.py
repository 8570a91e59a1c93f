"""Budgets: GPU-hours that runs with a label, of a user or of a namespace may hold within a time. Pure.

A budget warns; one with `hold` keeps new runs waiting while it is used up. A retry is no new run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from longboat.core.guards.decoding import convert
from longboat.core.jobs import Value
from longboat.core.resources import format_duration, parse_duration
from longboat.core.runs import RunStatus

HOUR_S = 3600.0
EVERY_RUN = "*"
"""Name of the budget of a whole namespace."""


class Period(Value, frozen=True):
    start: float
    end: float

    def hours(self, begin: float | None, end: float | None) -> float:
        """Of a span, what lies within; one that has not ended goes on."""
        if begin is None:
            return 0.0
        return max(0.0, min(self.end if end is None else end, self.end) - max(begin, self.start)) / HOUR_S


class Budget(Value, frozen=True):
    """GPU-hours that the runs with a label, of a user, or all of a namespace may hold within a time."""

    name: str  # LABEL=VALUE, user=NAME, or EVERY_RUN
    gpu_hours: float
    per_s: float = 30 * 24 * HOUR_S
    hold: bool = False  # new runs wait while it is used up; else they are only warned

    def covers(self, user: str, labels: Mapping[str, str]) -> bool:
        key, _, value = self.name.partition("=")
        return self.name == EVERY_RUN or (user == value if key == "user" else labels.get(key) == value)

    @property
    def title(self) -> str:
        return "budget of the namespace" if self.name == EVERY_RUN else f"budget {self.name}"


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    gpu_hours: Annotated[float, msgspec.Meta(gt=0)]
    per: str = "30d"
    hold: bool = False


def read_budgets(written: Any) -> list[Budget]:
    """Budgets as they are written in settings or on a namespace: name -> gpu_hours, per, hold. Raises ValueError."""
    read = convert(written, dict[str, _Written])
    return [
        Budget(name=name, gpu_hours=each.gpu_hours, per_s=parse_duration(each.per), hold=each.hold)
        for name, each in read.items()
    ]


def held_hours(run: RunStatus, period: Period) -> float:
    """GPU-hours that its attempts had. The attempts of a run in full; of a listed one, its first start."""
    if run.started is None:  # the first attempt of a run that waits in a cluster is there already, suspended
        return 0.0
    spans = [period.hours(max(attempt.started, run.started), attempt.ended or run.ended) for attempt in run.attempts]
    return run.gpus * (sum(spans) if run.attempts else period.hours(run.started, run.ended))


def budget_words(budget: Budget, runs: Iterable[RunStatus], now: float) -> tuple[float, str]:
    """The share of a budget that its runs have held, and a sentence. Listed runs will do."""
    period = Period(start=now - budget.per_s, end=now)
    covered = (run for run in runs if run.gpus and budget.covers(run.user, run.labels))
    held = sum(held_hours(run, period) for run in covered)
    text = f"{held:,.1f} of {budget.gpu_hours:,.0f} GPU-hours of the last {format_duration(budget.per_s)}"
    return held / budget.gpu_hours, f"{budget.title}: {text}"


def held_back(
    budgets: Iterable[Budget], user: str, labels: Mapping[str, str], runs: Iterable[RunStatus], now: float
) -> str:
    """Why a new run with GPUs has to wait; empty: no budget keeps it."""
    for budget in budgets:
        if budget.hold and budget.covers(user, labels):
            share, text = budget_words(budget, runs, now)
            if share >= 1:
                return f"held back by the {text}, used up; it starts once enough of them are longer ago"
    return ""
