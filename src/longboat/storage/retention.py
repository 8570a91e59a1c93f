"""Retention policy of checkpoints: which complete ones may be removed. Pure.

The newest one and those that were promoted always stay. Nothing else decides what `keep` removes: folders, object
stores and launchers ask here. Standard library only and Python >= 3.8: this file also travels into pods, inside the
launcher.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

PROMOTED = re.compile(r"\.promoted-step-(\d{1,18})")
"""Files (in a store: objects) beside the checkpoints, one for each that was promoted."""
EVALUATED = re.compile(r"\.metrics-step-(\d{1,18})")
"""Files beside the checkpoints: metrics that an evaluator told of one."""


class Retention(NamedTuple):
    """What `keep` of a job file says."""

    last: int = 3  # the newest so many; 0 keeps all
    best: int = 0  # besides, so many with the best metric
    metric: str = ""
    goal: str = "max"  # or min
    every_s: float = 0.0  # besides, one for each period of this length


class Candidate(NamedTuple):
    """A complete checkpoint, as the policy sees it."""

    step: int
    time: float = 0.0  # seconds since the epoch
    metrics: Mapping[str, float] = {}


def retention_of(raw: object) -> Retention:
    """As a plan or a gang file says it: a number, or a mapping with the fields above. What is damaged keeps all."""
    if isinstance(raw, Retention):
        return raw
    if isinstance(raw, int):
        return Retention(last=max(0, raw))
    if not isinstance(raw, dict):
        return Retention(last=0)
    try:
        return Retention(
            last=int(raw.get("last", 3)),
            best=int(raw.get("best") or 0),
            metric=str(raw.get("metric") or ""),
            goal="min" if raw.get("goal") == "min" else "max",
            every_s=float(raw.get("every_s") or 0.0),
        )
    except (TypeError, ValueError):
        return Retention(last=0)


def promoted_steps(names: Iterable[str]) -> set[int]:
    return {int(match.group(1)) for match in map(PROMOTED.fullmatch, names) if match}


def promoted_name(step: int) -> str:
    return f".promoted-step-{step}"


def evaluated_name(step: int) -> str:
    return f".metrics-step-{step}"


def kept_steps(candidates: Sequence[Candidate], rule: Retention, promoted: Collection[int] = ()) -> set[int]:
    """Steps of the checkpoints that stay."""
    ordered = sorted(candidates, key=lambda each: each.step)
    if rule.last <= 0 or not ordered:
        return {each.step for each in ordered}
    kept = {each.step for each in ordered[-rule.last :]}
    kept |= {each.step for each in _best(ordered, rule)} | _one_each(ordered, rule.every_s)
    return kept | {each.step for each in ordered if each.step in promoted}


def best_step(candidates: Iterable[Candidate], rule: Retention) -> int | None:
    """The step of the best of all; None where none has the metric."""
    best = _best(sorted(candidates, key=lambda each: each.step), rule._replace(best=1))
    return best[0].step if best else None


def _best(ordered: Sequence[Candidate], rule: Retention) -> list[Candidate]:
    """Of equal ones the later; one without the metric, or with a NaN, is never among the best."""
    sign = -1.0 if rule.goal == "min" else 1.0
    valued = [each for each in ordered if _is_number(each.metrics.get(rule.metric))]
    valued.sort(key=lambda each: (sign * float(each.metrics[rule.metric]), each.step))
    return valued[-rule.best :] if rule.best > 0 else []


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _one_each(ordered: Sequence[Candidate], every_s: float) -> set[int]:
    """From the oldest on, each that is a period later than the one before it that stays: what stayed once stays at the
    next look too, however many have come since."""
    kept: set[int] = set()
    latest = None
    for each in sorted(ordered, key=lambda candidate: (candidate.time, candidate.step)) if every_s > 0 else ():
        if latest is None or each.time >= latest + every_s:
            latest = each.time
            kept.add(each.step)
    return kept
