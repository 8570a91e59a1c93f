"""Decisions of a sweep: which trials start now, which are stopped early, and whether the sweep has ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from longboat.core.jobs import Metric, Scalar, Sweep, Value
from longboat.core.words import counted
from longboat.sweeps.asha import is_promoted
from longboat.sweeps.space import Params, generator, grid_point, is_finite, random_point, shuffled_point
from longboat.sweeps.tpe import Estimator, Observation
from longboat.sweeps.trials import SweepPhase, SweepTrial, loss_of

BETTER_HIGH = ("acc", "auc", "f1", "score", "reward", "precision", "recall", "bleu", "iou", "return", "throughput")
"""Parts of the names of metrics of which more is better, where nobody said so."""
MOST_STARTS = 64
"""Trials that start in one turn; the next turn starts more. Making one takes several requests, and the controller has
few workers for the sweeps of all namespaces."""
MOST_ESTIMATED = 320
"""Parameters that are estimated in one turn: each takes a few milliseconds."""


class Suggester(Protocol):
    """Chooses points by what trials have shown."""

    def suggest(self, random: Random) -> dict[str, Scalar]: ...

    def note_running(self, point: Params) -> None: ...


class SweepDecision(Value, frozen=True):
    """What is to be done now."""

    start: tuple[dict[str, Scalar], ...] = ()  # points of new trials, in order
    prune: tuple[int, ...] = ()  # numbers of trials that are stopped early
    phase: SweepPhase = "running"  # another: no trial starts any more, and those under way are stopped
    reason: str = ""


def decide(sweep: Sweep, seed: str, trials: Sequence[SweepTrial], metric: Metric | None) -> SweepDecision:
    """The next trials. `metric`: what trials are compared by, if that is known yet."""
    done = _ended_early(sweep, trials, metric)
    if done is not None:
        return done
    prune = _to_prune(sweep, trials, metric) if sweep.method == "asha" else ()
    alive = [trial.params for trial in trials if not trial.is_final]
    free = min(sweep.parallel - len(alive), MOST_STARTS)
    estimator: Suggester | None = None
    if sweep.method == "optuna" and free > 0 and (sweep.trials is None or len(trials) < sweep.trials):
        from longboat.sweeps.optuna_points import OptunaStudy  # an extra

        estimator = OptunaStudy(sweep, seed, trials, metric)
    elif sweep.method == "tpe" and metric is not None and free > 0:
        estimator = parzen = Estimator(sweep, observations(trials, metric), alive)
        if parzen.is_informed:
            free = min(free, max(MOST_ESTIMATED // len(sweep.space), 1))
    start: list[dict[str, Scalar]] = []
    while len(start) < free:
        point = next_point(sweep, seed, len(trials) + len(start) + 1, estimator)
        if point is None:
            break
        start.append(point)
        if estimator is not None:
            estimator.note_running(point)
    if not start and not alive:
        return _outcome(trials)
    return SweepDecision(start=tuple(start), prune=prune)


def next_point(sweep: Sweep, seed: str, number: int, estimator: Suggester | None = None) -> dict[str, Scalar] | None:
    """The point of trial `number`, counted from 1; None where there is none any more. `estimator`: of tpe, where trials
    can be compared; asha has none, because what it stopped early tells little of a whole trial."""
    if sweep.trials is not None and number > sweep.trials:
        return None
    if sweep.method == "grid":
        return grid_point(sweep, number)
    if sweep.method in ("random", "asha") and is_finite(sweep):
        return shuffled_point(sweep, seed, number)
    random = generator(seed, number)
    return random_point(sweep, random) if estimator is None else estimator.suggest(random)


def observations(trials: Sequence[SweepTrial], metric: Metric) -> list[Observation]:
    """Points that were tried and their losses, in their order. A trial that failed is worse than all others."""
    compared = [trial for trial in trials if trial.phase in ("succeeded", "pruned", "failed")]
    losses = [None if trial.phase == "failed" else loss_of(trial, metric) for trial in compared]
    worst = max((loss for loss in losses if loss is not None), default=0.0)
    return [
        (trial.params, worst if loss is None else loss)
        for trial, loss in zip(compared, losses)
        if loss is not None or trial.phase == "failed"
    ]


def chosen_metric(sweep: Sweep, trials: Sequence[SweepTrial]) -> Metric | None:
    """What trials are compared by: what the sweep says, else the loss, else the only metric that they report."""
    if sweep.metric is not None:
        return sweep.metric
    names = dict.fromkeys(name for trial in trials for name in trial.metrics)
    if "loss" in names:
        return Metric(name="loss")
    if len(names) != 1:
        return None
    (name,) = names
    return Metric(name=name, goal="max" if any(part in name.lower() for part in BETTER_HIGH) else "min")


def best_trial(trials: Sequence[SweepTrial], metric: Metric | None) -> SweepTrial | None:
    """The trial with the best metric; those that failed do not count. One that was stopped was not for being bad."""
    if metric is None:
        return None
    ranked = [(loss, trial) for trial in trials if (loss := loss_of(trial, metric)) is not None]
    ranked = [entry for entry in ranked if entry[1].phase != "failed"]
    return min(ranked, key=lambda entry: (entry[0], entry[1].number))[1] if ranked else None


def _ended_early(sweep: Sweep, trials: Sequence[SweepTrial], metric: Metric | None) -> SweepDecision | None:
    failed = sum(1 for trial in trials if trial.phase == "failed")
    if sweep.stop.failures is not None and failed >= sweep.stop.failures:
        return SweepDecision(
            phase="failed", reason=f"{counted(failed, 'trial')} failed, and `stop.failures` allows no more"
        )
    best = best_trial([trial for trial in trials if trial.phase == "succeeded"], metric)
    if sweep.stop.target is None or best is None or metric is None:
        return None
    value = best.metrics[metric.name]
    is_reached = value <= sweep.stop.target if metric.goal == "min" else value >= sweep.stop.target
    if not is_reached:
        return None
    return SweepDecision(phase="succeeded", reason=f"trial {best.number} reached the target: {metric.name} {value:g}")


def _to_prune(sweep: Sweep, trials: Sequence[SweepTrial], metric: Metric | None) -> tuple[int, ...]:
    if metric is None:
        return ()
    sign = 1.0 if metric.goal == "min" else -1.0
    worse = []
    for trial in trials:
        # The metrics of a rung come later than the step: until those of the next one are known, the last known decides.
        rung = max((rung for rung in trial.rungs if trial.step is not None and rung <= trial.step), default=None)
        if trial.is_final or trial.is_pruned or rung is None:
            continue
        others = [sign * other.rungs[rung] for other in trials if rung in other.rungs]
        if not is_promoted(sign * trial.rungs[rung], others, sweep.stop.factor):
            worse.append(trial.number)
    return tuple(worse)


def _outcome(trials: Sequence[SweepTrial]) -> SweepDecision:
    failed = [trial for trial in trials if trial.phase == "failed"]
    stopped = [trial for trial in trials if trial.phase == "stopped"]
    if failed:
        return SweepDecision(phase="failed", reason=f"{len(failed)} of {counted(len(trials), 'trial')} failed")
    if stopped:
        return SweepDecision(phase="stopped", reason=f"{len(stopped)} of {counted(len(trials), 'trial')} were stopped")
    return SweepDecision(phase="succeeded")
