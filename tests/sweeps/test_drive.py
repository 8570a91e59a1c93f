"""The driver goes on wherever it was killed: no trial twice, none lost. An engine in memory that keeps its promises
stands for a machine, so that every single point of death can be tried; real processes are killed in tests/cli."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.core.errors import EngineError, NotFound, Refused
from longboat.core.jobs import Job, Metric, Range, Role, Sweep, SweepStop
from longboat.core.runs import RunStatus
from longboat.engines.engine import Submission
from longboat.engines.shared.home import Home
from longboat.engines.shared.stop_request import StopRequest
from longboat.metrics.values import RunMetrics
from longboat.sweeps.drive import EngineRuns, SweepDriver, progress_of, trial_job
from longboat.sweeps.record import SweepFolder, SweepRecord
from longboat.sweeps.trials import SweepState, SweepTrial, exit_code

replace = msgspec.structs.replace


class Killed(BaseException):
    """SIGKILL, as far as the code can tell: no handler runs."""


class MemoryEngine:
    """Runs in memory. A run takes three looks, and reports its parameter `x` as its loss."""

    name = "local"

    def __init__(self) -> None:
        self.runs: dict[str, tuple[Job, int]] = {}
        self.starts: list[str] = []
        self.stops: list[str] = []
        self.fails: set[str] = set()
        self.calls = 0
        self.dies_at: int | None = None
        self.away: dict[str, int] = {}  # runs that so many looks do not reach

    def died(self) -> None:
        self.calls += 1
        if self.calls == self.dies_at:
            raise Killed

    def submit(self, submission: Submission) -> RunStatus:
        self.died()
        name = submission.run_id or ""
        if name not in self.runs:
            self.runs[name] = (submission.job, 0)
            self.starts.append(name)
        self.died()
        return self.shown(name)

    def status(self, run: str) -> RunStatus:
        self.died()
        if self.away.get(run):
            self.away[run] -= 1
            raise EngineError("the API server is away")
        if run not in self.runs:
            raise NotFound(run)
        job, looks = self.runs[run]
        self.runs[run] = (job, looks + 1)
        return self.shown(run)

    def metrics_of(self, run: str) -> RunMetrics:
        shown = self.shown(run)
        points = tuple((step, 0.0, shown.metrics["loss"]) for step in range(1, (shown.step or 0) + 1))
        return RunMetrics(run=run, series={"loss": points})

    def stop(self, run: str, *, grace_s: float | None = None) -> None:
        self.died()
        self.stops.append(run)
        self.died()

    def shown(self, run: str) -> RunStatus:
        job, looks = self.runs[run]
        phase = "stopped" if run in self.stops else "running" if looks < 3 else "succeeded"
        phase = "failed" if looks >= 3 and run in self.fails else phase
        return RunStatus(
            name=run, uid=run, job=job.name, phase=phase, engine="local", created=0.0, nodes=1, gpus=0,
            started=0.0, exit_code=5 if phase == "failed" else None, step=looks or None,
            metrics={"loss": float(job.params["x"])} if looks else {}, labels=job.labels,
        )  # fmt: skip


def sweep_folder(root: Path, sweep: Sweep) -> SweepFolder:
    job = Job(name="j", roles=(Role(name="worker", run="train ${sweep.x}"),), sweep=sweep)
    record = SweepRecord(name="s", uid="u", job=job, base="/", created=0.0, user="me", engine="local")
    folder = SweepFolder(Home(root), "s")
    assert folder.create(record)
    assert not folder.create(record)  # the name is taken
    return folder


def runs_of(engine: Any, folder: SweepFolder) -> EngineRuns:
    return EngineRuns(engine, folder.record(), {})


def drive(engine: Any, folder: SweepFolder, turns: int = 200) -> SweepState:
    driver = SweepDriver(runs_of(engine, folder), folder)
    for _ in range(turns):
        state = driver.turn(folder.state())
        if state.is_final:
            return state
    raise AssertionError("the sweep does not end")


FIRST = SweepTrial(number=1, params={"x": 3}, run="s-t1")
SWEEPS = {
    "grid": Sweep(space={"x": (3, 1, 2, 4)}, parallel=2),
    "tpe": Sweep(space={"x": Range(low=0.0, high=1.0)}, method="tpe", trials=14, parallel=3),
    "asha": Sweep(space={"x": (3, 1, 2, 9, 8, 7)}, method="asha", trials=6, parallel=6, stop=SweepStop(steps=1)),
    "target": Sweep(space={"x": (3, 1, 2, 4)}, parallel=2, stop=SweepStop(target=1.0)),
}


def outcome(state: SweepState) -> list[tuple[Any, str]]:
    return [(trial.params["x"], trial.phase) for trial in state.trials]


@pytest.mark.parametrize("method", SWEEPS)
def test_killed_at_every_call_the_outcome_is_the_same(method: str, tmp_path: Path) -> None:
    whole = MemoryEngine()
    expected = drive(whole, sweep_folder(tmp_path / "whole", SWEEPS[method]))
    assert len(whole.starts) == len(set(whole.starts)) == len(expected.trials)
    for call in range(1, whole.calls + 1, 1 if whole.calls < 40 else 7):
        engine, folder = MemoryEngine(), sweep_folder(tmp_path / str(call), SWEEPS[method])
        engine.dies_at = call
        with pytest.raises(Killed):
            drive(engine, folder)
        state = drive(engine, folder)
        assert sorted(engine.starts) == sorted({trial.run for trial in state.trials})  # each once
        assert all(trial.phase in ("succeeded", "pruned") for trial in state.trials)
        assert exit_code(state) == 0
        if method == "grid":
            assert outcome(state) == outcome(expected)


def test_killed_while_the_state_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sweep_folder(tmp_path / "whole", SWEEPS["grid"])
    count = die_in_write(monkeypatch, 0)
    expected = outcome(drive(MemoryEngine(), folder))
    monkeypatch.undo()
    assert count[0] > 5
    for write in range(1, count[0] + 1):
        engine, folder = MemoryEngine(), sweep_folder(tmp_path / str(write), SWEEPS["grid"])
        die_in_write(monkeypatch, write)
        with pytest.raises(Killed):
            drive(engine, folder)
        monkeypatch.undo()
        assert outcome(drive(engine, folder)) == expected
        assert len(engine.starts) == len(set(engine.starts)) == 4


def die_in_write(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Counts writes of files, and dies at this one."""
    real: Callable[..., None] = os.replace
    count = [0]

    def dying(*args: Any, **options: Any) -> None:
        count[0] += 1
        if count[0] == number:
            raise Killed
        real(*args, **options)

    monkeypatch.setattr(os, "replace", dying)
    return count


