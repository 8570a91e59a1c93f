"""What an ended attempt means: tables of reports and outcomes in, the culprit out."""

from __future__ import annotations

import pytest

from longboat.core.jobs import Retries
from longboat.core.runs import Failure
from longboat.engines.local.supervise.attempt_outcome import LOSS_WINDOW_NS, AttemptEnd, judge, stop_code
from longboat.engines.shared.retry_policy import retry_after, start_failure
from tests.engines.local.values import ending, outcome, report

LOST_AT = 10_000_000_000 + 5_000_000_000
TWO = {"nodes": ["worker-0", "worker-1"], "deciding": ["worker-0", "worker-1"]}
PS = {"nodes": ["ps-0", "worker-0"], "deciding": ["worker-0"]}

SUCCEEDED = [
    ending(report(0, 0)),
    ending(report(0, 0), reason="success"),
    ending(
        report(0, 143, by="success", node="ps-0"),
        report(1, 0),
        reason="success",
        outcomes={"ps-0": outcome(0, ended_by="success"), "worker-0": outcome(0)},
        **PS,
    ),
    ending(report(1, 0), outcomes={"worker-0": outcome(0)}, **PS),  # the supervisor died; ps was lost with it
    ending(report(0, 0), outcomes={"worker-0": outcome(0, ended_by="lost")}),  # finished, then told to end
    ending(report(0, 143, by="stop"), reason="stop", outcomes={"worker-0": outcome(143, ended_by="stop")}),
    ending(reason="stop", outcomes={}),
    ending(report(0, 5), reason="stop", outcomes={"worker-0": outcome(5)}, lost_ns={"worker-0": LOST_AT}),
]


@pytest.mark.parametrize("ended", SUCCEEDED)
def test_no_failure(ended: AttemptEnd) -> None:
    assert judge(ended) is None


HUNG = {"reason": "hang", "outcomes": {"worker-0": outcome(210, cause="hang", ended_by="hang")}}


def stack(function: str) -> str:
    return f'Current thread 0x0001 (most recent call first):\n  File "train.py", line 3 in {function}\n'


FAILED = [
    ("one rank", ending(report(0, 3, cause="exit"), outcomes={"worker-0": outcome(3, cause="exit")}), "exit", 3, 0),
    (
        "the first of several",
        ending(report(0, 9, at=2), report(1, 7, at=1), report(2, 8, at=3), outcomes={"worker-0": outcome(7)}),
        "exit",
        7,
        1,
    ),
    (
        "those that were ended do not count",
        ending(
            report(0, 143, at=1, by="failure"), report(1, 4, at=2, cause="exception"), outcomes={"worker-0": outcome(4)}
        ),
        "exception",
        4,
        1,
    ),
    ("timeout wins", ending(report(0, 3), reason="timeout", outcomes={"worker-0": outcome(3)}), "timeout", 207, None),
    ("a launcher is lost", ending(outcomes={}, lost_ns={"worker-0": LOST_AT}), "lost", 208, None),
    (
        "ranks of other nodes break when a launcher is lost",
        ending(
            report(1, 1, at=4.5, node="worker-1"),
            outcomes={"worker-1": outcome(1)},
            lost_ns={"worker-0": LOST_AT},
            **TWO,
        ),
        "lost",
        208,
        None,
    ),
    (
        "a rank of another node that failed long before",
        ending(
            report(1, 6, at=1, node="worker-1"), outcomes={"worker-1": outcome(6)}, lost_ns={"worker-0": LOST_AT}, **TWO
        ),
        "exit",
        6,
        1,
    ),
    (
        "its own rank had failed before the launcher was lost",
        ending(report(0, 6, at=4.9), outcomes={}, lost_ns={"worker-0": LOST_AT}),
        "exit",
        6,
        0,
    ),
    (
        "ranks that leave in order because their supervisor is gone have not finished",
        ending(report(0, 0, by="lost"), outcomes={"worker-0": outcome(0, ended_by="lost")}),
        "lost",
        208,
        None,
    ),
    (
        "nodes that never started their ranks",
        ending(outcomes={"worker-0": outcome(0, ended_by="lost")}),
        "lost",
        208,
        None,
    ),
    ("setup", ending(outcomes={"worker-0": outcome(2, cause="setup", message="pip")}), "setup", 209, None),
    ("peers", ending(outcomes={"worker-0": outcome(209, cause="peers")}), "peers", 209, None),
    (
        "a hang, with the silent rank",
        ending(report(0, 134, by="hang"), report(1, 134, by="hang"), stalled=(1, 9.0), **HUNG),
        "hang",
        210,
        1,
    ),
    (
        "a hang, with the odd one out of all nodes",
        ending(
            *(report(n, 134, by="hang", stacks=stack("reads" if n == 2 else "all_reduce")) for n in range(4)), **HUNG
        ),
        "hang",
        210,
        2,
    ),
    ("only an exit code is known", ending(outcomes={"worker-0": outcome(5)}), "exit", 5, None),
    ("nothing is known", ending(outcomes={}), "lost", 208, None),
    (
        "a server that crashed",
        ending(
            report(0, 11, node="ps-0"),
            report(1, 143, by="failure"),
            outcomes={"ps-0": outcome(11), "worker-0": outcome(143, ended_by="failure")},
            reason="failure",
            **PS,
        ),
        "exit",
        11,
        0,
    ),
]


