"""Driver of a sweep: observes its trials' runs, decides, submits and stops runs.

It may die at any moment. A trial is stored before it is submitted, its run's name follows from the sweep and its
number, and the run that exists is returned when a name is submitted again: so the next driver goes on, and no trial is
made twice or lost. Where several drive a sweep at once, as in a cluster, the store takes a state from one of them.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from longboat.core.errors import RUN_LOST_EXIT, EngineError, LongboatError, NotFound
from longboat.core.jobs import Goal, Job, Metric, SweepStop
from longboat.core.runs import SWEEP_UID, RunStatus
from longboat.engines.engine import Engine, Submission
from longboat.engines.lifecycle.resubmission import with_recorded
from longboat.engines.shared.files import log_line
from longboat.engines.shared.stop_request import StopRequest
from longboat.metrics.values import RunMetrics, StepPoint
from longboat.specs.params import is_in_space, with_params
from longboat.sweeps.asha import rung_below
from longboat.sweeps.decide import SweepDecision, chosen_metric, decide, next_point
from longboat.sweeps.record import SweepRecord, SweepStore
from longboat.sweeps.trials import SweepState, SweepTrial

PAUSE_S = {"local": (0.1, 1.0)}
"""Between two looks, from the first after a change up to the longest: files of this machine cost little."""
REMOTE_PAUSE_S = (1.0, 5.0)
"""A look at the trials in a cluster is a few requests, however many they are."""
RUNG_PAUSE_S = 2.0
"""The longest where trials are stopped early: each second that a bad one goes on is a GPU's. Steps are no newer."""
BEHIND_SINGLE_RUNS = -1
"""Priority of trials where the job says none: who types `longboat run` does not wait for somebody's sweep."""

replace = msgspec.structs.replace


def is_trial_of(record: SweepRecord, run: RunStatus) -> bool:
    return run.labels.get(SWEEP_UID) == record.uid


def trial_job(record: SweepRecord, trial: SweepTrial) -> Job:
    """The job of a trial: its parameters filled in, found by the label `sweep`, behind single runs in the queue."""
    job = with_params(record.job, trial.params)
    labels = {**job.labels, "sweep": record.name, "trial": str(trial.number), SWEEP_UID: record.uid}
    behind = BEHIND_SINGLE_RUNS if job.queue is None else 0  # the queues of others have priorities of their own
    return replace(job, labels=labels, priority=job.priority or behind)


def first_trial(record: SweepRecord) -> SweepTrial:
    assert record.job.sweep is not None  # whoever makes a record has looked
    params = next_point(record.job.sweep, record.name, 1)
    return SweepTrial(number=1, params=params or {}, run=record.run_name(1))


def submission_of(record: SweepRecord, trial: SweepTrial, environment: Mapping[str, str]) -> Submission:
    """What is submitted as a trial: the code is that of the sweep, the same for all."""
    from longboat.engines.local.records import KEPT_VARIABLES

    return Submission(
        job=trial_job(record, trial),
        base=record.base,
        run_id=trial.run,
        environment=with_recorded(environment, record.environment, KEPT_VARIABLES),
        in_place=record.in_place,
        code=record.code,
        outside=record.outside if record.code is not None else None,
        root=record.root,
    )


class SweepFault(LongboatError):
    """The sweep cannot go on, whichever trial is next: it ends."""

    exit_code = RUN_LOST_EXIT


class TrialRuns(Protocol):
    """The runs of a sweep's trials, wherever they are."""

    def vouch(self) -> None:
        """Raise SweepFault where nothing is to be done for this sweep, EngineError where that is not known yet."""

    def look(self, trials: Sequence[SweepTrial]) -> Mapping[str, RunStatus | EngineError]:
        """The runs of these trials by name, or why one cannot be seen now. One that is missing is not there."""

    def submit(self, trial: SweepTrial) -> RunStatus:
        """Make the run of a trial; the one that is there, if there is one."""

    def stop(self, run: str, *, grace_s: float | None = None) -> None: ...

    def metrics_of(self, run: RunStatus) -> RunMetrics: ...


class EngineRuns:
    """Trials that are submitted like any other run."""

    def __init__(self, engine: Engine, record: SweepRecord, environment: Mapping[str, str]) -> None:
        self.engine, self.record, self.environment = engine, record, environment

    def vouch(self) -> None:
        """Who may write into the sweep's folder may submit runs."""

    def look(self, trials: Sequence[SweepTrial]) -> dict[str, RunStatus | EngineError]:
        runs: dict[str, RunStatus | EngineError] = {}
        for trial in trials:
            try:
                runs[trial.run] = self.engine.status(trial.run)
            except NotFound:
                continue
            except EngineError as error:
                runs[trial.run] = error
        return runs

    def submit(self, trial: SweepTrial) -> RunStatus:
        return self.engine.submit(submission_of(self.record, trial, self.environment))

    def stop(self, run: str, *, grace_s: float | None = None) -> None:
        self.engine.stop(run, grace_s=grace_s)

    def metrics_of(self, run: RunStatus) -> RunMetrics:
        return self.engine.metrics_of(run.name)


