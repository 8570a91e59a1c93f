"""What an ended attempt means. Pure. What comes next is in engines/shared/retry_policy.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longboat.core.errors import RUN_HANG_EXIT, RUN_LOST_EXIT, RUN_SETUP_EXIT, RUN_TIMEOUT_EXIT
from longboat.core.jobs import Value
from longboat.core.runs import Failure, RankReport
from longboat.launcher.ranks.stacks import describe, odd_one_out

LOSS_WINDOW_NS = 2_000_000_000
"""Ranks of other nodes that failed this shortly before a launcher was found dead are taken as victims of that."""


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


def judge(ending: AttemptEnd) -> Failure | None:
    """None when the attempt succeeded (or was stopped), else the first culprit."""
    if ending.reason == "timeout":
        return Failure(cause="timeout", exit_code=RUN_TIMEOUT_EXIT, message="the run took longer than its timeout")
    succeeded = all(_is_success(ending, node) for node in ending.deciding)
    if ending.reason == "success" and succeeded:
        return None
    own = [report for report in ending.reports if report.ended_by is None and report.exit_code]
    first = min(own, key=lambda report: report.ended_ns, default=None)
    lost = min(ending.lost_ns.items(), key=lambda item: item[1], default=None)
    if lost and not _is_earlier(first, lost) and ending.reason != "stop":
        return Failure(cause="lost", exit_code=RUN_LOST_EXIT, message=f"node {lost[0]}: {ending.lost_message}")
    hang = next((o for o in ending.outcomes.values() if o.cause == "hang"), None)
    if hang:
        return _hang_failure(ending)
    if first is not None and ending.reason != "stop":
        return Failure(cause=first.cause or "exit", exit_code=first.exit_code or 1, message=first.message, rank=first)
    if ending.reason == "stop" or succeeded:
        return None
    for name, outcome in ending.outcomes.items():
        if outcome.cause and outcome.exit_code:
            return Failure(
                cause=outcome.cause,
                exit_code=RUN_SETUP_EXIT if outcome.cause == "setup" else outcome.exit_code,
                message=f"node {name}: {outcome.message}",
                rank=outcome.first,
            )
    for outcome in ending.outcomes.values():
        if outcome.exit_code and outcome.ended_by is None:
            return Failure(cause="exit", exit_code=outcome.exit_code, message=outcome.message, rank=outcome.first)
    return Failure(cause="lost", exit_code=RUN_LOST_EXIT, message=ending.lost_message)


def stop_code(ending: AttemptEnd) -> int | None:
    """The exit code of a stopped run: that of the first rank that failed, else 0; None when nothing had started."""
    ended = [report for report in ending.reports if report.exit_code is not None]
    if not ended:
        return None
    failed = [report for report in ended if report.exit_code]
    return min(failed, key=lambda report: report.ended_ns).exit_code if failed else 0


def _is_success(ending: AttemptEnd, node: str) -> bool:
    """Ranks that we ended and that left with 0 have not finished their work."""
    outcome = ending.outcomes.get(node)
    if outcome is None or outcome.exit_code != 0:
        return False
    reports = [report for report in ending.reports if report.node == node]
    return outcome.ended_by is None or (bool(reports) and all(report.ended_by is None for report in reports))


def _is_earlier(first: RankReport | None, lost: tuple[str, int]) -> bool:
    """Whether a rank had failed before the launcher was lost. Its own launcher's report cannot be a consequence."""
    if first is None:
        return False
    return first.node == lost[0] or first.ended_ns <= lost[1] - LOSS_WINDOW_NS


def _hang_failure(ending: AttemptEnd) -> Failure:
    """The stacks of all nodes together show the odd one out; a single launcher sees only its own."""
    stacks = {report.rank: report.stacks for report in ending.reports if report.stacks}
    odd, _ = odd_one_out(stacks)
    silent = ending.stalled[0] if ending.stalled else None
    culprit = odd[0] if odd else silent
    rank = next((report for report in ending.reports if report.rank == culprit), None)
    return Failure(cause="hang", exit_code=RUN_HANG_EXIT, message=describe(stacks, ending.stalled), rank=rank)
