"""The one judge of failures: ends of ranks and nodes in, the culprit and the run's exit code out."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.core.first_failure import (
    LOSS_WINDOW_S,
    EndedAttempt,
    EndedNode,
    EndedRank,
    exit_code_of,
    first_failure,
    judge,
    stop_code,
)

NODES = ("worker-0", "worker-1")


def rank(number: int, code: int | None, *, at: float = 1.0, by: str | None = None, **fields: Any) -> EndedRank:
    node = fields.pop("told_by", f"worker-{number % 2}")
    return EndedRank(
        number, {"rank": number, "exit_code": code, "ended_by": by, "node": node, **fields}, arrived=at, told_by=node
    )


def node(code: int = 0, **fields: Any) -> EndedNode:
    return EndedNode({"exit_code": code, **fields})


def attempt(*ranks: EndedRank, reason: str | None = "failure", **nodes: EndedNode | None) -> EndedAttempt:
    ended = {"worker-0": node(1, ended_by="failure"), "worker-1": node(1, ended_by="failure")}
    ended.update({name.replace("_", "-"): each for name, each in nodes.items()})  # type: ignore[arg-type]
    return EndedAttempt(ranks, ended, NODES, reason)


def test_the_first_that_arrived_and_of_its_launcher_the_first_that_ended() -> None:
    late, early = rank(0, 7, at=1.0, ended_ns=20), rank(2, 8, at=1.5, ended_ns=10)
    other = rank(1, 9, at=1.2, ended_ns=1)  # of another machine: its clock says nothing
    assert first_failure([late, other, early]) is early
    assert first_failure([rank(0, 0), rank(1, 3, by="failure")]) is None


def test_the_verdict_hands_back_the_callers_report() -> None:
    verdict = judge(attempt(rank(1, 7, cause="exception", message="bad"), rank(0, 143, by="failure")))
    assert verdict is not None
    found = (verdict.cause, verdict.exit_code, verdict.message, verdict.node, verdict.report)
    assert found == ("exception", 7, "bad", "worker-1", 1)


@pytest.mark.parametrize("reason", ["success", None])
def test_success(reason: str | None) -> None:
    assert judge(attempt(rank(0, 0), rank(1, 0), reason=reason, worker_0=node(), worker_1=node())) is None


def test_ranks_that_were_ended_have_not_finished_even_with_code_0() -> None:
    told = node(0, ended_by="lost")
    verdict = judge(attempt(rank(0, 0, by="lost"), rank(1, 0), worker_0=told, worker_1=node()))
    assert verdict is not None and (verdict.cause, verdict.exit_code) == ("lost", 208)
    assert judge(attempt(rank(0, 0), rank(1, 0), worker_0=told, worker_1=node())) is None


def test_a_stopped_run_has_no_failure_and_the_code_of_its_first_rank_that_failed() -> None:
    assert judge(attempt(rank(0, 7), reason="stop")) is None
    assert (stop_code([0, None, 143, 3]), stop_code([0]), stop_code([None]), stop_code([])) == (143, 0, None, None)


@pytest.mark.parametrize(
    ("failed", "lost", "cause"),
    [
        (rank(0, 7, at=10.0), 9.0, "lost"),
        (rank(0, 7, at=10.0), 10.0 + LOSS_WINDOW_S - 0.1, "lost"),
        (rank(0, 7, at=10.0), 10.0 + LOSS_WINDOW_S, "exit"),
        (rank(1, 7, at=10.0), 10.1, "exit"),  # of the lost node itself
    ],
)
def test_victims_of_a_lost_node(failed: EndedRank, lost: float, cause: str) -> None:
    end = attempt(failed, worker_1=None)
    end.lost, end.lost_message = {"worker-1": lost}, "silent"
    verdict = judge(end)
    assert verdict is not None and verdict.cause == cause
    assert verdict.message == ("node worker-1: silent" if cause == "lost" else "")


def test_what_failed_beside_the_ranks() -> None:
    setup = node(4, cause="setup", message="pip", tail=["last"])
    gone = node(208, cause="lost", ended_by="lost", message="node 0 is silent")
    verdict = judge(attempt(worker_0=gone, worker_1=setup))
    assert verdict is not None and verdict.tail == ["last"]
    assert (verdict.cause, verdict.exit_code, verdict.message) == ("setup", 209, "node worker-1: pip")
    verdict = judge(attempt(worker_0=gone, worker_1=node(5)))
    assert verdict is not None and (verdict.cause, verdict.exit_code, verdict.node) == ("exit", 5, "worker-1")
    verdict = judge(attempt(worker_0=gone, worker_1=None))
    assert verdict is not None and (verdict.cause, verdict.exit_code, verdict.node) == ("lost", 208, "worker-1")


def test_timeout_and_hang_have_codes_of_their_own() -> None:
    verdict = judge(attempt(rank(0, 3), reason="timeout"))
    assert verdict is not None and (verdict.cause, verdict.exit_code, verdict.report) == ("timeout", 207, None)
    late = attempt(rank(0, 3, tail=["epoch 1"]), rank(1, 3, tail=["other"]), reason="timeout")
    late.timeout_s = 90.0
    verdict = judge(late)
    assert verdict is not None and verdict.message.endswith("its timeout of 90 s") and verdict.tail == ["epoch 1"]
    end = attempt(rank(0, 134, by="hang"), rank(1, 134, by="hang"), reason="hang", worker_0=node(210, cause="hang"))
    end.stalled = (1, 60.0)
    verdict = judge(end)
    assert verdict is not None and (verdict.exit_code, verdict.report) == (210, 1)
    assert verdict.message == "rank 1 made no progress for 60 s"


@pytest.mark.parametrize(
    ("cause", "code", "expected"),
    [
        ("exit", 3, 3),
        ("exit", None, 1),
        ("setup", 3, 209),
        ("peers", 1, 209),
        ("preemption", 143, 208),
        ("lost", 0, 208),
    ],
)
def test_exit_codes(cause: str, code: int | None, expected: int) -> None:
    assert exit_code_of(cause, code) == expected
