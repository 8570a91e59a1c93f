"""Surviving members of a gang after one has died: when they are told to end, and when they are deleted. Pure.

Launchers that have met end each other by themselves (the line). Those that never met the dead one wait for it, for
minutes; those that lost their connection to it wait for it to come back. Whoever sees the pods knows better.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from longboat.core.first_failure import NEVER_STARTED
from longboat.core.jobs import Value
from longboat.engines.kubernetes.gate.departure import asks_to_save, is_due
from longboat.engines.kubernetes.gate.resizing import writer_to_ask
from longboat.engines.kubernetes.observe.node_loss import is_host_well, is_reachable
from longboat.engines.kubernetes.observe.progress import awaited_members, members_of
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot, has_moved
from longboat.engines.kubernetes.observe.termination import PodEnd
from longboat.engines.kubernetes.reconcile.actions import Action, AskToSave, Delete, EndForSize, Resize, SendStop
from longboat.engines.kubernetes.records import State, expected_nodes, replaces_pods

SETTLING_S = 5.0
"""Launchers that have met are given so long to hear of a death by themselves: what they say then says more."""
KILLED_S = 1.0
"""A launcher that was killed, as the kubelet says, says nothing more. Where other ranks failed because of that, node 0
knows it within milliseconds; the kubelet looks once a second."""
LINGER_S = 10.0
"""After the grace of the ranks, a launcher has so long to write down how they ended."""
CLOSING_S = 1800.0
"""So long the nodes of a gang that has failed may take to send a checkpoint to its store, to copy artifacts and to wait
for readers of their logs: hundreds of gigabytes. After that a launcher hangs."""
LINE_LOST_S = 30.0
"""Launchers that have not heard of each other for so long end their ranks (`launcher/pod/gang_file.py`)."""
TELL_S = 30.0
"""After its grace, a gang that was told to stop has so long to be gone."""


TOLD_AGAIN_S = 5.0
"""A launcher that could not be told to end for another size, or to ask for a checkpoint, is told again then."""


class SurvivorDeadline(Value, frozen=True):
    """The rest of an attempt is to end: told from then on with this grace, deleted after that."""

    tell_at: float
    drop_at: float
    grace_s: float


def dead_members(snapshot: RunSnapshot) -> list[str]:
    """Members of the attempt under way that ended in failure, were lost, or whose pods are gone."""
    state = snapshot.state
    pods = {pod.node: pod for pod in snapshot.pods_of(state.attempt)}
    awaited = set(awaited_members(snapshot))  # once: half of a large gang may be gone
    return [member for member in members_of(snapshot) if _is_dead(member, pods, snapshot, awaited)]


def _is_dead(member: str, pods: dict[str, PodView], snapshot: RunSnapshot, awaited: Set[str]) -> bool:
    pod = pods.get(member)
    if pod is None and member in awaited:
        return False
    if pod is None:
        return bool(pods) and (snapshot.state.phase == "running" or member in snapshot.failed_nodes)
    return pod.end is not None and _has_failed(pod.end)


def _has_failed(end: PodEnd) -> bool:
    return bool(end.exit_code) or end.cause is not None


def survivor_deadline(snapshot: RunSnapshot) -> SurvivorDeadline | None:
    """When surviving members must end; None while no member has failed. `state.broken`: first seen failed."""
    grace_s = snapshot.record.job.grace_s
    pods = {pod.node: pod for pod in snapshot.pods_of(snapshot.state.attempt)}
    first = pods.get(expected_nodes(snapshot.record.job)[0])
    end = first.end if first is not None else None
    if end is not None and end.said is not None and end.said.gang is not None and end.ended is not None:
        # Node 0 has waited for the ranks of all that it knew of. Of a gang that never met, who is left never heard of
        # it; of any other, who is left keeps what is to be kept.
        has_met = end.said.gang.cause not in (*NEVER_STARTED, "lost")
        if end.said.started is None and snapshot.record.checkpoint_store is None:
            has_met = False  # taken away after a restart in place, when another one had not come back yet
        is_closing = has_met and any(pod.end is None and _was_there(pod, end) for pod in pods.values())
        if _are_spares([pod for pod in pods.values() if pod.end is None], snapshot, end):
            return SurvivorDeadline(tell_at=end.ended + SETTLING_S, drop_at=end.ended + LINGER_S, grace_s=0.0)
        due = end.ended + max(CLOSING_S if is_closing else 0.0, grace_s + LINGER_S)
        return SurvivorDeadline(tell_at=due, drop_at=due + LINGER_S, grace_s=0.0)
    dead = dead_members(snapshot)
    if not dead or not snapshot.state.broken:
        return None
    settles_s = SETTLING_S if replaces_pods(snapshot.record) else KILLED_S  # in place they may go on without it
    wait_s = min(_wait_s(pods.get(member), grace_s, settles_s) for member in dead)
    tell_at = snapshot.state.broken + wait_s
    return SurvivorDeadline(tell_at=tell_at, drop_at=tell_at + grace_s + TELL_S, grace_s=grace_s)


def _are_spares(left: Sequence[PodView], snapshot: RunSnapshot, first: PodEnd) -> bool:
    """Whether who is left are spares that have not heard of the end: nobody ever needed them, and they keep nothing."""
    nodes = {role.name: role.nodes for role in snapshot.record.job.roles}
    is_natural = first.said is not None and not has_moved(first.said, snapshot.state.attempt)
    return bool(left) and is_natural and all(pod.index >= nodes.get(pod.role, 0) for pod in left)


def _was_there(pod: PodView, first: PodEnd) -> bool:
    """Whether it may have taken part in what node 0 has ended; one that was made later has nothing to keep."""
    return pod.started is None or first.ended is None or pod.started < first.ended


def is_going(pod: PodView, now: float) -> bool:
    """Whether ranks of a pod that came too late may run: it is being deleted, and one that does not go is fenced."""
    since = pod.deleting_since
    return pod.end is None and (since is None or now < since + LINGER_S)


def _wait_s(pod: PodView | None, grace_s: float, killed_s: float) -> float:
    """How long the launchers are left to themselves after a death; `killed_s`: after that of one that was killed."""
    if pod is None or pod.end is None:
        return SETTLING_S
    if pod.is_lost:
        return 0.0  # its node has been silent for longer than launchers wait for each other
    if pod.end.said is None or pod.end.cause in NEVER_STARTED:
        return killed_s if pod.is_killed else SETTLING_S
    # It told node 0, which ends the others with their grace; they then keep what is left to keep.
    return max(CLOSING_S, grace_s + LINGER_S)


def end_survivors(snapshot: RunSnapshot, now: float) -> tuple[tuple[Action, ...], float | None]:
    """Members that outlive one of their own are told to end, and at last deleted; else when that will be.

    Node 0 is told once: a launcher that is told again when it has ended is one that cannot be reached, whose pods are
    deleted with their logs.
    """
    hurry = survivor_deadline(snapshot)
    left = [pod for pod in snapshot.pods_of(snapshot.state.attempt) if pod.end is None]
    if hurry is None or not left:
        return (), None
    if now < hurry.tell_at:
        return (), hurry.tell_at
    if now >= hurry.drop_at:
        return tuple(Delete(pod=pod.name, uid=pod.uid) for pod in left), now + LINGER_S
    first = expected_nodes(snapshot.record.job)[0]
    if snapshot.state.told_when >= hurry.tell_at and any(pod.node == first for pod in left):
        return (), hurry.drop_at
    return tuple(SendStop(pod=pod.name, grace_s=hurry.grace_s) for pod in pods_to_stop(left, snapshot)), now + LINGER_S


def with_told(state: State, actions: Sequence[Action], now: float) -> State | None:
    """The state once these are carried out, where they tell members to end."""
    is_telling = any(isinstance(action, SendStop) for action in actions)
    return msgspec.structs.replace(state, told_when=now) if is_telling else None


def pods_to_stop(pods: Sequence[PodView], snapshot: RunSnapshot) -> list[PodView]:
    """Pods whose launchers are told to stop: node 0's, which tells all others; without it, all."""
    reachable = [pod for pod in pods if is_reachable(pod, snapshot)]
    first = expected_nodes(snapshot.record.job)[0]
    return [pod for pod in reachable if pod.node == first] or reachable


