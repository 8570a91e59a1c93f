"""Judgement of a drill: decisions as data."""

from __future__ import annotations

import math

import msgspec
import pytest

from longboat.core.runs import Attempt, LogLine, RunStatus
from longboat.sdk.drill.conduct import is_due, note_of, step_after
from longboat.sdk.drill.judge import DoneKill, DrillResult, Reference, judge, metric_of, points_of, relative_difference
from longboat.sdk.drill.kills import Kill
from longboat.sdk.drill.trace import TracedStep, read_step

KILL = Kill(kind="rank", rank=1, node="worker-0", step=12)


def steps(attempt: int, first: int, last: int, *, at: float, drift: float = 0.0) -> list[TracedStep]:
    return [
        TracedStep(attempt, rank, step, at + step, 100 + rank, {"loss": 1.0 / step + drift})
        for step in range(first, last + 1)
        for rank in (0, 1)
    ]


UNDISTURBED = Reference("digits", points_of(steps(0, 1, 20, at=0.0), "loss"), 20, "loss")
BEFORE, AFTER = steps(0, 1, 12, at=100.0), steps(1, 11, 20, at=104.0)


def status(**changes: object) -> RunStatus:
    attempts = (
        Attempt(number=0, started=100.0, ended=112.5),
        Attempt(number=1, started=114.0, ended=130.0, resumed_from="/checkpoints/step-10"),
    )
    plain = RunStatus(
        name="digits-2", uid="u", job="digits", phase="succeeded", engine="local", created=1.0, nodes=1, gpus=0,
        attempts=attempts,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def drilled(
    found: RunStatus | None = None, traced: list[TracedStep] | None = None, tolerance: float = 0.01
) -> DrillResult:
    return judge(UNDISTURBED, found or status(), traced or BEFORE + AFTER, [DoneKill(KILL, 0, 112.0)], tolerance)


def failed(result: DrillResult) -> list[str]:
    assert not result.ok
    return [check.name for check in result.failures]


def test_a_recovery_with_its_phases() -> None:
    result = drilled()
    assert result.ok and result.compared == 44 and result.difference == 0.0
    assert "loss agrees at 20 steps; the largest difference is 0" in [check.detail for check in result.checks]
    (recovery,) = result.recoveries
    assert (recovery.noticed_s, recovery.restarted_s, recovery.first_step_s) == (0.5, 2.0, 3.0)
    assert (recovery.last_step, recovery.first_step, recovery.lost_steps, recovery.attempt) == (12, 11, 2, 1)
    assert "resume verified" in note_of(result) and "2 steps lost, first step after 3.0 s" in note_of(result)


def test_a_run_that_began_anew_has_not_resumed() -> None:
    attempts = (status().attempts[0], Attempt(number=1, started=114.0))
    result = drilled(status(attempts=attempts), BEFORE + steps(1, 1, 20, at=104.0))
    assert failed(result) == ["resumed"]
    assert "began anew: no checkpoint was complete before step 12" in result.failures[0].detail
    assert note_of(result).startswith("resume FAILED ")


def test_a_trainer_that_ignores_its_checkpoint() -> None:
    result = drilled(traced=BEFORE + steps(1, 1, 20, at=104.0))
    assert failed(result) == ["steps"]
    assert result.failures[0].detail == "it resumed from step 10 and went on with step 1; the last one before was 12"


def test_steps_that_are_left_out() -> None:
    assert failed(drilled(traced=BEFORE + steps(1, 13, 20, at=104.0))) == ["steps"]


def test_steps_that_are_reported_now_and_then() -> None:
    every_fifth = [each for each in BEFORE + AFTER if each.step % 5 == 0 and (each.attempt, each.step) != (1, 10)]
    sparse = Reference(
        "digits", {key: value for key, value in UNDISTURBED.points.items() if key[1] % 5 == 0}, 20, "loss"
    )
    assert judge(sparse, status(), every_fifth, [DoneKill(KILL, 0, 112.0)], 0.01).ok


def test_a_run_that_was_not_started_again() -> None:
    result = drilled(status(phase="failed", reason="no retries left", attempts=status().attempts[:1]), BEFORE)
    assert failed(result) == ["ended", "resumed", "steps", "last step"]
    assert result.recoveries[0].first_step_s is None


def test_a_loss_that_differs_names_the_step() -> None:
    result = drilled(traced=BEFORE + steps(1, 11, 20, at=104.0, drift=0.01))
    assert failed(result) == ["loss"]
    assert "loss differs at step 20 (attempt 2, rank 0): 0.06, and 0.05 without the kills" in result.failures[0].detail
    assert drilled(traced=BEFORE + steps(1, 11, 20, at=104.0, drift=0.01), tolerance=0.2).ok


def test_a_training_that_ends_elsewhere() -> None:
    result = drilled(traced=BEFORE + steps(1, 11, 19, at=104.0))
    assert failed(result) == ["last step"] and "19, and 20 without" in result.failures[0].detail


@pytest.mark.parametrize(
    ("value", "expected", "difference"),
    [(1.0, 1.0, 0.0), (0.9, 1.0, 0.1), (0.0, 0.0, 0.0), (math.nan, math.nan, 0.0), (math.nan, 1.0, math.inf)],
)
def test_differences_are_relative(value: float, expected: float, difference: float) -> None:
    assert relative_difference(value, expected) == pytest.approx(difference)


@pytest.mark.parametrize(
    ("names", "wanted", "metric"),
    [
        (("accuracy", "loss"), None, "loss"),
        (("accuracy", "train_loss"), None, "train_loss"),
        (("b", "a"), None, "a"),
        (("loss", "accuracy"), "accuracy", "accuracy"),
        (("loss",), "accuracy", None),
        ((), None, None),
    ],
)
def test_which_metric_is_compared(names: tuple[str, ...], wanted: str | None, metric: str | None) -> None:
    assert metric_of([TracedStep(0, 0, 1, 0.0, 1, dict.fromkeys(names, 1.0))], wanted) == metric


def test_the_kill_waits_for_all_ranks() -> None:
    both = frozenset((0, 1))
    assert not is_due(KILL, steps(0, 1, 11, at=0.0), both)
    assert not is_due(KILL, [*steps(0, 1, 11, at=0.0), TracedStep(0, 1, 12, 1.0, 1, {})], both)
    assert is_due(KILL, steps(0, 1, 12, at=0.0), both)
    assert not is_due(KILL, [*steps(0, 1, 12, at=0.0), TracedStep(1, 1, 1, 1.0, 1, {})], both)


@pytest.mark.parametrize(("checkpoints", "step"), [([10, 15, 20], 13), ([20], 11), ([5, 10, 15], 8), ([19, 20], 20)])
def test_a_kill_without_a_step_comes_between_two_checkpoints(checkpoints: list[int], step: int) -> None:
    assert step_after(checkpoints, range(1, 21)) == step


def line(data: bytes) -> LogLine:
    return LogLine(role="worker", node="worker-0", rank=1, stream="err", time=5.0, attempt=2, data=data)


@pytest.mark.parametrize(
    ("data", "step"),
    [
        (b'longboat-step {"step": 7, "rank": 1, "pid": 9, "metrics": {"loss": 0.5, "x": null}}\n', 7),
        (b'50%|###  longboat-step {"step": 8, "rank": 1, "pid": 9, "metrics": {}}\n', 8),
        (b'longboat-step {"step": 9, "ra\n', None),
        (b'longboat-step {"step": "x", "rank": 1, "pid": 9, "metrics": []}\n', None),
        (b'longboat-step {"step": Infinity, "rank": 1, "pid": 9, "metrics": {}}\n', None),
        (b'longboat-step {"step": 1, "rank": 1, "pid": 9, "metrics": {"loss": 1' + b"0" * 400 + b"}}\n", None),
        (b"loss 0.5\n", None),
        (b'row 5: longboat-step {"step": 1, "rank": 1, "pid": -1, "metrics": {}}\n', None),
        (b'longboat-step {"step": 1, "rank": 1, "pid": 0, "metrics": {}}\n', None),
        (b'longboat-step {"step": 1, "rank": 1, "pid": 1, "metrics": {}}\n', None),
    ],
)
def test_steps_are_read_from_the_log(data: bytes, step: int | None) -> None:
    read = read_step(line(data))
    assert (None if read is None else read.step) == step
    if step == 7:
        assert read == TracedStep(2, 1, 7, 5.0, 9, {"loss": 0.5})