class SweepDriver:
    """Drives one sweep. Whoever makes one for a folder holds its lock."""

    def __init__(self, runs: TrialRuns, store: SweepStore) -> None:
        self.runs, self.store = runs, store
        self.record = store.record()
        assert self.record.job.sweep is not None  # `record` has looked
        self.sweep = self.record.job.sweep
        self.asked: set[tuple[int, StopRequest | None]] = set()  # trials that this process has asked to stop

    def run(self) -> None:
        """Take turns until the sweep has ended. A disk that is full or a cluster that is away is waited for."""
        shortest, longest = PAUSE_S.get(self.record.engine, REMOTE_PAUSE_S)
        longest = min(longest, RUNG_PAUSE_S) if self.sweep.method == "asha" else longest
        pause = shortest
        while True:
            is_changed: bool | None = False
            try:
                is_changed = self.advance()
            except EngineError as error:
                log_line(f"{time.time():.0f} {error.message}")
            if is_changed is None:
                return
            pause = shortest if is_changed else min(1.5 * pause, longest)
            time.sleep(pause)

    def advance(self) -> bool | None:
        """One turn; whether a trial began or ended. None: the sweep has ended, or is gone. Raises EngineError."""
        try:
            before = self.store.state()
            if before.is_final or not self._is_there():
                return None
            after = self.turn(before)
            return None if after.is_final else progress_of(after) != progress_of(before)
        except NotFound:
            return None
        except SweepFault as error:
            self.fail(error.message)
            return None

    def _is_there(self) -> bool:
        """Whether what is stored is still this sweep: one that was removed is not begun anew."""
        try:
            return self.store.record().uid == self.record.uid
        except NotFound:
            return False
        except EngineError:  # damaged meanwhile; what is in memory is not
            return True

    def fail(self, reason: str) -> None:
        """End the sweep where its driver cannot go on; trials under way go on, as runs."""
        self.store.write_state(replace(self.store.state(), phase="failed", reason=reason, ended=time.time()))

    def turn(self, state: SweepState) -> SweepState:
        """Observe, decide, act. What is decided is stored first: whoever comes next does these very things."""
        request = self.store.stop_request()
        if request is None:
            self._vouch(state)
        metric = chosen_metric(self.sweep, state.trials)
        runs = self.runs.look([trial for trial in state.trials if trial.is_submitted and not trial.is_final])
        seen = replace(state, trials=tuple(self._observe(trial, runs.get(trial.run), metric) for trial in state.trials))
        seen = replace(seen, metric=chosen_metric(self.sweep, seen.trials))
        if request is not None:
            decision = SweepDecision(phase="stopped", reason="on request")
        else:
            decision = decide(self.sweep, self.record.name, seen.trials, seen.metric)
        planned = self._ending(seen, decision) if decision.phase != "running" else self._going_on(seen, decision)
        self._store(state, planned)
        is_ending = decision.phase != "running"
        for trial in planned.trials:
            if not trial.is_final and trial.is_submitted and (is_ending or trial.is_pruned):
                self._stop(trial, request)
        new = planned if is_ending else replace(planned, trials=tuple(map(self._submit, planned.trials)))
        self._store(planned, new)
        return new

    def _vouch(self, state: SweepState) -> None:
        """Before anything is computed from a state that anybody may have written. Where that must wait, the first
        trials are planned: they say why."""
        try:
            self.runs.vouch()
        except EngineError:
            if state.trials:
                raise

    def _store(self, before: SweepState, state: SweepState) -> None:
        if state != before:
            self.store.write_state(state)

    def _going_on(self, state: SweepState, decision: SweepDecision) -> SweepState:
        trials = [self._cut(trial) if trial.number in decision.prune else trial for trial in state.trials]
        for point in decision.start:
            number = len(trials) + 1
            trials.append(
                SweepTrial(number=number, params=point, run=self.record.run_name(number), created=time.time())
            )
        return replace(state, trials=tuple(trials))

    def _cut(self, trial: SweepTrial) -> SweepTrial:
        rung = max((rung for rung in trial.rungs if rung <= (trial.step or 0)), default=0)
        reason = f"not among the best 1 of {self.sweep.stop.factor} at step {rung}"
        return replace(trial, is_pruned=True, reason=reason)

    def _ending(self, state: SweepState, decision: SweepDecision) -> SweepState:
        """The sweep has ended once everything under way has."""
        is_planned = decision.phase == "succeeded"
        trials = tuple(self._given_up(trial, is_planned=is_planned) for trial in state.trials)
        if any(not trial.is_final for trial in trials):
            return replace(state, trials=trials)
        return replace(state, trials=trials, phase=decision.phase, reason=decision.reason, ended=time.time())

    def _given_up(self, trial: SweepTrial, *, is_planned: bool) -> SweepTrial:
        """A trial of a sweep that ends: one that was not submitted yet never will be. A driver that died may have
        submitted it without storing that."""
        if trial.is_final:
            return trial
        if not trial.is_submitted:
            run = self.runs.look([trial]).get(trial.run)
            if isinstance(run, EngineError):  # the next turn asks again
                return replace(trial, reason=run.message)
            if run is None or not is_trial_of(self.record, run):
                return replace(trial, phase="pruned" if is_planned else "stopped", ended=time.time())
            trial = self._observe(replace(trial, is_submitted=True, reason=""), run, None)
        if trial.is_final or trial.is_pruned == is_planned:
            return trial
        return replace(trial, is_pruned=is_planned, reason="the sweep had reached its target" if is_planned else "")

    def _observe(self, trial: SweepTrial, run: RunStatus | EngineError | None, metric: Metric | None) -> SweepTrial:
        if trial.is_final or not trial.is_submitted:
            return trial
        try:
            if isinstance(run, EngineError):
                raise run
            if run is not None and is_trial_of(self.record, run):
                return self._seen(trial, run, metric)
        except NotFound:
            pass
        except EngineError as error:  # the next turn asks again
            return replace(trial, reason=error.message)
        return replace(trial, phase="failed", reason="its run was removed", ended=time.time())

    def _seen(self, trial: SweepTrial, run: RunStatus, metric: Metric | None) -> SweepTrial:
        is_pruned = trial.is_pruned and run.phase == "stopped"
        trial = replace(
            trial,
            phase="pruned" if is_pruned else run.phase,
            exit_code=run.exit_code,
            attempts=run.attempt + 1 if run.started is not None else trial.attempts,
            reason=trial.reason if trial.is_pruned and (is_pruned or not run.is_final) else run.reason,
            started=run.started,
            ended=run.ended,
        )
        if run.step is None:  # an attempt that has just begun has reported none yet
            return trial
        trial = replace(trial, step=run.step, metrics=_finite({**trial.metrics, **run.metrics}))
        if not trial.is_final and not self._has_rung_due(trial):
            return trial
        series = self.runs.metrics_of(run).series  # those of the last step alone may lack the one that counts
        lasts = {name: points[-1][2] for name, points in series.items() if points}
        trial = replace(trial, metrics=_finite({**lasts, **run.metrics}))
        metric = metric or chosen_metric(self.sweep, [trial])  # the first that ends has nobody to know it from
        if metric is None or self.sweep.method != "asha":
            return trial
        rungs = _rungs(self.sweep.stop, metric.goal, series.get(metric.name, ()))
        return replace(trial, rungs={**rungs, **trial.rungs})

    def _has_rung_due(self, trial: SweepTrial) -> bool:
        """Whether asha compares the trial now: between two rungs its series are not read."""
        if self.sweep.method != "asha" or trial.step is None:
            return False
        rung = rung_below(self.sweep.stop, trial.step)
        return rung is not None and rung not in trial.rungs

    def _submit(self, trial: SweepTrial) -> SweepTrial:
        if trial.is_submitted or trial.is_final:
            return trial
        if not is_in_space(self.sweep, trial.params):
            return replace(trial, phase="failed", reason="its parameters are not of this sweep", ended=time.time())
        try:
            run = self.runs.submit(trial)
        except EngineError as error:  # a disk that is full, a cluster that is away: the next turn tries again
            return replace(trial, reason=error.message)
        except SweepFault:
            raise
        except LongboatError as error:
            return replace(trial, phase="failed", exit_code=error.exit_code, reason=error.message, ended=time.time())
        if not is_trial_of(self.record, run):
            reason = f"{trial.run} is a run of somebody else"
            return replace(trial, phase="failed", reason=reason, ended=time.time())
        return self._seen(replace(trial, is_submitted=True, reason=""), run, None)

    def _stop(self, trial: SweepTrial, request: StopRequest | None) -> None:
        if (trial.number, request) in self.asked:
            return
        try:
            self.runs.stop(trial.run, grace_s=request.grace_s if request else None)
        except NotFound:
            pass  # the next look finds that it is gone
        except EngineError:
            return  # the next turn asks again
        self.asked.add((trial.number, request))


def _rungs(stop: SweepStop, goal: Goal, points: Sequence[StepPoint]) -> dict[int, float]:
    """The metric when each rung was reached; one that is not finite is worse than all others."""
    worst = sys.float_info.max if goal == "min" else -sys.float_info.max
    reached: dict[int, float] = {}
    for step, _, value in points:
        rung = rung_below(stop, step)
        if rung is not None:
            reached.setdefault(rung, value if math.isfinite(value) else worst)
    return reached


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def progress_of(state: SweepState) -> list[str]:
    """What the next look may come early for: trials that began or ended. Steps change at every look."""
    return [trial.phase for trial in state.trials]
