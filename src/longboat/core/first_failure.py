"""The first failure of an attempt: which rank or node is to blame, and the exit code of the run that follows. Pure.

The one judge for the embedded engine, for node 0's launcher and for the Kubernetes engine. How the ends of ranks are
put in order is the caller's: by one clock, or by arrival. And the rule of retries, which both engines and node 0 keep.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

from longboat.core.errors import RUN_HANG_EXIT, RUN_LOST_EXIT, RUN_SETUP_EXIT, RUN_TIMEOUT_EXIT
from longboat.core.stacks import describe, odd_one_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

LOSS_WINDOW_S = 2.0
"""Ranks of other nodes that failed this shortly before a node was lost are taken as victims of that."""
NEVER_STARTED = ("setup", "data", "image", "peers")
"""Causes of a failure before the first rank has started."""


NEVER_RETRIED = ("timeout", "dependency")
BACKOFF_LIMIT_S = 60.0  # idle GPUs cost more than one more failed start


def retry_delay(
    cause: str, exit_code: int, *, attempt: int, count: int, on: Sequence[int | str], backoff_s: float
) -> float | None:
    """Seconds until the next attempt, after a failure of this one; None when the run has failed for good."""
    if attempt >= count or cause in NEVER_RETRIED or (on and cause not in on and exit_code not in on):
        return None
    return min(BACKOFF_LIMIT_S, backoff_s * 2.0 ** min(attempt, 63))


class EndedRank:
    """How one rank ended. `report` is the caller's own form of it, which a verdict hands back."""

    __slots__ = (
        "arrived", "cause", "ended_by", "ended_ns", "exit_code", "message", "node", "rank", "report", "stacks",
        "tail", "told_by",
    )  # fmt: skip

    def __init__(self, report: Any, fields: Mapping[str, Any], *, arrived: float, told_by: str) -> None:
        self.report = report
        self.arrived = arrived  # orders the ends of all ranks
        self.told_by = told_by  # the node whose launcher reported it: with mpirun that is node 0 for all
        self.rank = int(fields["rank"])
        self.node = str(fields.get("node") or told_by)
        code = fields.get("exit_code")
        self.exit_code = None if code is None else int(code)
        self.ended_by: str | None = fields.get("ended_by")
        self.ended_ns = int(fields.get("ended_ns") or 0)  # orders the ends of ranks that one launcher saw
        self.cause: str | None = fields.get("cause")
        self.message = str(fields.get("message") or "")
        self.stacks = str(fields.get("stacks") or "")
        self.tail = fields.get("tail")

    @property
    def has_failed(self) -> bool:
        """Whether it failed by itself, not as a consequence of another's failure."""
        return bool(self.exit_code) and self.ended_by is None


class EndedNode:
    """How one node ended: its `outcome.json`."""

    __slots__ = ("cause", "ended_by", "exit_code", "first", "message", "tail")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.exit_code = int(fields.get("exit_code") or 0)
        self.cause: str | None = fields.get("cause")
        self.message = str(fields.get("message") or "")
        self.ended_by: str | None = fields.get("ended_by")
        self.first = fields.get("first")  # the report of the rank to blame, in the caller's form
        self.tail = fields.get("tail")


class EndedAttempt:
    """Everything known when all nodes of an attempt have ended or are lost."""

    def __init__(
        self,
        ranks: Sequence[EndedRank],
        nodes: Mapping[str, EndedNode | None],
        deciding: Sequence[str],
        reason: str | None,
    ) -> None:
        self.ranks = ranks
        self.nodes = {name: node for name, node in nodes.items() if node is not None}  # the first to end first
        self.missing = [name for name, node in nodes.items() if node is None]
        self.deciding = deciding  # nodes whose success decides
        self.reason = reason  # why it was ended: "stop", "timeout", "success", "failure", "hang"; None: by itself
        self.lost: Mapping[str, float] = {}  # nodes whose loss may be why it ended, and when; as `EndedRank.arrived`
        self.loss_window = LOSS_WINDOW_S  # in the unit of that
        self.lost_message = ""  # why nodes are missing
        self.stalled: tuple[int, float] | None = None  # the rank that made no progress, and for how many seconds
        self.timeout_s: float | None = None  # how long it was allowed to take


class Verdict:
    """Why an attempt failed."""

    __slots__ = ("cause", "exit_code", "message", "node", "report", "tail")

    def __init__(
        self, cause: str, exit_code: int, message: str, node: str = "", report: Any = None, tail: Any = None
    ) -> None:
        self.cause = cause
        self.exit_code = exit_code
        self.message = message
        self.node = node
        self.report = report  # of the rank to blame; None: no rank is
        self.tail = tail


