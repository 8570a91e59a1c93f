"""Progress of an attempt, from its pods and its queue, and what is worth remembering when it has ended. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from longboat.core.jobs import Value
from longboat.core.runs import Phase, RankStatus
from longboat.core.words import counted, listing
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot
from longboat.engines.kubernetes.records import all_pods, expected_nodes, replaces_pods
from longboat.metrics.usage import usage_of

FACTS = 12  # lines of `status`; of a large gang the first show what happens


class Progress(Value, frozen=True):
    phase: Phase
    reason: str = ""
    is_complete: bool = False  # every node's launcher has started
    started: float | None = None


def progress_of(snapshot: RunSnapshot) -> Progress:
    """Progress of the current attempt, which has not ended."""
    attempt = snapshot.state.attempt
    pods = snapshot.pods_of(attempt)
    wanted = members_of(snapshot)
    begun = {pod.node for pod in pods if pod.is_started}
    if begun >= set(wanted):
        starts = [pod.started for pod in pods if pod.started is not None]
        return Progress(phase="running", is_complete=True, started=max(starts, default=None))
    awaited = awaited_members(snapshot)
    if awaited and set(wanted) <= begun | set(awaited):
        reason = f"{listing(awaited, 3)}: the pod is replaced, the others wait for it"
        if set(wanted) <= {pod.node for pod in pods}:
            reason += f"; {_starting_reason(pods, wanted)}"
        return Progress(phase="running", reason=reason, is_complete=True)
    workloads = snapshot.workloads_of(attempt)
    if workloads and all(workload.is_suspended for workload in workloads):
        return Progress(phase="pending", reason=_queue_reason(snapshot))
    there = {pod.node for pod in pods}
    gone = [node for node in wanted if node not in there]
    if gone and snapshot.state.phase == "running":
        reason = f"no pod of {listing(gone, 3)} is left" + ("; the others are ending" if pods else "")
        return Progress(phase="running", reason=reason, is_complete=True)
    if any(pod.is_scheduled for pod in pods):
        unplaced = [pod for pod in pods if not pod.is_scheduled]
        return Progress(phase="pending" if unplaced else "starting", reason=_starting_reason(pods, wanted))
    return Progress(phase="pending", reason=_starting_reason(pods, wanted))


def members_of(snapshot: RunSnapshot) -> list[str]:
    """Pods that make up the gang, node 0 first. Where spares took places that are as many of each role as it has nodes:
    which of them plays which node is known to their launchers, and those that are well are taken to be in it."""
    job = snapshot.record.job
    natural = expected_nodes(job)
    if not job.spares or snapshot.state.phase != "running":
        return natural  # its ranks have not started: no spare takes a place before that
    pods = {pod.node: pod for pod in snapshot.pods_of(snapshot.state.attempt)}
    members: list[str] = []
    for role in job.roles:
        names = [f"{role.name}-{index}" for index in range(role.pods)]
        names.sort(key=lambda name: (name != natural[0], not _is_well(pods.get(name))))  # else in their order
        members += names[: role.nodes]
    chosen = set(members)
    return [name for name in all_pods(job) if name in chosen]


def _is_well(pod: PodView | None) -> bool:
    return pod is not None and pod.is_started and (pod.end is None or not (pod.end.exit_code or pod.end.cause))


def awaited_members(snapshot: RunSnapshot) -> list[str]:
    """Members of a gang that runs whose pods are made anew by their Jobs: not there yet, or not started.

    Not node 0, without which there is no gang to come back to; nor one whose index has failed.
    """
    if snapshot.state.phase != "running" or not replaces_pods(snapshot.record):
        return []
    there = {pod.node: pod for pod in snapshot.pods_of(snapshot.state.attempt)}
    members = [member for member in members_of(snapshot)[1:] if member not in snapshot.failed_nodes]
    late = [member for member in members if member not in there or _is_late(there[member])]
    return late if there else []


def _is_late(pod: PodView) -> bool:
    return not pod.is_started and pod.end is None


def _queue_reason(snapshot: RunSnapshot) -> str:
    record, queue = snapshot.record, snapshot.queue
    if record.gated_by != "kueue":
        return snapshot.state.gate.reason
    place = f"the queue {record.queue}" if record.queue else "its queue"
    return queue.message if queue is not None and queue.message else f"waits for {place}"


def _starting_reason(pods: Sequence[PodView], wanted: Sequence[str]) -> str:
    troubled = next((pod for pod in pods if pod.trouble is not None), None)
    if troubled is not None and troubled.trouble is not None:
        return f"node {troubled.node}: {troubled.trouble.what}"
    unplaced = [pod for pod in pods if not pod.is_scheduled and pod.end is None]
    if unplaced:
        from longboat.engines.kubernetes.explain.unschedulable import scheduler_reasons  # all of `fitting`

        reasons = scheduler_reasons(next((pod.message for pod in unplaced if pod.message), ""))
        verb = "waits" if len(unplaced) == 1 else "wait"
        return f"{_nodes(unplaced)} {verb} for a place" + (f": {'; '.join(reasons)}" if reasons else "")
    if len(pods) < len(wanted):
        return "its pods are being created"
    slow = [pod for pod in pods if not pod.is_started]
    words = Counter(pod.waiting or "ContainerCreating" for pod in slow)
    if set(words) <= {"ContainerCreating", "PodInitializing"}:
        return f"{_nodes(slow)}: image and volumes are being made ready" if slow else ""
    return f"{_nodes(slow)}: {', '.join(sorted(words))}"


def _nodes(pods: Sequence[PodView]) -> str:
    return listing([pod.node for pod in pods], 3)


def ended_ranks(pod: PodView) -> list[RankStatus]:
    """The ranks of an ended pod, by its launcher's last words; metrics only of the one that came furthest."""
    said = pod.end.said if pod.end is not None else None
    return [
        RankStatus(
            rank=end.rank,
            role=pod.role,
            node=pod.node,
            alive=False,
            step=end.step,
            metrics=said.metrics if end is said.furthest else {},
            exit_code=end.exit_code,
            usage=usage_of(said.usage if end is said.furthest else None),
        )
        for end in (said.ranks if said is not None else ())
        if said is not None
    ]


def facts_of(snapshot: RunSnapshot) -> tuple[str, ...]:
    """Facts about the pods when the attempt ended, kept for when they are gone."""
    facts = []
    for pod in sorted(snapshot.pods_of(snapshot.state.attempt), key=lambda view: (view.role, view.index)):
        if pod.end is None or (pod.end.exit_code == 0 and pod.end.cause is None):
            continue
        words = [word for word in (pod.end.reason, f"exit code {pod.end.exit_code}") if word]
        where = f" on {pod.host}" if pod.host else ""
        facts.append(f"pod {pod.name} ({pod.node}){where}: {', '.join(words)}")
    more = len(facts) - FACTS
    return (*facts[:FACTS], f"and {counted(more, 'more pod')}") if more > 0 else tuple(facts)
