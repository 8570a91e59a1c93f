"""Differences between runs: fields of their jobs, figures, metrics at equal steps. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from longboat.core.jobs import Job, Value
from longboat.core.runs import RunStatus
from longboat.core.words import listing
from longboat.metrics.judgements import gpu_hours
from longboat.metrics.values import RunMetrics, Software, StepPoint
from longboat.specs.dump import job_to_mapping

LONGEST_GAP_S = 600.0
"""Between samples of a rank: they are ten seconds apart, and of long runs only every second, fourth, ... is kept."""
OWN = ("name", "labels.trial", "labels.sweep", "labels.sweep-uid")
"""What is never the same, and says nothing."""


class CodeChange(Value, frozen=True):
    """The code of one run against that of the first."""

    run: str
    is_known: bool  # both are on this machine
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    diff: str = ""  # unified, of texts


class MetricRow(Value, frozen=True):
    """One metric of all runs: at the last step that all of them have reached, and at the end of each."""

    name: str
    step: int | None
    at_step: tuple[float | None, ...]
    last: tuple[float | None, ...]


class RunComparison(Value, frozen=True):
    """Runs side by side; tuples have one value for each run, in their order."""

    runs: tuple[str, ...]
    figures: dict[str, tuple[Any, ...]]  # phase, seconds, GPU-hours, ...
    differing: dict[str, tuple[Any, ...]]  # fields of the job file that are not the same in all of them
    environment: dict[str, tuple[Any, ...]]  # image, python, driver, GPUs, number of packages; None: not known
    packages: dict[str, tuple[str | None, ...]]  # versions of those that are not the same in all runs that tell theirs
    metrics: tuple[MetricRow, ...]
    code: tuple[CodeChange, ...]


def compare_runs(
    runs: Sequence[RunStatus],
    metrics: Sequence[RunMetrics],
    code: Sequence[CodeChange],
    now: float,
    *,
    prices: Sequence[float | None] = (),
) -> RunComparison:
    """Put runs side by side. `prices`: of one GPU for an hour, where each of them ran; 0: one's own."""
    hours = [gpu_hours(run, now) for run in runs]
    figures: dict[str, tuple[Any, ...]] = {
        "phase": tuple(run.phase for run in runs),
        "seconds": tuple(_seconds(run, now) for run in runs),
        "gpu_hours": tuple(hours),
        "cost": tuple(
            round(held * price, 2) if held is not None and price else None
            for held, price in itertools.zip_longest(hours, prices)
        ),
        "gpu_kwh": tuple(energy_kwh(each) for each in metrics),
        "attempts": tuple(run.attempt + 1 for run in runs),
        "exit_code": tuple(run.exit_code for run in runs),
        "step": tuple(run.step for run in runs),
    }
    return RunComparison(
        runs=tuple(run.name for run in runs),
        figures=figures,
        differing=differing_fields([run.spec for run in runs]),
        environment=environments(runs, [each.software for each in metrics]),
        packages=differing_packages([each.software.packages for each in metrics]),
        metrics=metric_rows([each.series for each in metrics]),
        code=tuple(code),
    )


def environments(runs: Sequence[RunStatus], software: Sequence[Software]) -> dict[str, tuple[Any, ...]]:
    """What each run ran in, as far as it was seen; rows of which nothing is known are left out."""
    rows: dict[str, tuple[Any, ...]] = {
        "image": tuple(", ".join(dict.fromkeys(run.images.values())) or None for run in runs),
        "python": tuple(each.python or None for each in software),
        "packages": tuple(len(each.packages) or None for each in software),
        "gpu_type": tuple(_types(each) or None for each in software),
        "driver": tuple(each.driver or None for each in software),
    }
    return {name: values for name, values in rows.items() if any(values)}


def _types(software: Software) -> str:
    return listing([f"{count} x {kind}" for kind, count in software.gpus.items()], 4)


def differing_packages(installed: Sequence[Mapping[str, str]]) -> dict[str, tuple[str | None, ...]]:
    """Versions by package, where runs that tell theirs do not agree; None where a run has none, or tells nothing."""
    telling = [packages for packages in installed if packages]
    names = sorted({name for packages in telling for name in packages}, key=str.lower)
    differing = [name for name in names if len({packages.get(name) for packages in telling}) > 1]
    return {name: tuple(packages.get(name) for packages in installed) for name in differing}


def _seconds(run: RunStatus, now: float) -> float | None:
    return None if run.started is None else round((run.ended or now) - run.started, 3)


def energy_kwh(metrics: RunMetrics) -> float | None:
    """What the GPUs of a run took, from samples of their power; None where there are none.

    Between two samples far apart, as between attempts, nothing is counted.
    """
    joules = [
        (then - now) * (before + after) / 2
        for measures in metrics.system.values()
        for (now, before), (then, after) in itertools.pairwise(measures.get("gpu_power", ()))
        if 0 < then - now <= LONGEST_GAP_S and math.isfinite(before + after)
    ]
    return round(sum(joules) / 3.6e6, 6) if joules else None


def differing_fields(jobs: Sequence[Job | None]) -> dict[str, tuple[Any, ...]]:
    """Fields that are not the same in all jobs, by their paths in a job file; None where a job has none."""
    flat = [{} if job is None else flattened(job_to_mapping(job)) for job in jobs]
    names = list(dict.fromkeys(name for fields in flat for name in fields if name not in OWN))
    rows = {name: tuple(fields.get(name) for fields in flat) for name in names}
    rows = {name: values for name, values in rows.items() if any(value != values[0] for value in values)}
    # Parameters first: that is what people look for.
    return dict(sorted(rows.items(), key=lambda row: not row[0].startswith("params.")))


def flattened(mapping: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` becomes `{"a.b": 1}`; lists are one value."""
    flat: dict[str, Any] = {}
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            flat.update(flattened(value, f"{path}{name}."))
        else:
            flat[path + name] = value
    return flat


def metric_rows(series: Sequence[Mapping[str, Sequence[StepPoint]]]) -> tuple[MetricRow, ...]:
    """Every metric that a run has reported."""
    rows = []
    for name in dict.fromkeys(name for each in series for name in each):
        all_points = [each.get(name, ()) for each in series]
        reached = [points[-1][0] for points in all_points if points]
        step = min(reached) if len(reached) == len(series) else None
        at_step = tuple(None if step is None else value_at(points, step) for points in all_points)
        last = tuple(_finite(points[-1][2]) if points else None for points in all_points)
        rows.append(MetricRow(name=name, step=step, at_step=at_step, last=last))
    return tuple(rows)


def value_at(points: Sequence[StepPoint], step: int) -> float | None:
    """The last value up to a step; None where there is none, or it is not finite."""
    before = [value for at, _, value in points if at <= step]
    return _finite(before[-1]) if before else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
