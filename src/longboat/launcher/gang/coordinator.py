"""The coordinator of a gang: what node 0 decides, in the order in which things reach it. Pure: no sockets, no clock.

Every event gives a list of orders, (node, message). The verdict is that of `core.first_failure`, which travels with the
launcher, with the order of arrival in place of the one clock that nodes of one machine share.
"""

from __future__ import annotations

from ..vendored import load
from .spares import MOST_PLACES, chosen, exchanged, pod_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    Order = tuple[str, dict[str, Any]]

EXIT_LOST, EXIT_SETUP = 208, 209
REPLACED_MAX = 8
"""Names of members that an order tells; of spares all, by which it is known outside which pod plays which node."""
MESSAGE_MAX = 200  # characters of an earlier attempt's failure: several fit into a termination message


class GangMember:
    """The state of one node as node 0 sees it."""

    __slots__ = ("broken", "first_heard", "is_ready", "is_replaced", "lost_at", "outcome")

    def __init__(self) -> None:
        self.first_heard: float | None = None
        self.is_ready = False
        self.broken = False  # its connection is lost, for now
        self.lost_at: float | None = None  # its last word, when it is given up
        self.outcome: dict[str, Any] | None = None
        self.is_replaced = False  # its pod is being taken away, or another one has come for it

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
        self._timeout_s: float | None = None
        self._newest: int | None = None

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
        """Record how a rank ended. A second report of the same rank completes the first."""
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
        """Order stack dumps from all nodes, which end their ranks."""
        if self.reason is not None:
            return []
        self.reason, self.reason_at = "hang", now
        return [(node, {"do": "dump"}) for node, member in self.members.items() if not member.is_over]

    def save(self) -> list[Order]:
        """Ask all ranks for a checkpoint. Those of a gang that is ending are asked to already."""
        if self.reason is not None or not self.has_gone:
            return []
        return [(node, {"do": "save"}) for node, member in self.members.items() if not member.is_over]

    def ended(self, node: str, outcome: dict[str, Any], now: float, newest: int | None = None) -> list[Order]:
        """`newest`: step of the last checkpoint, of the node that sends them to a store; who follows them waits for
        it."""
        self.members[node].outcome = outcome
        self._newest = self._newest if newest is None else newest
        if outcome.get("exit_code"):
            return self._end("failure", now, but=node)
        if all(self.members[each].outcome is not None for each in self.deciding):
            return self._end("success", now)
        return []

    def stop(self, grace_s: float | None, now: float) -> list[Order]:
        """Stop the gang; a second stop can only shorten the grace."""
        orders = self._end("stop", now, grace_s=grace_s)
        if orders or grace_s is None:
            return orders
        order = {"do": "end", "reason": "stop", "grace_s": grace_s}
        return [(node, order) for node, member in self.members.items() if not member.is_over]

    def evicted(self, node: str, now: float) -> list[Order]:
        self.members[node].is_replaced = True
        if self.reason is None:
            self.culprit = node
        return self._end("evicted", now, but=node)

    def timeout(self, now: float, limit_s: float | None = None) -> list[Order]:
        self._timeout_s = limit_s
        return self._end("timeout", now)

    def lost(self, node: str, last_word: float, why: str, now: float) -> list[Order]:
        """Give up a node that was silent for too long or whose name another process uses."""
        member = self.members[node]
        if member.is_over:
            return []
        member.lost_at = last_word
        self._message = self._message or why
        return self._end("failure", now)

    def replaced(self, node: str, last_word: float, why: str, now: float) -> list[Order]:
        """Give up a node whose name another launcher uses: that of a new pod, which may take its place."""
        orders = self.lost(node, last_word, why, now)
        self.members[node].is_replaced = True
        return orders

    def came_anew(self, node: str) -> bool:
        """Whether another launcher takes the place of a node at once, to be waited for as if none had been there."""
        if self.has_gone or self.reason is not None:
            return False
        self.members[node] = GangMember()
        return True

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
        order: dict[str, Any] = {"do": "end", "reason": reason}
        order["grace_s"] = self._grace_s if grace_s is None else grace_s
        if self._newest is not None:
            order["newest"] = self._newest
        return [(node, order) for node, member in self.members.items() if not member.is_over and node != but]

    # the state of things

    def missing(self) -> list[str]:
        return [node for node, member in self.members.items() if not member.is_ready]

    def unheard(self) -> list[str]:
        return [node for node, member in self.members.items() if member.first_heard is None]

    @property
    def is_over(self) -> bool:
        """Whether every node has ended or is lost; nodes that never joined are not waited for once the gang ends."""
        if self.reason is None:
            return all(member.outcome is not None for member in self.members.values())
        return all(member.is_over or member.first_heard is None for member in self.members.values())

    def restart(
        self,
        rule: dict[str, Any] | None,
        attempt: int,
        verdict: dict[str, Any],
        ready: Iterable[str] = (),
        places: dict[str, str] | None = None,
    ) -> dict[str, Any] | None:
        """The order to restart in place after this verdict; None where it is the end, or a member cannot stay.

        Members whose pods are taken away, but for this one, are `replaced`: their Jobs make new ones. Spares that are
        `ready` take the places of members, of lost ones first: nobody else comes for these. Whatever else ended the
        gang but a failure of ranks (a member is lost, or was never there) wants new pods.
        """
        is_retried = self.reason in ("failure", "hang", "evicted") and verdict["cause"] is not None
        if rule is None or not self.has_gone or not is_retried:
            return None
        gone = [node for node, member in self.members.items() if not (member.outcome and member.outcome.get("stays"))]
        taken = self._taken(gone, ready)
        after = exchanged(places or {}, taken)
        is_leader_gone = gone[:1] == [next(iter(self.members))]
        is_short = any(not (self.members[node].is_replaced or node in taken) for node in gone)
        if is_leader_gone or is_short or len(after) > MOST_PLACES:
            return None
        delay_s = load("core.first_failure").retry_delay(
            verdict["cause"],
            verdict["exit_code"],
            attempt=attempt,
            count=int(rule["count"]),
            on=list(rule.get("on") or []),
            backoff_s=float(rule.get("backoff_s") or 0.0),
        )
        if delay_s is None or delay_s > float(rule.get("within_s") or 0.0):
            return None
        first = verdict["first"] or {}
        ended = {key: verdict[key] for key in ("exit_code", "cause", "node")}
        ended.update(message=str(verdict["message"])[:MESSAGE_MAX], rank=first.get("rank"), signal=first.get("signal"))
        order = {"do": "restart", "attempt": attempt + 1, "delay_s": delay_s, "ended": ended}
        if taken:
            spares = {node: pod_of(spare, places or {}) for node, spare in taken.items()}
            order = {**order, "places": after, "spares": spares}
        replaced = [node for place, node in enumerate(gone) if place < REPLACED_MAX or node in taken]
        return {**order, "replaced": replaced} if gone else order

    def _taken(self, gone: list[str], ready: Iterable[str]) -> dict[str, str]:
        """Whose place which spare takes: of those that are lost, and then of those whose pods are made anew."""
        away = [node for node in gone if self.members[node].lost_at is not None or self.members[node].is_replaced]
        return chosen(sorted(away, key=lambda node: self.members[node].is_replaced), ready)

    # the verdict

    def verdict(self) -> dict[str, Any]:
        """The outcome of the gang: `exit_code`, `cause`, `message`, `node`, `first`; cause null if it succeeded or was
        stopped.
        """
        if self.reason == "evicted":
            text = "node %s was taken away by the cluster" % self.culprit
            return _verdict("preemption", EXIT_LOST, text, self.culprit)
        if self.reason == "peers":
            return _verdict("peers", EXIT_SETUP, self._message, self.culprit)
        rules = load("core.first_failure")
        failure = rules.judge(self._ended(rules))
        if failure is None:
            return _verdict(None, self._stop_code(rules) if self.reason == "stop" else 0, "")
        judged = _verdict(failure.cause, failure.exit_code, failure.message, failure.node, failure.report)
        return {**judged, "tail": failure.tail} if failure.tail else judged

    def _ended(self, rules: Any) -> Any:
        ranks = [rules.EndedRank(report, report, arrived=at, told_by=by) for at, by, report in self._reports.values()]
        outcomes = [(node, member.outcome) for node, member in self.members.items()]
        outcomes.sort(key=lambda item: float((item[1] or {}).get("arrival") or 0.0))
        nodes = {node: None if outcome is None else rules.EndedNode(outcome) for node, outcome in outcomes}
        end = rules.EndedAttempt(ranks, nodes, self.deciding, self.reason)
        end.lost = self._losses(rules.LOSS_WINDOW_S)
        end.lost_message = self._message or "no word of its end came from node %s" % ", ".join(end.missing[:8])
        end.stalled = self._stalled
        end.timeout_s = self._timeout_s
        return end

    def _losses(self, window_s: float) -> dict[str, float]:
        """Lost nodes that may have caused the end, by the time of their last message; not those lost while the gang was
        ending. The local engine sees its launchers die at once and passes no window.
        """
        if self.reason != "failure":
            return {}
        lost = {node: member.lost_at for node, member in self.members.items() if member.lost_at is not None}
        return {node: at for node, at in lost.items() if at <= self.reason_at + window_s}

    def _stop_code(self, rules: Any) -> int | None:
        ended = sorted(self._reports.values(), key=lambda each: each[0])
        code: int | None = rules.stop_code(report.get("exit_code") for _, _, report in ended)
        return code


def _failed(report: dict[str, Any]) -> bool:
    """Whether a rank failed by itself and was not ended by the launcher."""
    return bool(report.get("exit_code")) and report.get("ended_by") is None


def _verdict(
    cause: str | None, exit_code: int | None, message: str, node: str = "", first: Any = None
) -> dict[str, Any]:
    return {"exit_code": exit_code, "cause": cause, "message": message, "node": node, "first": first}