def size_actions(snapshot: RunSnapshot, now: float) -> tuple[tuple[Action, ...], float | None]:
    """What another size takes, and when it is told again that the gang is to end for it."""
    state, grace_s = snapshot.state, snapshot.record.job.grace_s
    if state.target is not None and state.phase == "running":
        due = state.told_when + grace_s + TELL_S
        left = [pod for pod in snapshot.pods_of(state.attempt) if pod.end is None] if now >= due else []
        ends = tuple(EndForSize(pod=pod.name, grace_s=grace_s) for pod in pods_to_stop(left, snapshot))
        return ends, max(due, now + TOLD_AGAIN_S)
    if asks_to_save(snapshot, now):
        left = [pod for pod in snapshot.pods_of(state.attempt) if pod.end is None]
        return tuple(AskToSave(pod=pod.name) for pod in pods_to_stop(left, snapshot)), now + TOLD_AGAIN_S
    pod, size = writer_to_ask(snapshot), state.wanted
    waits = not is_due(state, now) if state.departure is not None else snapshot.record.job.grow != "now"
    return (() if pod is None or size is None else (Resize(pod=pod, size=size, waits=waits),)), None


def settling_s(snapshot: RunSnapshot, now: float) -> float:
    """Seconds in which ranks of a lost pod may still be ending on their node, within their grace period."""
    state, job = snapshot.state, snapshot.record.job
    pods = {pod.node: pod for pod in snapshot.pods_of(state.attempt)}
    silent = [pod.end.ended for pod in pods.values() if pod.is_lost and pod.end is not None and pod.end.ended]
    # One that is cut off but alive ends its ranks by itself when it has heard nothing of the others for a while.
    cut_off_s = max(silent) + LINE_LOST_S + job.grace_s + SETTLING_S - now if silent and job.nodes > 1 else 0.0
    is_removed = any(attempt.number == state.attempt and attempt.failure is not None for attempt in state.attempts)
    vanished = [member for member in members_of(snapshot) if member not in pods]
    if is_removed or state.started is None or _is_end_known(snapshot, vanished):
        return max(0.0, cut_off_s)
    return max(cut_off_s, job.grace_s + SETTLING_S)


def _is_end_known(snapshot: RunSnapshot, vanished: Sequence[str]) -> bool:
    """Whether the ranks of pods that are gone have surely ended."""
    pods = {pod.node: pod for pod in snapshot.pods_of(snapshot.state.attempt)}
    first = pods.get(expected_nodes(snapshot.record.job)[0])
    said = first.end.said if first is not None and first.end is not None else None
    if said is not None and said.gang is not None and said.gang.cause != "lost":
        return True  # node 0 waited for all others
    # A Job counts an index as failed when the kubelet has said that the pod is over, or when its node is gone.
    return all(is_host_well(snapshot, member) for member in vanished)
