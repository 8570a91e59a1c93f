"""What came of a sweep: its trials as a table of values, the best one, and which parameters mattered. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from longboat.core.jobs import Metric, Range, Scalar, Sweep, Value
from longboat.specs.fields.sweeps import grid_size, space_to_mapping
from longboat.sweeps.decide import best_trial, next_point
from longboat.sweeps.record import SweepRecord
from longboat.sweeps.space import Values, is_finite, to_unit
from longboat.sweeps.tpe import STARTUP
from longboat.sweeps.trials import SweepPhase, SweepState, SweepTrial, TrialPhase, loss_of

BINS = 4
"""Values of a range are put together in so many groups."""
LEAST_TRIALS = 4
"""Fewer trials say nothing about what mattered."""
LEAST_OF_GROUP = 2
"""Trials for each value of a parameter, on average: fewer cannot tell its share from chance."""


class TrialReport(Value, frozen=True):
    """One trial as people see it."""

    trial: int
    run: str
    params: dict[str, Scalar]
    phase: TrialPhase
    metric: float | None
    step: int | None
    metrics: dict[str, float]
    exit_code: int | None
    attempts: int
    reason: str
    started: float | None
    ended: float | None


class SweepReport(Value, frozen=True):
    """One sweep as people see it: `longboat sweep status -o json`."""

    name: str
    phase: SweepPhase
    reason: str
    engine: str
    method: str
    metric: Metric | None
    space: dict[str, Any]  # of each parameter its values, or its range, as in a job file
    planned: int | None  # trials in all, where no stop comes before
    parallel: int
    user: str
    created: float
    ended: float | None
    trials: tuple[TrialReport, ...]
    best: TrialReport | None
    importance: dict[str, float]
    command: str | None  # that runs the best trial again


def report_of(record: SweepRecord, state: SweepState) -> SweepReport:
    sweep = record.job.sweep
    assert sweep is not None  # `SweepFolder.record` has looked
    best = best_trial(state.trials, state.metric)
    return SweepReport(
        name=record.name,
        phase=state.phase,
        reason=state.reason,
        engine=record.engine,
        method=sweep.method,
        metric=state.metric or sweep.metric,
        space=space_to_mapping(sweep),
        planned=planned_trials(sweep),
        parallel=sweep.parallel,
        user=record.user,
        created=record.created,
        ended=state.ended,
        trials=tuple(trial_report(trial, state.metric) for trial in state.trials),
        best=None if best is None else trial_report(best, state.metric),
        importance=importance(sweep, state.trials, state.metric),
        command=None if best is None else rerun_command(record, best.run),
    )


def rerun_command(record: SweepRecord, run: str) -> str:
    """The command that runs a trial again where it ran."""
    words = ["longboat", "rerun", run]
    if record.context is not None:
        words += ["--on", record.context]
    if record.namespace is not None:
        words += ["--namespace", record.namespace]
    return shlex.join(words)


def trial_report(trial: SweepTrial, metric: Metric | None) -> TrialReport:
    return TrialReport(
        trial=trial.number,
        run=trial.run,
        params=trial.params,
        phase=trial.phase,
        metric=None if metric is None else trial.metrics.get(metric.name),
        step=trial.step,
        metrics=trial.metrics,
        exit_code=trial.exit_code,
        attempts=trial.attempts,
        reason=trial.reason,
        started=trial.started,
        ended=trial.ended,
    )


def planned_trials(sweep: Sweep) -> int:
    """How many trials there will be."""
    points = grid_size(sweep) if sweep.method not in ("tpe", "optuna") and is_finite(sweep) else None
    return min(count for count in (points, sweep.trials) if count is not None)


def known_points(sweep: Sweep, seed: str) -> list[dict[str, Scalar]]:
    """Points that are known before anything has run."""
    count = planned_trials(sweep)
    if sweep.method in ("tpe", "optuna"):
        count = min(count, STARTUP) if sweep.method == "tpe" else 0
    points = (next_point(sweep, seed, number) for number in range(1, count + 1))
    return [point for point in points if point is not None]


def importance(sweep: Sweep, trials: Sequence[SweepTrial], metric: Metric | None) -> dict[str, float]:
    """The share of the metric's variance that lies between the groups of a parameter's values: 0 to 1, highest first.

    Each parameter is looked at alone (eta squared of one-way analysis of variance); ranges are cut into four groups. A
    parameter without two trials in each group, on average, is left out: groups of one trial explain any variance.
    """
    if metric is None:
        return {}
    seen = [
        (trial.params, loss)
        for trial in trials
        if trial.phase == "succeeded" and (loss := loss_of(trial, metric)) is not None
    ]
    if len(seen) < LEAST_TRIALS:
        return {}
    grouped = {name: _grouped(name, values, seen) for name, values in sweep.space.items()}
    shares = {name: _explained(groups) for name, groups in grouped.items() if len(groups) * LEAST_OF_GROUP <= len(seen)}
    return dict(sorted(shares.items(), key=lambda entry: -entry[1]))


def _grouped(name: str, values: Values, seen: Sequence[tuple[Mapping[str, Scalar], float]]) -> list[list[float]]:
    """The losses of the trials, by the value of a parameter."""
    groups: dict[Scalar, list[float]] = {}
    for params, loss in seen:
        value = params[name]
        key = min(int(BINS * to_unit(values, value)), BINS - 1) if isinstance(values, Range) else value
        groups.setdefault(key, []).append(loss)
    return list(groups.values())


def _explained(groups: Sequence[Sequence[float]]) -> float:
    everything = [loss for losses in groups for loss in losses]
    mean = fmean(everything)
    total = sum((loss - mean) ** 2 for loss in everything)
    between = sum(len(losses) * (fmean(losses) - mean) ** 2 for losses in groups)
    return round(between / total, 4) if total > 0 else 0.0
