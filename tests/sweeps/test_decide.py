"""Decisions of a sweep, as data: trials so far to next trials, stops and the end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.core.jobs import Metric, Range, Sweep, SweepStop
from longboat.sweeps.asha import is_promoted, rung_below
from longboat.sweeps.decide import MOST_ESTIMATED, MOST_STARTS, best_trial, chosen_metric, decide, observations
from longboat.sweeps.report import importance, planned_trials
from longboat.sweeps.trials import SweepState, SweepTrial, exit_code

GRID = Sweep(space={"lr": (0.1, 0.01, 0.001)}, parallel=2)
LOSS = Metric(name="loss")


def trial(number: int, phase: str = "running", **fields: Any) -> SweepTrial:
    params = fields.pop("params", {"lr": (0.1, 0.01, 0.001)[(number - 1) % 3]})
    metrics = {"loss": fields.pop("loss")} if "loss" in fields else {}
    return SweepTrial(number=number, params=params, run=f"t-t{number}", phase=phase, metrics=metrics, **fields)  # type: ignore[arg-type]


def test_as_many_trials_as_may_run_at_once() -> None:
    assert decide(GRID, "s", [], None).start == ({"lr": 0.1}, {"lr": 0.01})
    assert decide(GRID, "s", [trial(1), trial(2)], None).start == ()
    assert decide(GRID, "s", [trial(1, "failed"), trial(2)], None).start == ({"lr": 0.001},)
    assert decide(GRID, "s", [trial(1, "succeeded"), trial(2), trial(3)], None).phase == "running"


@pytest.mark.parametrize(
    ("phases", "phase", "code"),
    [
        ("succeeded succeeded succeeded", "succeeded", 0),
        ("succeeded pruned succeeded", "succeeded", 0),
        ("succeeded failed succeeded", "failed", 7),
        ("stopped failed succeeded", "failed", 7),
        ("succeeded stopped succeeded", "stopped", 143),
    ],
)
def test_the_end(phases: str, phase: str, code: int) -> None:
    trials = [trial(number, name, exit_code=7) for number, name in enumerate(phases.split(), 1)]
    decision = decide(GRID, "s", trials, None)
    assert (decision.phase, decision.start) == (phase, ())
    assert exit_code(SweepState(trials=tuple(trials), phase=decision.phase)) == code


def test_a_target_that_was_reached_counts_more_than_a_trial_that_failed() -> None:
    state = SweepState(trials=(trial(1, "failed", exit_code=7), trial(2, "succeeded")), phase="succeeded")
    assert exit_code(state) == 0


def test_too_many_failures_and_a_target_end_it() -> None:
    failures = Sweep(space=GRID.space, stop=SweepStop(failures=2))
    assert decide(failures, "s", [trial(1, "failed")], None).phase == "running"
    ended = decide(failures, "s", [trial(1, "failed"), trial(2, "failed")], None)
    assert ended.phase == "failed" and "2 trials failed" in ended.reason
    target = Sweep(space=GRID.space, stop=SweepStop(target=0.5))
    assert decide(target, "s", [trial(1, "succeeded", loss=0.6)], LOSS).phase == "running"
    assert decide(target, "s", [trial(1, "succeeded", loss=0.5)], LOSS).phase == "succeeded"
    high = Metric(name="loss", goal="max")
    assert decide(target, "s", [trial(1, "succeeded", loss=0.4)], high).phase == "running"


def test_the_metric_is_the_loss_or_the_only_one() -> None:
    assert chosen_metric(GRID, []) is None
    assert chosen_metric(GRID, [trial(1, loss=1.0)]) == LOSS
    other = SweepTrial(number=1, params={}, run="r", metrics={"val_acc": 0.5})
    assert chosen_metric(GRID, [other]) == Metric(name="val_acc", goal="max")
    assert chosen_metric(GRID, [SweepTrial(number=1, params={}, run="r", metrics={"a": 1.0, "b": 2.0})]) is None
    given_one = Sweep(space=GRID.space, metric=Metric(name="b", goal="max"))
    assert chosen_metric(given_one, [trial(1, loss=1.0)]) == given_one.metric


def test_the_best_trial() -> None:
    trials = [trial(1, "succeeded", loss=0.3), trial(2, "failed", loss=0.1), trial(3, "running", loss=0.2)]
    best = best_trial(trials, LOSS)
    assert best is not None and best.number == 3
    assert best_trial(trials, Metric(name="other")) is None
    most = best_trial(trials, Metric(name="loss", goal="max"))
    assert most is not None and most.number == 1


def test_failed_trials_count_as_the_worst() -> None:
    trials = [trial(1, "succeeded", loss=0.3), trial(2, "failed"), trial(3, "succeeded", loss=0.9)]
    assert [loss for _, loss in observations(trials, LOSS)] == [0.3, 0.9, 0.9]


def test_rungs() -> None:
    stop = SweepStop(steps=10, factor=3)
    assert [rung_below(stop, step) for step in (9, 10, 29, 30, 89, 90, 1000)] == [None, 10, 10, 30, 30, 90, 810]
    assert is_promoted(5.0, [5.0, 1.0], 3)  # too few to judge
    assert not is_promoted(5.0, [5.0, 1.0, 2.0], 3)
    assert is_promoted(1.0, [5.0, 1.0, 2.0], 3)


def test_asha_stops_those_that_are_worse_at_their_rung_and_starts_others() -> None:
    sweep = Sweep(
        space={"lr": Range(low=0.0, high=1.0)}, method="asha", trials=9, parallel=3, stop=SweepStop(steps=10, factor=3)
    )
    running = [trial(number, loss=loss, step=12, rungs={10: loss}) for number, loss in enumerate((0.9, 0.1, 0.5), 1)]
    assert decide(sweep, "s", running, LOSS).prune == (1, 3)
    assert decide(sweep, "s", running, Metric(name="loss", goal="max")).prune == (2, 3)
    asked = [running[0], running[1], trial(3, "pruned", step=12, rungs={10: 0.5})]
    decision = decide(sweep, "s", asked, LOSS)
    assert len(decision.start) == 1 and decision.prune == (1,)


def test_asha_judges_by_the_last_rung_whose_metrics_are_known() -> None:
    sweep = Sweep(space={"lr": Range(low=0.0, high=1.0)}, method="asha", trials=3, stop=SweepStop(steps=10))
    running = [trial(number, loss=loss, step=35, rungs={10: loss}) for number, loss in enumerate((0.9, 0.1, 0.5), 1)]
    assert decide(sweep, "s", running, LOSS).prune == (1, 3)
    again = [trial(number, loss=loss, step=3, rungs={10: loss}) for number, loss in enumerate((0.9, 0.1, 0.5), 1)]
    assert decide(sweep, "s", again, LOSS).prune == ()


@pytest.mark.parametrize("method", ["random", "asha"])
def test_points_of_lists_come_once_each_and_then_no_more(method: Any) -> None:
    sweep = Sweep(space={"a": (1, 2, 3), "b": ("x", "y")}, method=method, trials=20, parallel=20)
    assert planned_trials(sweep) == 6
    points = decide(sweep, "seed", [], None).start
    assert len(points) == len({tuple(point.values()) for point in points}) == 6
    fewer = Sweep(space=sweep.space, method=method, trials=4, parallel=4)
    assert decide(fewer, "seed", [], None).start == points[:4]  # whoever asks for more draws the same ones first
    assert decide(sweep, "other", [], None).start != points
    large = Sweep(space={str(name): tuple(range(1000)) for name in range(6)}, method=method, trials=50, parallel=50)
    assert len({tuple(point.values()) for point in decide(large, "seed", [], None).start}) == 50


def test_what_is_random_does_not_depend_on_who_asks_when() -> None:
    sweep = Sweep(space={"x": Range(low=0.0, high=1.0)}, method="random", trials=6, parallel=6)
    at_once = decide(sweep, "seed", [], None).start
    one_by_one = []
    for number in range(1, 7):
        trials = [trial(each, "succeeded", params=at_once[each - 1]) for each in range(1, number)]
        one_by_one.append(decide(sweep, "seed", trials, None).start[0])
    assert list(at_once) == one_by_one
    assert decide(sweep, "other", [], None).start != at_once


PHASES = st.sampled_from(["pending", "running", "recovering", "succeeded", "failed", "stopped", "pruned"])
METHODS = st.sampled_from(["grid", "random", "tpe", "asha"])


@settings(max_examples=60)
@given(METHODS, st.integers(1, 6), st.integers(1, 12), st.lists(PHASES, max_size=12))
def test_never_more_trials_than_planned_nor_at_once(method: Any, parallel: int, count: int, phases: list[str]) -> None:
    sweep = Sweep(space={"a": (1, 2, 3), "b": (1, 2, 3, 4)}, method=method, trials=count, parallel=parallel)
    trials = [
        trial(number, phase, loss=float(number), step=number, params={"a": 1, "b": 2})
        for number, phase in enumerate(phases[:count], 1)
    ]
    decision = decide(sweep, "s", trials, LOSS)
    alive = sum(not each.is_final for each in trials)
    assert len(trials) + len(decision.start) <= planned_trials(sweep)
    assert not decision.start or alive + len(decision.start) <= parallel
    assert (decision.phase != "running") == (alive == 0 and len(trials) == planned_trials(sweep))


def test_importance_is_the_share_of_variance_between_values() -> None:
    sweep = Sweep(space={"lr": (1, 2), "width": (1, 2)})
    points = [(1, 1), (1, 2), (2, 1), (2, 2)]
    trials = [
        trial(number, "succeeded", params={"lr": lr, "width": width}, loss=float(lr))
        for number, (lr, width) in enumerate(points, 1)
    ]
    assert importance(sweep, trials, LOSS) == {"lr": 1.0, "width": 0.0}
    assert importance(sweep, trials[:3], LOSS) == {}


def test_a_parameter_whose_values_were_tried_once_has_no_importance() -> None:
    """Groups of one trial explain all of any variance, noise too."""
    sweep = Sweep(space={"seed": tuple(range(8)), "lr": (1, 2), "x": Range(low=0.0, high=8.0)})
    losses = (3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0)
    trials = [
        trial(number, "succeeded", params={"seed": number, "lr": number % 2, "x": float(number)}, loss=loss)
        for number, loss in enumerate(losses)
    ]
    assert importance(sweep, trials, LOSS).keys() == {"lr", "x"}
    assert importance(sweep, trials[:6], LOSS).keys() == {"lr", "x"}  # three quarters of the range
    assert importance(sweep, trials[:4], LOSS).keys() == {"lr", "x"}
    assert importance(sweep, trials[:7:2] + trials[7:], LOSS).keys() == {"lr"}


def test_a_turn_is_short_however_many_trials_may_run_at_once() -> None:
    """The workers of one process decide for all sweeps of a cluster; the rest starts in the next turn."""
    space = {f"p{number}": Range(low=0.0, high=1.0) for number in range(80)}
    assert (
        len(decide(Sweep(space=space, method="random", trials=900, parallel=900), "s", [], None).start) == MOST_STARTS
    )
    tpe = Sweep(space=space, method="tpe", trials=900, parallel=900)
    ended = [
        trial(number, "succeeded", loss=float(number), params=dict.fromkeys(space, number / 100))
        for number in range(1, 41)
    ]
    assert len(decide(tpe, "s", ended[:5], LOSS).start) == MOST_STARTS  # points by chance cost nothing
    assert len(decide(tpe, "s", ended, LOSS).start) == MOST_ESTIMATED // 80


def test_a_trial_that_was_stopped_may_be_the_best_and_one_that_failed_not() -> None:
    """After `sweep stop` the best is not one that was pruned for being bad."""
    trials = [
        trial(1, "stopped", loss=2.0),
        trial(2, "pruned", loss=4.1),
        trial(3, "failed", loss=0.1),
    ]
    best = best_trial(trials, LOSS)
    assert best is not None and best.number == 1
