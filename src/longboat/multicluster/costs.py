"""Costs of runs in GPU-hours and money: asked for, held, used, idle; by run, user, label or pool. Pure.

Hours count as far as they lie in the period. Money is what the GPU-hours held cost; of a pool, what its machines cost
whether somebody held them or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from longboat.core.jobs import Value
from longboat.core.runs import RunStatus
from longboat.engines.lifecycle.budgets import Period, held_hours
from longboat.metrics.values import RunMetrics

UNLABELLED = "(none)"


class CostRow(Value, frozen=True):
    """GPU-hours and their cost under one name. `longboat cost -o json` prints these fields, and the currency."""

    name: str
    on: str = ""
    runs: int = 0
    asked: float = 0.0  # GPU-hours from the submission on, waiting included
    held: float = 0.0  # that attempts had them
    used: float | None = None  # of these, that they computed; None: nobody measured it
    paid: float | None = None  # of pools: that their machines were there
    idle: float | None = None  # held and not used; of pools: paid and not held
    cost: float | None = None  # None: no price is known


def cost_of(run: RunStatus, on: str, period: Period, gpu_hour: float | None, use: float | None) -> CostRow:
    """`use`: the mean use of its GPUs, 0 to 1. The attempts of a run in full; of a listed one, its first start."""
    held = held_hours(run, period)
    used = None if use is None else held * use
    return CostRow(
        name=run.name,
        on=on,
        runs=1,
        asked=run.gpus * period.hours(run.created, run.ended),
        held=held,
        used=used,
        idle=None if used is None else held - used,
        cost=None if gpu_hour is None else held * gpu_hour,
    )


def mean_use(metrics: RunMetrics) -> float | None:
    """Of all samples of its ranks, 0 to 1; None where no GPU was sampled."""
    samples = [value for measures in metrics.system.values() for _, value in measures.get("gpu", ())]
    finite = [min(max(value, 0.0), 100.0) for value in samples if value == value]
    return sum(finite) / len(finite) / 100.0 if finite else None


def names_of(run: RunStatus, by: str) -> Sequence[str]:
    """The names that a run counts under: its own, its user, one label's value, or each of its labels."""
    if by == "run":
        return (run.name,)
    if by == "user":
        return (run.user or UNLABELLED,)
    kind, _, key = by.partition("=")
    assert kind == "label"
    if key:
        return (run.labels.get(key, UNLABELLED),)
    return [f"{name}={value}" for name, value in sorted(run.labels.items())] or (UNLABELLED,)


def grouped(rows: Iterable[tuple[str, CostRow]]) -> list[CostRow]:
    """Rows with the same name in the same place as one, the dearest first, then those that held most."""
    groups: dict[tuple[str, str], list[CostRow]] = {}
    for name, row in rows:
        groups.setdefault((row.on, name), []).append(row)
    summed = [total(members, name=name, on=on) for (on, name), members in groups.items()]
    return sorted(summed, key=lambda row: (-(row.cost or 0.0), -row.held, row.on, row.name))


def total(rows: Sequence[CostRow], *, name: str, on: str = "") -> CostRow:
    """The sum. What is not known of one is left out of it: of used and idle where nobody measured, of cost too."""
    return CostRow(
        name=name,
        on=on,
        runs=sum(row.runs for row in rows),
        asked=sum(row.asked for row in rows),
        held=sum(row.held for row in rows),
        used=_sum(rows, lambda row: row.used),
        paid=_sum(rows, lambda row: row.paid),
        idle=_sum(rows, lambda row: row.idle),
        cost=_sum(rows, lambda row: row.cost),
    )


def all_pools(pools: Sequence[CostRow], runs: Sequence[CostRow], on: str) -> list[CostRow]:
    """The pools of a place, and their sum with what runs held of it. Which pool a run was in is kept nowhere: where
    there is one, it was that.
    """
    paid = sum(row.paid or 0.0 for row in pools)
    held = sum(row.held for row in runs)
    whole = CostRow(
        name="(all)",
        on=on,
        runs=len(runs),
        asked=sum(row.asked for row in runs),
        held=held,
        used=_sum(runs, lambda row: row.used),
        paid=paid,
        idle=max(0.0, paid - held),
        cost=_sum(pools, lambda row: row.cost),
    )
    if len(pools) == 1:
        return [msgspec.structs.replace(whole, name=pools[0].name), whole]
    return [*pools, whole]


def _sum(rows: Sequence[CostRow], part: Callable[[CostRow], float | None]) -> float | None:
    known = [value for value in map(part, rows) if value is not None]
    return sum(known) if known else None
