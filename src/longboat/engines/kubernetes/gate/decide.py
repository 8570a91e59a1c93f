"""Gang admission: which runs are let in now, which wait and for what, which are put back. Pure, over
`longboat.fitting`.

The order is priority, creation, name. A run is let in when all its pods can be placed on what is free, with everything
that was let in before it counted, whether its pods are bound yet or not. A run may overtake an earlier one that waits
if it does not delay it (`fitting.backfill`). A run that the nodes, and those that are on their way, could not hold even
if they were empty keeps nobody waiting. A gang that does not get all its pods is put back, so that it holds nothing in
vain.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from longboat.core.words import counted
from longboat.engines.kubernetes.gate.candidate import (
    Action,
    Admission,
    ClusterUsage,
    GateCandidate,
    Prospect,
)
from longboat.engines.kubernetes.gate.reasons import RunsAhead, WaitReasons, delaying, passing
from longboat.engines.kubernetes.gate.sizes import (
    BlockedGang,
    ElasticPods,
    RunningGang,
    WantedSize,
    largest,
    wanted_sizes,
)
from longboat.fitting.backfill import Backfill, QueuedGang, UpcomingNode
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.quantities import is_scarce
from longboat.fitting.packing import Placement, place, take, take_each

__all__ = [
    "Action",
    "Admission",
    "ClusterUsage",
    "GateCandidate",
    "Prospect",
    "back_off_s",
    "decide_gate",
    "foresee",
]

BLIND_S = 30.0
"""Where nodes may not be listed, whether a gang fits is only learnt by letting it in. The scheduler says within seconds
that a pod finds no node; a gang that hears so holds others up for no longer than this, and then lets them try."""
FIRST_BACK_OFF_S = 30.0  # what it lacks may be free or booted by then; sooner is seldom of use
LONGEST_BACK_OFF_S = 600.0  # it is tried at least so often, however often it was in vain
JITTER = 0.25  # of the pause: gangs that were put back together do not come back together


def decide_gate(candidates: Sequence[GateCandidate], room: ClusterUsage | None, now: float) -> list[Admission]:
    """A verdict for each, in the order in which they are served. Without a room (nodes may not be listed) one is let in
    at a time, hoping, and put back if it was in vain."""
    ordered = sorted(
        (_qualified(gate_candidate) for gate_candidate in candidates), key=lambda candidate: candidate.order
    )
    inside = [candidate for candidate in ordered if candidate.let_in is not None]
    waiting = [candidate for candidate in ordered if candidate.let_in is None and not candidate.held]
    is_blind = room is None and any(now >= candidate.not_before for candidate in waiting)
    admissions = [_look_after(candidate, now, _patience(candidate, is_blind)) for candidate in inside]
    back = {(admission.namespace, admission.run) for admission in admissions if admission.action == "put_back"}
    kept = [candidate for candidate in inside if (candidate.namespace, candidate.run) not in back]
    admissions += [_wait(candidate, candidate.held) for candidate in ordered if candidate.held]
    if room is None:
        return [*admissions, *_blind(waiting, kept, now)]
    hall = _Hall(room, ordered, kept, now)
    served = hall.serve(waiting)
    return [*(_with_wanted(admission, hall.wanted) for admission in admissions), *served]


def _with_wanted(admission: Admission, wanted: Mapping[str, WantedSize]) -> Admission:
    """Of an elastic run that is in: the size that it is to have."""
    size = wanted.get(f"{admission.namespace}/{admission.run}")
    if size is None or admission.action != "keep":
        return admission
    return msgspec.structs.replace(admission, size=size.size, size_reason=size.reason)


def foresee(candidate: GateCandidate, others: Sequence[GateCandidate], room: ClusterUsage, now: float) -> Prospect:
    """The verdict that a run would get if it came now, behind those that wait in their order."""
    ordered = sorted(map(_qualified, (*others, candidate)), key=lambda each: each.order)
    inside = [each for each in ordered if each.let_in is not None]
    hall = _Hall(room, ordered, inside, now)
    waiting = [each for each in ordered if each.let_in is None and not each.held]
    return hall.foresee(waiting, candidate.full_name)


def _patience(candidate: GateCandidate, is_blind: bool) -> float:
    """How long a run that is in may take until all its pods have a node."""
    return min(candidate.gate_s, BLIND_S) if is_blind else candidate.gate_s


def back_off_s(uid: str, tries: int) -> float:
    """How long to wait after having been put back so often: doubling, and spread so that rivals do not meet again."""
    delay = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0 ** min(tries - 1, 20))
    part = int.from_bytes(hashlib.sha256(f"{uid}:{tries}".encode()).digest()[:4], "big") / 2**32
    return delay * (1 + JITTER * part)


def _qualified(candidate: GateCandidate) -> GateCandidate:
    """The candidate with pod names that no pod of the cluster has: its pods do not exist yet."""
    pods = tuple(_renamed(candidate, pod) for pod in candidate.pods)
    elastic = candidate.elastic
    if elastic is not None:
        renamed = tuple(_renamed(candidate, pod) for pod in elastic.pods)
        elastic = msgspec.structs.replace(elastic, pods=renamed)
    return msgspec.structs.replace(
        candidate, pods=pods, elastic=elastic, placed=tuple(f"{candidate.run}/{name}" for name in candidate.placed)
    )


def _renamed(candidate: GateCandidate, pod: Pod) -> Pod:
    name = f"{candidate.run}/{pod.name}"
    return msgspec.structs.replace(pod, name=name, namespace=candidate.namespace, run=candidate.run, node=None)


def _look_after(candidate: GateCandidate, now: float, gate_s: float) -> Admission:
    """A run that is in: does it get all its pods? Pulling an image or starting is no failure."""
    total = len(candidate.pods)
    is_late = candidate.let_in is not None and now - candidate.let_in >= gate_s
    if not is_late or candidate.ready >= total or not (candidate.unschedulable or candidate.not_made):
        reason = f"{len(candidate.placed)} of {total} pods have a node" if candidate.made else "its pods are being made"
        reason = reason if candidate.rest else ""
        return Admission(
            run=candidate.run, namespace=candidate.namespace, action="keep", reason=reason, tries=candidate.tries
        )
    tries = candidate.tries + 1
    delay = back_off_s(candidate.uid, tries)
    troubles = [f"{candidate.unschedulable} of {total} pods found no node"] if candidate.unschedulable else []
    troubles += [f"{candidate.not_made} of {total} pods were not made"] if candidate.not_made else []
    reason = f"re-queued: {' and '.join(troubles)} within {gate_s:g} s; tries again in {delay:.0f} s"
    return Admission(
        run=candidate.run,
        namespace=candidate.namespace,
        action="put_back",
        reason=reason,
        not_before=now + delay,
        tries=tries,
    )


def _blind(waiting: list[GateCandidate], inside: list[GateCandidate], now: float) -> list[Admission]:
    """Admission without rights to list nodes: one gang at a time, so that no two deadlock on partial placement."""
    unfinished = next((candidate for candidate in inside if candidate.rest), None)
    admissions = []
    # A run that was put back may never fit, and without nodes that cannot be known: those put back least go first.
    for candidate in sorted(waiting, key=lambda gate_candidate: gate_candidate.tries):
        if now < candidate.not_before:
            admissions.append(_wait(candidate, _pause(candidate, now)))
        elif unfinished is not None:
            is_near = unfinished.namespace == candidate.namespace
            run = unfinished.run if is_near else "a run of another namespace"
            admissions.append(_wait(candidate, f"waits until all pods of {run} have a node"))
        else:
            admissions.append(_let_in(candidate))
            unfinished = candidate
    return admissions


def _wait(candidate: GateCandidate, reason: str) -> Admission:
    return Admission(
        run=candidate.run,
        namespace=candidate.namespace,
        action="wait",
        reason=reason,
        not_before=candidate.not_before,
        tries=candidate.tries,
        is_held=bool(candidate.held),
    )


def _let_in(candidate: GateCandidate, reason: str = "") -> Admission:
    return Admission(
        run=candidate.run, namespace=candidate.namespace, action="let_in", reason=reason, tries=candidate.tries
    )


def _pause(candidate: GateCandidate, now: float) -> str:
    left = candidate.not_before - now
    if candidate.tries:
        return f"was re-queued because not all its pods found a node; tries again in {left:.0f} s"
    return f"its next attempt starts in {left:.0f} s"


class _Hall:
    """One round of admission: the fleet, filled up while runs are admitted."""

    def __init__(
        self, room: ClusterUsage, everyone: list[GateCandidate], inside: list[GateCandidate], now: float
    ) -> None:
        self.now = now
        self.inside = inside
        self.blocked: list[BlockedGang] = []
        self.wanted: dict[str, WantedSize] = {}  # of elastic runs that are in
        nodes = {node.name: node for node in room.nodes}
        upcoming = [
            upcoming_node
            for upcoming_node in room.upcoming
            if _is_booting(upcoming_node, nodes.get(upcoming_node.shape.name))
        ]
        for machine in upcoming:
            nodes.pop(machine.shape.name, None)
        self.fleet = Fleet(nodes.values(), room.pods)
        self.wait_reasons = WaitReasons(self.fleet)
        for candidate in inside:
            if not isinstance(take(candidate.rest, self.fleet, explain=False), Placement):
                take_each(candidate.rest, self.fleet)
        # Pods of others that the scheduler is about to place. Those it found no node for hold nothing.
        ours = {(candidate.namespace, candidate.run) for candidate in everyone}
        take_each([pod for pod in room.pods if _is_coming(pod) and (pod.namespace, pod.run) not in ours], self.fleet)
        # A retry keeps what it had, also from those who are more urgent.
        self.reserved = {
            (gate_candidate.namespace, gate_candidate.run): gate_candidate.elastic.size if gate_candidate.elastic else 0
            for gate_candidate in map(self._fitting, everyone)
            if gate_candidate.let_in is None
            and gate_candidate.is_recovering
            and not gate_candidate.tries
            and isinstance(take(gate_candidate.pods, self.fleet, explain=False), Placement)
        }
        ends = {
            (candidate.namespace, candidate.run): candidate.let_in + candidate.lasts_s
            for candidate in inside
            if candidate.let_in is not None and candidate.lasts_s is not None
        }
        self.backfill = Backfill(
            self.fleet, now, end_of=lambda pod: ends.get((pod.namespace, pod.run or "")), upcoming=upcoming
        )

    def serve(self, waiting: list[GateCandidate]) -> list[Admission]:
        # Reasons are written last: they tell what is free after all that fit are admitted.
        judged = [self._judge(candidate) for candidate in waiting]
        running = [
            RunningGang(gang=self._gang(each, each.pods), order=each.order, elastic=each.elastic)
            for each in self.inside
            if each.elastic is not None and not each.rest
        ]
        self.wanted = wanted_sizes(running, self.blocked, self.backfill, self.fleet)
        self.backfill.close()
        return [admission if isinstance(admission, Admission) else admission() for admission in judged]

    def foresee(self, waiting: list[GateCandidate], name: str) -> Prospect:
        judged = {candidate.full_name: self._judge(candidate) for candidate in waiting}
        answer = judged[name]
        if isinstance(answer, Admission) and answer.action == "let_in":
            return Prospect(starts=True)
        pods = next(candidate.pods for candidate in waiting if candidate.full_name == name)
        is_possible = self._roomy.never(pods) is None
        start = self.backfill.start_of(name) if is_possible else None
        self.backfill.close()
        reason = (answer if isinstance(answer, Admission) else answer()).reason
        return Prospect(is_possible=is_possible, start=start, reason=reason)

    def _judge(self, candidate: GateCandidate) -> Admission | Callable[[], Admission]:
        if self.now < candidate.not_before:
            return _wait(candidate, _pause(candidate, self.now))
        if (candidate.namespace, candidate.run) in self.reserved:
            size = self.reserved[(candidate.namespace, candidate.run)]
            answer = _let_in(candidate)
            return (
                answer if candidate.elastic is None or size is None else self._at_size(answer, candidate.elastic, size)
            )
        if candidate.elastic is not None:
            return self._judge_sizes(candidate, candidate.elastic)
        return self._judge_pods(candidate, candidate.pods)

    def _fitting(self, candidate: GateCandidate) -> GateCandidate:
        """A retry of an elastic run keeps as much of what it had as there still is."""
        elastic = candidate.elastic
        if elastic is None or candidate.let_in is not None or not candidate.is_recovering:
            return candidate

        def fits(size: int) -> bool:
            return isinstance(place(elastic.at(size), self.fleet, explain=False), Placement)

        size = largest([size for size in elastic.offered if size <= elastic.size], fits) or elastic.size
        smaller = msgspec.structs.replace(elastic, size=size)
        return msgspec.structs.replace(candidate, pods=elastic.at(size), elastic=smaller)

    def _gang(self, candidate: GateCandidate, pods: Sequence[Pod]) -> QueuedGang:
        waited_s = max(self.now - candidate.created, 0.0)
        return QueuedGang(name=candidate.full_name, pods=tuple(pods), lasts_s=candidate.lasts_s, waited_s=waited_s)

    def _judge_pods(self, candidate: GateCandidate, pods: Sequence[Pod]) -> Admission | Callable[[], Admission]:
        gang = self._gang(candidate, pods)
        verdict = self.backfill.judge(gang)
        if verdict.starts:
            return _let_in(candidate, passing(candidate.namespace, verdict.passes))
        if not verdict.is_possible:
            never = self._roomy.never(pods)
            return _wait(candidate, never or "waits")
        self.blocked.append(BlockedGang(gang=gang, order=candidate.order))
        before = self.wait_reasons.before(pods)
        shortfall = self.wait_reasons.note(candidate.full_name, pods, before)
        if verdict.delays is not None:
            return _wait(candidate, delaying(candidate.namespace, verdict.delays, before))
        return lambda: _wait(candidate, self.wait_reasons.words(candidate.namespace, pods, before, shortfall))

    def _judge_sizes(self, candidate: GateCandidate, elastic: ElasticPods) -> Callable[[], Admission]:
        """An elastic run gets the largest size that fits; while none does it waits for its smallest."""

        def fits(size: int) -> bool:
            return self.backfill.could_start(self._gang(candidate, elastic.at(size)))

        is_settled = elastic.fits and fits(elastic.size)
        size = elastic.size if is_settled else largest(elastic.offered, fits)
        chosen = elastic.offered[0] if size is None else size
        answer = self._judge_pods(candidate, elastic.at(chosen))
        return lambda: self._at_size(answer if isinstance(answer, Admission) else answer(), elastic, chosen)

    def _at_size(self, admission: Admission, elastic: ElasticPods, size: int) -> Admission:
        """Once all are judged: why it is no larger, and whether it is made anew first."""
        larger = elastic.next_above(size)
        fits, why = admission.action == "let_in", ""
        if fits and larger is not None:
            more = elastic.between(size, larger)
            words = self.wait_reasons.words(admission.namespace, more, RunsAhead(), None).partition("; held by")[0]
            kept = "what is free is kept for runs before it" if words == "waits" else words
            why = f"{counted(larger - size, 'more node')}: {kept}"
        action: Action = "resize" if size != elastic.size else admission.action
        return msgspec.structs.replace(admission, action=action, size=size, size_reason=why, fits=fits)

    @functools.cached_property
    def _roomy(self) -> WaitReasons:
        return WaitReasons(self.backfill.roomy)


def _is_booting(machine: UpcomingNode, node: NodeShape | None) -> bool:
    """Whether it is still to come: no node yet, or one with taints of its start or without its devices."""
    if node is None:
        return True
    lacks = any(is_scarce(name) and node.has(name) < count for name, count in machine.shape.allocatable)
    return lacks or not set(node.taints) <= set(machine.shape.taints)


def _is_coming(pod: Pod) -> bool:
    return pod.node is None and not (pod.is_finished or pod.is_gated or pod.is_unschedulable or pod.is_terminating)