def test_asha_stops_the_worse_ones_once_and_as_planned(tmp_path: Path) -> None:
    engine = MemoryEngine()
    state = drive(engine, sweep_folder(tmp_path, SWEEPS["asha"]))
    pruned = [trial.run for trial in state.trials if trial.phase == "pruned"]
    assert pruned and sorted(engine.stops) == sorted(pruned)
    said = {trial.reason for trial in state.trials if trial.phase == "pruned"}
    assert said and all(reason.startswith("not among the best 1 of") and " at step " in reason for reason in said)
    assert state.phase == "succeeded" and exit_code(state) == 0
    assert min(float(trial.params["x"]) for trial in state.trials if trial.phase == "succeeded") == min(
        float(trial.params["x"]) for trial in state.trials
    )


def test_trials_that_ended_before_the_metric_was_known_are_compared_with(tmp_path: Path) -> None:
    class Quick(MemoryEngine):
        def status(self, run: str) -> RunStatus:
            job, _ = self.runs[run]
            self.runs[run] = (job, 3)  # the first look finds it ended
            return self.shown(run)

    state = drive(Quick(), sweep_folder(tmp_path, SWEEPS["asha"]))
    assert all(1 in trial.rungs for trial in state.trials)


def test_a_stop_ends_what_is_under_way_and_starts_nothing(tmp_path: Path) -> None:
    engine, folder = MemoryEngine(), sweep_folder(tmp_path, SWEEPS["grid"])
    driver = SweepDriver(runs_of(engine, folder), folder)
    driver.turn(folder.state())
    folder.request_stop(StopRequest(at=1.0))
    state = drive(engine, folder)
    assert (state.phase, exit_code(state)) == ("stopped", 143)
    assert [trial.phase for trial in state.trials] == ["stopped", "stopped"] and engine.starts == ["s-t1", "s-t2"]