@pytest.mark.parametrize(
    ("name", "ended", "cause", "exit_code", "rank"), FAILED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_the_first_culprit(name: str, ended: AttemptEnd, cause: str, exit_code: int, rank: int | None) -> None:
    failure = judge(ended)
    assert failure is not None
    assert (failure.cause, failure.exit_code) == (cause, exit_code)
    assert (failure.rank.rank if failure.rank else None) == rank


def test_the_window_is_exact() -> None:
    for before_ns, cause in ((LOSS_WINDOW_NS, "exit"), (LOSS_WINDOW_NS - 1, "lost")):
        at = (LOST_AT - before_ns - 10_000_000_000) / 1e9
        ended = ending(report(1, 6, at=at, node="worker-1"), outcomes={}, lost_ns={"worker-0": LOST_AT}, **TWO)
        failure = judge(ended)
        assert failure is not None and failure.cause == cause


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([], None),
        ([report(0, 0, by="stop")], 0),
        ([report(0, 143, at=2, by="stop"), report(1, 137, at=1, by="stop"), report(2, 0, by="stop")], 137),
    ],
)
def test_the_exit_code_of_a_stopped_run(reports: list, expected: int | None) -> None:  # type: ignore[type-arg]
    assert stop_code(ending(*reports)) == expected


def failure(cause: str = "exit", exit_code: int = 1) -> Failure:
    return Failure(cause=cause, exit_code=exit_code, message="")


@pytest.mark.parametrize(
    ("failed", "attempt", "retries", "expected"),
    [
        (failure(), 0, Retries(), None),
        (failure(), 0, Retries(count=1), 1.0),
        (failure(), 1, Retries(count=1), None),
        (failure(), 3, Retries(count=9, backoff_s=2), 16.0),
        (failure(), 8, Retries(count=9, backoff_s=5), 60.0),
        (failure(), 5000, Retries(count=9999), 60.0),
        (failure("timeout", 207), 0, Retries(count=3), None),
        (failure("timeout", 207), 0, Retries(count=3, on=("timeout", 207)), None),
        (failure("oom", 137), 0, Retries(count=3, on=("oom",)), 1.0),
        (failure("oom", 137), 0, Retries(count=3, on=(137,)), 1.0),
        (failure("oom", 137), 0, Retries(count=3, on=("lost", 1)), None),
        (failure("lost", 208), 0, Retries(count=3, on=("lost",), backoff_s=0), 0.0),
    ],
)
def test_when_a_retry_comes(failed: Failure, attempt: int, retries: Retries, expected: float | None) -> None:
    assert retry_after(failed, attempt=attempt, retries=retries) == expected


def test_ranks_that_never_started() -> None:
    assert start_failure("data", "no such file").exit_code == 209
