"""What node 0 decides about the gang, in the order in which things reach it. Pure: no sockets, no clock of its own.

Every event gives a list of orders, (node, message). The verdict follows the same rules as that of the embedded engine,
with the order of arrival in place of the one clock that its nodes share.
"""

from __future__ import annotations

from ..ranks.stacks import describe, odd_one_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Order = tuple[str, dict[str, Any]]

EXIT_TIMEOUT, EXIT_LOST, EXIT_SETUP, EXIT_HANG = 207, 208, 209, 210
LOSS_WINDOW_S = 2.0
"""Ranks of other nodes that failed this shortly before the last word of a lost node are taken as victims of that."""
NEVER_STARTED = ("setup", "data", "peers")


class GangMember:
    """One node as node 0 knows it."""

    __slots__ = ("broken", "first_heard", "is_ready", "lost_at", "outcome")

    def __init__(self) -> None:
        self.first_heard: float | None = None
        self.is_ready = False
        self.broken = False  # its connection is lost, for now
        self.lost_at: float | None = None  # its last word, when it is given up
        self.outcome: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        return self.outcome is not None or self.lost_at is not None


class Coordinator:
    def __init__(self, nodes: list[str], deciding: list[str], grace_s: float) -> None:
        self.members = {node: GangMember() for node in nodes}
        self.deciding = deciding
        self.reason: str | None = None  # why the gang is being ended
        self.reason_at = 0.0
        self.culprit = ""  # node that a reason is about: evicted, missing
        self.has_gone = False
        self._grace_s = grace_s
        self._message = ""
        self._reports: dict[int, tuple[float, str, dict[str, Any]]] = {}  # by rank: arrival, by which node
        self._stalled: tuple[int, float] | None = None

    # events

    def heard(self, node: str, now: float) -> None:
        member = self.members[node]
        member.broken = False
        if member.first_heard is None:
            member.first_heard = now

    def broke(self, node: str) -> None:
        self.members[node].broken = True

    def ready(self, node: str, resume_from: str | None) -> list[Order]:
        self.members[node].is_ready = True
        if self.reason is not None or self.has_gone or self.missing():
            return []
        self.has_gone = True
        return [(each, {"do": "go", "resume_from": resume_from}) for each in self.members]

    def report(self, node: str, report: dict[str, Any], now: float) -> list[Order]:
        """How a rank ended. A second report of the same rank completes the first."""
        rank = int(report["rank"])
        arrival = self._reports[rank][0] if rank in self._reports else now
        self._reports[rank] = (arrival, node, report)
        if _failed(report):
            return self._end("failure", now, but=node)
        return []

    def stalled(self, rank: int, silent_s: float, now: float) -> list[Order]:
        if self._stalled is None or silent_s > self._stalled[1]:
            self._stalled = (rank, silent_s)
        return self.dump(now)

    def dump(self, now: float) -> list[Order]:
        """Stacks of all nodes; their ranks end with that."""
        if self.reason is not None:
            return []
        self.reason, self.reason_at = "hang", now
        return [(node, {"do": "dump"}) for node, member in self.members.items() if not member.is_over]

    def ended(self, node: str, outcome: dict[str, Any], now: float) -> list[Order]:
        self.members[node].outcome = outcome
        if outcome.get("exit_code"):
            return self._end("failure", now, but=node)
        if all(self.members[each].outcome is not None for each in self.deciding):
            return self._end("success", now)
        return []

    def stop(self, grace_s: float | None, now: float) -> list[Order]:
        """Asked again, it may only hasten the end."""
        orders = self._end("stop", now, grace_s=grace_s)
        if orders or grace_s is None:
            return orders
        order = {"do": "end", "reason": "stop", "grace_s": grace_s}
        return [(node, order) for node, member in self.members.items() if not member.is_over]

    def evicted(self, node: str, now: float) -> list[Order]:
        if self.reason is None:
            self.culprit = node
        return self._end("evicted", now, but=node)

    def timeout(self, now: float) -> list[Order]:
        return self._end("timeout", now)

    def lost(self, node: str, last_word: float, why: str, now: float) -> list[Order]:
        """Nothing was heard of a node for too long, or somebody else came under its name."""
        member = self.members[node]
        if member.is_over:
            return []
        member.lost_at = last_word
        self._message = self._message or why
        return self._end("failure", now)

    def peers_missing(self, waited_s: float, now: float) -> list[Order]:
        if self.reason is None:
            names = [node for node, member in self.members.items() if member.first_heard is None]
            listed = ", ".join(names[:20]) + (" and %d more" % (len(names) - 20) if len(names) > 20 else "")
            text = "%d of %d nodes did not come within %g s: %s"
            self._message = text % (len(names), len(self.members), waited_s, listed)
            self.culprit = names[0] if names else ""
        orders = self._end("peers", now)
        return [(node, {**order, "reason": "failure"}) for node, order in orders]

    def _end(self, reason: str, now: float, grace_s: float | None = None, but: str = "") -> list[Order]:
        if self.reason is not None:
            return []
        self.reason, self.reason_at = reason, now
        order = {"do": "end", "reason": reason, "grace_s": self._grace_s if grace_s is None else grace_s}
        return [(node, order) for node, member in self.members.items() if not member.is_over and node != but]

    # the state of things

    def missing(self) -> list[str]:
        return [node for node, member in self.members.items() if not member.is_ready]

    def unheard(self) -> list[str]:
        return [node for node, member in self.members.items() if member.first_heard is None]

    @property
    def is_over(self) -> bool:
        """Nothing more is going to be heard: nodes that never came are not waited for once the gang ends."""
        if self.reason is None:
            return all(member.outcome is not None for member in self.members.values())
        return all(member.is_over or member.first_heard is None for member in self.members.values())

    # the verdict

    def verdict(self) -> dict[str, Any]:
        """`exit_code`, `cause`, `message`, `node`, `first`; cause null for a gang that succeeded or was stopped."""
        failure = self._judge()
        if failure is not None:
            return failure
        code = self._stop_code() if self.reason == "stop" else 0
        return _sentence(None, code, "")

    def _judge(self) -> dict[str, Any] | None:
        if self.reason == "timeout":
            return _sentence("timeout", EXIT_TIMEOUT, "the run took longer than its timeout")
        succeeded = all(self._has_succeeded(node) for node in self.deciding)
        if self.reason == "success" and succeeded:
            return None
        if self.reason == "evicted":
            text = "node %s was taken away by the cluster" % self.culprit
            return _sentence("preemption", EXIT_LOST, text, self.culprit)
        if self.reason == "peers":
            return _sentence("peers", EXIT_SETUP, self._message, self.culprit)
        first = self._first_failure()
        lost = self._first_loss(first)
        if lost is not None:
            return _sentence("lost", EXIT_LOST, "node %s: %s" % (lost, self._message), lost)
        if any(outcome.get("cause") == "hang" for outcome in self._outcomes().values()):
            return self._hang()
        if first is not None and self.reason != "stop":
            report = first[2]
            code = int(report.get("exit_code") or 1)
            message = str(report.get("message") or "")
            return _sentence(report.get("cause") or "exit", code, message, str(report.get("node") or first[1]), report)
        if self.reason == "stop" or succeeded:
            return None
        return self._by_outcome()

    def _by_outcome(self) -> dict[str, Any]:
        """No rank is to blame: something before or beside the ranks failed. The first that arrived counts."""
        for node, outcome in self._outcomes().items():
            cause, code = outcome.get("cause"), outcome.get("exit_code")
            if cause and code and not (cause == "lost" and outcome.get("ended_by") == "lost"):
                code = EXIT_SETUP if cause in NEVER_STARTED else int(code)
                message = "node %s: %s" % (node, outcome.get("message"))
                return _sentence(str(cause), code, message, node, outcome.get("first"), outcome.get("tail"))
        for node, outcome in self._outcomes().items():
            if outcome.get("exit_code") and outcome.get("ended_by") is None:
                message = str(outcome.get("message") or "")
                return _sentence("exit", int(outcome["exit_code"]), message, node, outcome.get("first"))
        missing = [node for node, member in self.members.items() if member.outcome is None]
        text = self._message or "no word of its end came from node %s" % ", ".join(missing[:8])
        return _sentence("lost", EXIT_LOST, text, missing[0] if missing else "")

    def _outcomes(self) -> dict[str, dict[str, Any]]:
        """In the order of their arrival."""
        found = {node: member.outcome for node, member in self.members.items() if member.outcome is not None}
        return dict(sorted(found.items(), key=lambda item: float(item[1].get("arrival") or 0.0)))

    def _first_failure(self) -> tuple[float, str, dict[str, Any]] | None:
        """The first that arrived; among ranks of its own node, which share a clock, the first that ended."""
        own = [each for each in self._reports.values() if _failed(each[2])]
        if not own:
            return None
        arrived = min(own, key=lambda each: each[0])
        same = [each for each in own if each[1] == arrived[1]]
        return min(same, key=lambda each: int(each[2].get("ended_ns") or 0))

    def _first_loss(self, first: tuple[float, str, dict[str, Any]] | None) -> str | None:
        """The node whose loss is why the gang ended: not one that was lost while it was being ended anyway."""
        lost = [(member.lost_at, node) for node, member in self.members.items() if member.lost_at is not None]
        if not lost or self.reason != "failure":
            return None
        at, node = min(lost)
        if at > self.reason_at + LOSS_WINDOW_S:
            return None
        if first is not None and (first[1] == node or first[0] <= at - LOSS_WINDOW_S):
            return None
        return node

    def _hang(self) -> dict[str, Any]:
        """The stacks of all nodes together show the odd one out; a single launcher sees only its own."""
        stacks = {rank: str(each[2]["stacks"]) for rank, each in self._reports.items() if each[2].get("stacks")}
        odd, _ = odd_one_out(stacks)
        culprit = odd[0] if odd else self._stalled[0] if self._stalled else None
        report = self._reports[culprit][2] if culprit in self._reports else None
        node = str(report.get("node") or "") if report else ""
        return _sentence("hang", EXIT_HANG, describe(stacks, self._stalled), node, report)

    def _has_succeeded(self, node: str) -> bool:
        """Ranks that we ended and that left with 0 have not finished their work."""
        outcome = self.members[node].outcome
        if outcome is None or outcome.get("exit_code") != 0:
            return False
        if outcome.get("ended_by") is None:
            return True
        reports = [report for _, by, report in self._reports.values() if by == node]
        return bool(reports) and all(report.get("ended_by") is None for report in reports)

    def _stop_code(self) -> int | None:
        """That of the first rank that failed, else 0; None when nothing had started."""
        ended = sorted(self._reports.values(), key=lambda each: each[0])
        codes = [int(each[2]["exit_code"]) for each in ended if each[2].get("exit_code") is not None]
        return next((code for code in codes if code), 0) if codes else None


def _failed(report: dict[str, Any]) -> bool:
    """By itself."""
    return bool(report.get("exit_code")) and report.get("ended_by") is None


def _sentence(
    cause: str | None, code: int | None, message: str, node: str = "", first: Any = None, tail: Any = None
) -> dict[str, Any]:
    found = {"exit_code": code, "cause": cause, "message": message, "node": node, "first": first}
    return {**found, "tail": tail} if tail else found