@pytest.mark.parametrize("stop", [StopRequest(at=1.0), None])
def test_a_run_that_was_submitted_before_its_driver_died_is_stopped_with_the_sweep(
    stop: StopRequest | None, tmp_path: Path
) -> None:
    """On request, or because another trial has reached the target."""
    sweep = replace(SWEEPS["target"], space={"x": (1, 2, 3, 4)})
    engine, folder = MemoryEngine(), sweep_folder(tmp_path, sweep)
    engine.dies_at = 4  # the second run is there, and the state says that it is not
    with pytest.raises(Killed):
        drive(engine, folder)
    assert engine.starts == ["s-t1", "s-t2"] and not any(trial.is_submitted for trial in folder.state().trials)
    if stop is None:
        first, second = folder.state().trials
        engine.runs["s-t1"] = (engine.runs["s-t1"][0], 3)
        folder.write_state(SweepState(trials=(replace(first, is_submitted=True), second)))
    else:
        folder.request_stop(stop)
    engine.away = {"s-t2": 1}
    state = drive(engine, folder)
    assert engine.starts == ["s-t1", "s-t2"] and "s-t2" in engine.stops
    assert state.trials[1].phase == ("pruned" if stop is None else "stopped")
    assert stop is not None or state.trials[1].reason == "the sweep had reached its target"
    assert exit_code(state) == (0 if stop is None else 143)


def test_a_run_of_another_that_has_the_name_is_no_trial(tmp_path: Path) -> None:
    engine, folder = MemoryEngine(), sweep_folder(tmp_path, SWEEPS["grid"])
    job = Job(name="j", roles=(Role(name="worker", run="true"),), params={"x": 9}, labels={"sweep-uid": "other"})
    engine.runs["s-t1"] = (job, 0)
    state = drive(engine, folder)
    assert "s-t1" not in engine.starts + engine.stops
    assert (state.trials[0].phase, state.trials[0].reason) == ("failed", "s-t1 is a run of somebody else")
    folder = sweep_folder(tmp_path / "stopped", SWEEPS["grid"])
    folder.write_state(SweepState(trials=(FIRST, replace(FIRST, number=2, run="s-t2", is_submitted=True))))
    engine.runs["s-t2"] = (job, 0)
    folder.request_stop(StopRequest(at=1.0))
    state = drive(engine, folder)
    assert not engine.stops and [trial.phase for trial in state.trials] == ["stopped", "failed"]
    assert state.trials[1].reason == "its run was removed"


def test_steps_are_no_reason_to_look_sooner(tmp_path: Path) -> None:
    engine, folder = MemoryEngine(), sweep_folder(tmp_path, SWEEPS["grid"])
    driver = SweepDriver(runs_of(engine, folder), folder)
    begun = driver.turn(folder.state())
    later = driver.turn(begun)
    assert later != begun and progress_of(later) == progress_of(begun)
    assert progress_of(driver.turn(driver.turn(later))) != progress_of(later)


def test_series_are_read_when_a_rung_is_due(tmp_path: Path) -> None:
    class Counting(MemoryEngine):
        reads = 0

        def metrics_of(self, run: str) -> RunMetrics:
            self.reads += 1
            return super().metrics_of(run)

        def shown(self, run: str) -> RunStatus:
            return replace(super().shown(run), phase="running")

    engine = Counting()
    stop = SweepStop(steps=3, factor=4)
    folder = sweep_folder(tmp_path, replace(SWEEPS["asha"], trials=1, stop=stop, metric=Metric(name="loss")))
    driver = SweepDriver(runs_of(engine, folder), folder)
    reads = []
    for _ in range(14):
        driver.turn(folder.state())
        reads.append(engine.reads)
    assert reads == [0, 0, 0, *[1] * 9, 2, 2]  # at steps 3 and 12
    assert list(folder.state().trials[0].rungs) == [3, 12]


def test_the_last_metrics_of_a_run_count_beside_its_series(tmp_path: Path) -> None:
    class Late(MemoryEngine):
        def metrics_of(self, run: str) -> RunMetrics:
            return RunMetrics(run=run, series={"loss": ((1, 0.0, 99.0),), "f1": ((1, 0.0, 0.5),)})

    state = drive(Late(), sweep_folder(tmp_path, SWEEPS["grid"]))
    assert [trial.metrics for trial in state.trials] == [{"f1": 0.5, "loss": float(x)} for x in (3, 1, 2, 4)]


def test_a_driver_whose_folder_is_gone_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longboat.sweeps.drive.PAUSE_S", {"local": (0.0, 0.0)})

    class Removing(MemoryEngine):
        def submit(self, submission: Submission) -> RunStatus:
            run = super().submit(submission)
            if self.calls == 4:
                folder.remove()
                if is_made_anew:
                    assert folder.create(replace(record, uid="another"))
            return run

    for is_made_anew in (False, True):
        folder = sweep_folder(tmp_path / str(is_made_anew), SWEEPS["grid"])
        record = folder.record()
        engine = Removing()
        SweepDriver(runs_of(engine, folder), folder).run()
        assert engine.starts == ["s-t1", "s-t2"] and folder.exists() == is_made_anew


