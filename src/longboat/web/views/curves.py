"""Curves of a run for a page: thinned so that extremes stay, step times by rank, who is slow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

from longboat.core.runs import RunStatus
from longboat.metrics.judgements import stragglers
from longboat.metrics.values import RunMetrics, Sample
from longboat.sdk.records import plain
from longboat.web.places import ShownPlace

MOST_POINTS = 2000
"""Of a curve: a screen has no more columns."""
MOST_STEP_TIMES = 500
"""Of a rank, the latest: a distribution needs no more."""
T = TypeVar("T", bound=Sequence[Any])


def run_curves(place: ShownPlace, run: str) -> dict[str, Any]:
    return curves_of(place.engine.metrics_of(run), place.engine.status(run))


def curves_of(metrics: RunMetrics, status: RunStatus) -> dict[str, Any]:
    """Times as seconds since the epoch: a curve has thousands of them."""
    return {
        "run": metrics.run,
        "series": {name: finite(thinned(points)) for name, points in metrics.series.items()},
        "system": _samples(metrics.system),
        "nodes": _samples(metrics.nodes),
        "step_times": step_times(metrics.step_times),
        "stragglers": stragglers([rank for rank in status.ranks if rank.alive]),
        "attempts": [
            {key: value for key, value in plain(attempt).items() if key != "failure"} for attempt in status.attempts
        ],
    }


def _samples(series: Mapping[str, Mapping[str, Sequence[Sample]]]) -> dict[str, Any]:
    return {
        key: {name: finite(thinned(values)) for name, values in measures.items()} for key, measures in series.items()
    }


def finite(points: Sequence[Sequence[float]]) -> list[list[float | None]]:
    """JSON has no NaN: null, which a chart draws as a gap."""
    return [[*point[:-1], point[-1] if math.isfinite(point[-1]) else None] for point in points]


def thinned(points: Sequence[T]) -> Sequence[T]:
    """At most MOST_POINTS: of each stretch the lowest and the highest, the last point always, gaps kept."""
    if len(points) <= MOST_POINTS:
        return points
    count = max(1, (MOST_POINTS - 2) // 3)
    chosen = {0, len(points) - 1}
    for number in range(count):
        first, end = number * len(points) // count, (number + 1) * len(points) // count
        stretch = range(first, end)
        real = [at for at in stretch if math.isfinite(points[at][-1])]
        chosen.update(at for at in stretch[:1] if len(real) == 0)
        if real:
            chosen.add(min(real, key=lambda at: points[at][-1]))
            chosen.add(max(real, key=lambda at: points[at][-1]))
            chosen.update(at for at in stretch if not math.isfinite(points[at][-1]) and len(real) < end - first)
    if len(chosen) > MOST_POINTS:  # more gaps than points: evenly
        return [points[at * len(points) // MOST_POINTS] for at in range(MOST_POINTS)]
    return [points[at] for at in sorted(chosen)]


def step_times(by_rank: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    """The distribution of each rank, and how slow it is against the median rank."""
    recent = {rank: [value for _, value in samples[-MOST_STEP_TIMES:]] for rank, samples in by_rank.items()}
    medians = {rank: median(values) for rank, values in recent.items() if values}
    usual = median(medians.values()) if medians else 0.0
    return {
        rank: {
            "last_s": values[-1],
            "median_s": medians[rank],
            "p90_s": sorted(values)[min(len(values) - 1, math.ceil(0.9 * len(values)) - 1)],
            "max_s": max(values),
            "slowness": round(medians[rank] / usual, 4) if usual > 0 else None,
            "values": [round(value, 6) for value in values],
        }
        for rank, values in recent.items()
        if values
    }
