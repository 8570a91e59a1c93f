"""The outcome of an ended attempt on this machine, from the files of its launchers. Pure.

Whom to blame is decided in core/first_failure.py; what comes next in engines/shared/retry_policy.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from longboat.core import first_failure
from longboat.core.jobs import Value
from longboat.core.runs import Failure, RankReport

LOSS_WINDOW_NS = int(first_failure.LOSS_WINDOW_S * 1e9)


class NodeOutcome(Value, frozen=True):
    """`outcome.json` of one node."""

    exit_code: int
    cause: str | None = None
    message: str = ""
    first: RankReport | None = None
    ended_ns: int = 0
    ended_by: str | None = None


class AttemptEnd(Value, frozen=True):
    """Everything known when all launchers of an attempt are gone."""

    outcomes: Mapping[str, NodeOutcome]  # by node; a node without one is lost
    reports: Sequence[RankReport]
    nodes: Sequence[str]
    deciding: Sequence[str]  # nodes whose success decides
    lost_ns: Mapping[str, int] = {}  # when a launcher was found dead without an outcome
    reason: str | None = None  # why we ended it: "stop", "timeout", "success", "failure", "hang"
    stalled: tuple[int, float] | None = None  # the rank that made no progress, and for how many seconds
    lost_message: str = ""  # why nodes without outcome have none
    timeout_s: float | None = None  # how long the run may take


def judge(ending: AttemptEnd) -> Failure | None:
    """None when the attempt succeeded (or was stopped), else the first culprit. All nodes share one clock."""
    end = first_failure.EndedAttempt(
        [_ended_rank(report) for report in ending.reports],
        {node: _ended_node(ending.outcomes.get(node)) for node in (*ending.outcomes, *ending.nodes)},
        ending.deciding,
        ending.reason,
    )
    # A launcher that dies while the run is stopped on request is no failure of the run.
    end.lost = ending.lost_ns if ending.reason != "stop" else {}
    end.loss_window = LOSS_WINDOW_NS
    end.lost_message = ending.lost_message
    end.stalled = ending.stalled
    end.timeout_s = ending.timeout_s
    verdict = first_failure.judge(end)
    if verdict is None:
        return None
    return Failure(
        cause=verdict.cause,
        exit_code=verdict.exit_code,
        message=verdict.message,
        rank=verdict.report,
        tail=tuple(verdict.tail or ()),
    )


def has_succeeded(ending: AttemptEnd) -> bool:
    """Whether the ranks had finished their work by themselves, though they were asked to end."""
    return judge(msgspec.structs.replace(ending, reason="success")) is None


def stop_code(ending: AttemptEnd) -> int | None:
    """The exit code of a stopped run."""
    ended = sorted(ending.reports, key=lambda report: report.ended_ns)
    return first_failure.stop_code(report.exit_code for report in ended)


def _ended_rank(report: RankReport) -> first_failure.EndedRank:
    fields = msgspec.structs.asdict(report)
    return first_failure.EndedRank(report, fields, arrived=report.ended_ns, told_by=report.node)


def _ended_node(outcome: NodeOutcome | None) -> first_failure.EndedNode | None:
    return None if outcome is None else first_failure.EndedNode(msgspec.structs.asdict(outcome))