def test_refusals_are_failed_trials_and_a_cluster_that_is_away_is_asked_again(tmp_path: Path) -> None:
    class Moody(MemoryEngine):
        def submit(self, submission: Submission) -> RunStatus:
            self.calls += 1
            if self.calls < 4:
                raise EngineError("the API server is away")
            if submission.run_id == "s-t3":
                raise Refused("no such GPU")
            return super().submit(submission)

    engine = Moody()
    state = drive(engine, sweep_folder(tmp_path, SWEEPS["grid"]))
    assert [trial.phase for trial in state.trials] == ["succeeded", "succeeded", "failed", "succeeded"]
    assert state.trials[2].reason == "no such GPU" and exit_code(state) == 203


def test_what_the_disk_or_a_cluster_refuses_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longboat.sweeps.drive.PAUSE_S", {"local": (0.0, 0.0)})

    class Flaky(MemoryEngine):
        def metrics_of(self, run: str) -> RunMetrics:
            self.calls += 1
            if self.calls % 3:
                raise EngineError("away")
            return super().metrics_of(run)

        def stop(self, run: str, *, grace_s: float | None = None) -> None:
            self.calls += 1
            if self.calls % 3:
                raise EngineError("away")
            super().stop(run)

    folder = sweep_folder(tmp_path, SWEEPS["asha"])
    SweepDriver(runs_of(Flaky(), folder), folder).run()
    state = folder.state()
    assert state.phase == "succeeded" and len(state.trials) == 6
    SweepDriver(runs_of(Flaky(), folder), folder).fail("a bug")
    assert folder.state().reason == "a bug" and exit_code(folder.state()) == 208


@pytest.mark.soak
def test_a_thousand_trials_are_driven_each_once(tmp_path: Path) -> None:
    sweep = Sweep(space={"x": Range(low=0.0, high=1.0)}, method="random", trials=1000, parallel=64)
    engine = MemoryEngine()
    state = drive(engine, sweep_folder(tmp_path, sweep), turns=2000)
    assert len(engine.starts) == len(set(engine.starts)) == len(state.trials) == 1000
    assert state.phase == "succeeded"


def test_a_run_that_was_removed_is_a_failed_trial(tmp_path: Path) -> None:
    engine, folder = MemoryEngine(), sweep_folder(tmp_path, SWEEPS["grid"])
    SweepDriver(runs_of(engine, folder), folder).turn(folder.state())
    del engine.runs["s-t1"]
    state = drive(engine, folder)
    assert state.trials[0].reason == "its run was removed" and state.phase == "failed"


def test_parameters_that_are_not_of_the_sweep_are_never_submitted(tmp_path: Path) -> None:
    engine, folder = MemoryEngine(), sweep_folder(tmp_path, SWEEPS["grid"])
    folder.write_state(SweepState(trials=(replace(FIRST, params={"x": "$(reboot)"}),)))
    ended = drive(engine, folder)
    assert ended.trials[0].phase == "failed" and "s-t1" not in engine.starts


def test_the_job_of_a_trial(tmp_path: Path) -> None:
    record = sweep_folder(tmp_path, SWEEPS["grid"]).record()
    job = trial_job(record, FIRST)
    assert (job.roles[0].run, job.params, job.sweep) == ("train 3", {"x": 3}, None)
    assert (job.labels, job.priority) == ({"sweep": "s", "trial": "1", "sweep-uid": "u"}, -1)
    assert trial_job(replace(record, job=replace(record.job, priority=7)), FIRST).priority == 7


def test_metrics_that_are_not_finite_are_not_stored(tmp_path: Path) -> None:
    class Diverging(MemoryEngine):
        def metrics_of(self, run: str) -> RunMetrics:
            return RunMetrics(run=run, series={"loss": ((1, 0.0, 1.0), (2, 0.0, float("nan")))})

        def shown(self, run: str) -> RunStatus:
            return replace(super().shown(run), metrics={"loss": float("nan")})

    folder = sweep_folder(tmp_path, replace(SWEEPS["asha"], metric=Metric(name="loss")))
    state = drive(Diverging(), folder)
    assert folder.state() == state and all(not trial.metrics for trial in state.trials)
