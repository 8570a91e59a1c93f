"""Nodes of the cluster that are lost or silent, and what that means for a run's pods. Pure.

A pod on a lost node counts as ended: its kubelet will not tell how it ended, and nobody may wait for that. What follows
for the attempt is decided in `decide`, who is to blame in `attempt_outcome`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from longboat.core.errors import RUN_LOST_EXIT
from longboat.core.words import listing
from longboat.engines.kubernetes.observe.snapshot import HostView, PodView, RunSnapshot
from longboat.engines.kubernetes.observe.termination import PodEnd
from longboat.engines.kubernetes.records import State

NODE_LOST = "NodeLost"
LEAST_LOST_S = 10.0
"""A kubelet renews its Lease every 10 s: less silence than that says nothing, whatever a record asks for."""
LATE_S = 5.0
"""A pod that should be gone for this long, or that outlives a dead one of its gang for so long, is looked into."""
SLOW_S = 10.0
"""So long a container usually takes to start; the node of one that takes longer may be lost."""
MOST_HOSTS = 128
"""Pods whose node is remembered in the state: it is written anew at every change, and read by every list."""


def doubtful_hosts(state: State, pods: Sequence[PodView], now: float) -> set[str]:
    """Nodes to be looked at: of pods that are not ready, late to start or to end, or the last of a gang. Pure."""
    current = [pod for pod in pods if pod.attempt == state.attempt]
    dead = [pod.end.ended or 0.0 for pod in current if pod.end is not None and pod.end.exit_code]
    is_ending = bool(dead) and min(dead) < now - LATE_S
    hosts = set()
    for pod in current if not state.is_final else ():
        if pod.host and _ended_without_message(pod):
            hosts.add(pod.host)
    for pod in pods:
        is_late = pod.deleting_since is not None and pod.deleting_since < now - LATE_S
        is_slow = not pod.is_started and pod.created < now - SLOW_S
        if pod.host and pod.end is None and (pod.is_unready or is_late or is_slow or is_ending):
            hosts.add(pod.host)
    if state.departure is not None and not state.is_final:
        hosts |= {name for name in state.departure.hosts if any(pod.host == name for pod in current)}
    if current and not state.is_final:
        there = {pod.node for pod in current}
        hosts |= {host for member, host in state.hosts.items() if member not in there}
    return hosts


def _ended_without_message(pod: PodView) -> bool:
    """Whether the cluster ended the pod, and its launcher had no word in it: so end pods whose node is deleted."""
    return pod.end is not None and pod.end.said is None and pod.end.cause in ("lost", "preemption")


def first_doubt(snapshot: RunSnapshot) -> float | None:
    """When the nodes of pods that outlive a failed member of their gang are looked at; None: no such pods."""
    current = snapshot.pods_of(snapshot.state.attempt)
    dead = [pod.end.ended for pod in current if pod.end is not None and pod.end.exit_code and pod.end.ended]
    if not dead or snapshot.state.is_final or all(pod.end for pod in current):
        return None
    return min(dead) + LATE_S


def is_lost(host: HostView, limit_s: float, now: float) -> bool:
    if not host.is_there:
        return True
    return host.not_ready_since is not None and now - host.not_ready_since >= limit_s


def limit_of(snapshot: RunSnapshot) -> float:
    """Seconds of silence after which a node is lost. A run that is being stopped waits for no silent node."""
    return 0.0 if snapshot.stop is not None else max(LEAST_LOST_S, snapshot.record.node_lost_s)


def with_losses(snapshot: RunSnapshot, now: float) -> RunSnapshot:
    """The run with an end for every pod whose node is lost."""
    limit_s = limit_of(snapshot)
    lost = {name: host for name, host in snapshot.hosts.items() if is_lost(host, limit_s, now)}
    if not lost:
        return snapshot
    pods = tuple(_with_loss(pod, lost.get(pod.host or "")) for pod in snapshot.pods)
    judged = {name: msgspec.structs.replace(host, is_lost=True) for name, host in lost.items()}
    return msgspec.structs.replace(snapshot, pods=pods, hosts={**snapshot.hosts, **judged})


def _with_loss(pod: PodView, host: HostView | None) -> PodView:
    if host is None or (pod.end is not None and (host.is_there or not _ended_without_message(pod))):
        return pod
    end = PodEnd(
        exit_code=RUN_LOST_EXIT,
        cause="lost",
        message=loss_words(pod.node, host),
        reason=NODE_LOST,
        started=pod.started,
        ended=host.not_ready_since,
    )
    return msgspec.structs.replace(pod, end=end, is_running=False, is_lost=True)


def loss_words(member: str, host: HostView) -> str:
    """Message about the lost node of a gang member."""
    if not host.is_there:
        return f"node {host.name} ({member}) is gone from the cluster"
    if host.said:
        return f"node {host.name} ({member}) was lost: it is not ready: {host.said}"
    return f"node {host.name} ({member}) was lost: nothing is heard of it any more"


def vanished_on_lost_host(snapshot: RunSnapshot, members: list[str]) -> str:
    """Words for members whose pods are gone together with their node; empty where their nodes are well or unknown."""
    for member in members:
        host = snapshot.hosts.get(snapshot.state.hosts.get(member, ""))
        if host is not None and host.is_lost:
            return loss_words(member, host)
    return ""


def is_host_well(snapshot: RunSnapshot, member: str) -> bool:
    """Whether the node that a member ran on is known to be there and ready."""
    host = snapshot.hosts.get(snapshot.state.hosts.get(member, ""))
    return host is not None and host.is_there and host.not_ready_since is None


def silence_words(snapshot: RunSnapshot) -> str:
    """Which nodes of the attempt under way are lost, or silent and when they are given up; empty where none is."""
    pods = snapshot.pods_of(snapshot.state.attempt)
    lost = [pod.end.message for pod in pods if pod.is_lost and pod.end is not None]
    if lost:
        return f"{lost[0]}; the others are ending"
    texts = []
    limit_s = limit_of(snapshot)
    for pod in pods:
        host = snapshot.hosts.get(pod.host or "")
        if pod.end is None and host is not None and host.not_ready_since is not None:
            state = "is not ready" if host.said else "is silent"
            texts.append(f"node {host.name} ({pod.node}) {state} and is given up after {limit_s:g} s")
    return listing(texts, 3, separator="; ")


def is_reachable(pod: PodView, snapshot: RunSnapshot) -> bool:
    """Whether the launcher in this pod may be asked: it runs, and nothing speaks against its node."""
    if not pod.is_running or pod.is_unready or pod.is_lost:
        return False
    host = snapshot.hosts.get(pod.host or "")
    return host is None or (host.is_there and host.not_ready_since is None)


def digests_of(snapshot: RunSnapshot) -> dict[str, str]:
    """By role the digest of its image: of the first pod of the latest attempt that has told it, else as noted."""
    digests = {pod.role: pod.digest for pod in reversed(snapshot.pods_of(snapshot.state.attempt)) if pod.digest}
    return {**snapshot.state.digests, **digests}


def noted_hosts(state: State, snapshot: RunSnapshot) -> dict[str, str]:
    """Which node each member runs on, for the day when its pod and its node are gone."""
    pods = snapshot.pods_of(state.attempt)
    if len(pods) > MOST_HOSTS:
        return state.hosts
    return {**state.hosts, **{pod.node: pod.host for pod in pods if pod.host}}