def judge(end: EndedAttempt) -> Verdict | None:
    """None when the attempt succeeded or was stopped, else the first culprit."""
    if end.reason == "timeout":
        return _timeout(end)
    succeeded = all(_has_succeeded(end, node) for node in end.deciding)
    if end.reason == "success" and succeeded:
        return None
    first = first_failure(end.ranks)
    lost = _first_loss(end, first)
    if lost is not None:
        return Verdict("lost", RUN_LOST_EXIT, f"node {lost}: {end.lost_message}", lost)
    if any(node.cause == "hang" for node in end.nodes.values()):
        return _hang(end)
    if end.reason == "stop":
        return None
    if first is not None:
        return Verdict(first.cause or "exit", first.exit_code or 1, first.message, first.node, first.report)
    return None if succeeded else _first_outcome(end)


def _timeout(end: EndedAttempt) -> Verdict:
    """No rank is to blame; the last lines of the first one show how far it had come."""
    limit = "" if end.timeout_s is None else f" of {end.timeout_s:g} s"
    talking = sorted((rank for rank in end.ranks if rank.tail), key=lambda rank: rank.rank)
    tail = talking[0].tail if talking else None
    return Verdict("timeout", RUN_TIMEOUT_EXIT, "the run took longer than its timeout" + limit, tail=tail)


def first_failure(ranks: Iterable[EndedRank]) -> EndedRank | None:
    """The first that arrived; among the ranks of its launcher, which share a clock, the first that ended."""
    failed = [rank for rank in ranks if rank.has_failed]
    if not failed:
        return None
    told_by = min(failed, key=lambda rank: rank.arrived).told_by
    return min((rank for rank in failed if rank.told_by == told_by), key=lambda rank: rank.ended_ns)


def stop_code(codes: Iterable[int | None]) -> int | None:
    """The exit code of a stopped run, from those of its ranks in the order of their ends: that of the first that
    failed, else 0; None when nothing had started."""
    known = [code for code in codes if code is not None]
    return next((code for code in known if code), 0) if known else None


def exit_code_of(cause: str, exit_code: int | None) -> int:
    """A run whose ranks never started has Longboat's own code, not that of what failed before them."""
    if cause in NEVER_STARTED:
        return RUN_SETUP_EXIT
    if cause == "preemption":
        return RUN_LOST_EXIT
    return exit_code or (RUN_LOST_EXIT if cause == "lost" else 1)


def _first_loss(end: EndedAttempt, first: EndedRank | None) -> str | None:
    """The node whose loss came first, unless a rank had failed before. What its own launcher still reported cannot be
    a consequence."""
    if not end.lost:
        return None
    node = min(end.lost, key=lambda name: end.lost[name])
    if first is not None and (first.told_by == node or first.arrived <= end.lost[node] - end.loss_window):
        return None
    return node


def _has_succeeded(end: EndedAttempt, name: str) -> bool:
    """Ranks that we ended and that left with 0 have not finished their work."""
    node = end.nodes.get(name)
    if node is None or node.exit_code != 0:
        return False
    ranks = [rank for rank in end.ranks if rank.told_by == name]
    return node.ended_by is None or (bool(ranks) and all(rank.ended_by is None for rank in ranks))


def _hang(end: EndedAttempt) -> Verdict:
    """The stacks of all nodes together show the odd one out; a single launcher sees only its own."""
    stacks = {rank.rank: rank.stacks for rank in end.ranks if rank.stacks}
    odd, _ = odd_one_out(stacks)
    culprit = odd[0] if odd else end.stalled[0] if end.stalled else None
    rank = next((rank for rank in end.ranks if rank.rank == culprit), None)
    message = describe(stacks, end.stalled)
    return Verdict("hang", RUN_HANG_EXIT, message, rank.node if rank else "", rank.report if rank else None)


def _first_outcome(end: EndedAttempt) -> Verdict:
    """No rank is to blame: something before or beside the ranks failed. The first that ended counts."""
    for name, node in end.nodes.items():
        # A node that ended because it heard nothing of the others any more is a consequence.
        if node.cause and node.exit_code and not (node.cause == "lost" and node.ended_by == "lost"):
            code = exit_code_of(node.cause, node.exit_code)
            return Verdict(node.cause, code, f"node {name}: {node.message}", name, node.first, node.tail)
    for name, node in end.nodes.items():
        if node.exit_code and node.ended_by is None:
            return Verdict("exit", node.exit_code, node.message, name, node.first)
    return Verdict("lost", RUN_LOST_EXIT, end.lost_message, end.missing[0] if end.missing else "")
