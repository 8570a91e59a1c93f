"""RunSnapshot: a run's record, workloads, pods and nodes as values, made from what the API server answered. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from longboat.core.errors import LAUNCHER_KILLED_CODE, RUN_REPLACED_EXIT
from longboat.core.jobs import Value
from longboat.core.times import parse_time
from longboat.engines.kubernetes.explain.containers import StartTrouble, trouble_of
from longboat.engines.kubernetes.names import ATTEMPT, DOMAIN, HELD, INDEX, ROLE
from longboat.engines.kubernetes.observe.node_notices import TerminationNotice, notice_of
from longboat.engines.kubernetes.observe.termination import NodeEnd, PodEnd, container_of, outcome_of_pod
from longboat.engines.kubernetes.records import Record, State, expected_nodes, replaced_exits
from longboat.engines.lifecycle.predecessors import PredecessorView
from longboat.engines.shared.stop_request import StopRequest

LABEL = f"{DOMAIN}/"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""Annotation of a pod by the job controller, where an index may fail more than once."""
MONITOR_GRACE_S = 40.0
"""What the node controller waits for a silent kubelet before it says Unknown: its default, the shorter of two."""
LEASE_BELIEVED_S = 60.0  # a Lease that stopped long before says nothing about this silence: its clock may be wrong
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MOST_INDEXES = 100_000  # more than pods of any job here; anybody may write such a range
_NOT_THERE = re.compile(r'(?:volume "([^"]*)".*)?hostPath type check failed: (\S+) is not a (directory|file)')


class PodView(Value, frozen=True):
    name: str
    uid: str
    role: str
    index: int
    attempt: int
    phase: str = "Pending"
    created: float = 0.0
    host: str | None = None  # the machine it was bound to
    is_scheduled: bool = False
    is_started: bool = False  # its container runs or has run
    is_running: bool = False  # its container runs
    is_unready: bool = False  # the node controller took its Ready away while the container runs
    unready_since: float | None = None
    started: float | None = None
    waiting: str = ""  # why its container has not started: ErrImagePull, ...
    trouble: StartTrouble | None = None  # the same in our words
    message: str = ""  # in Kubernetes' words
    deleting_since: float | None = None  # when it should have been gone
    is_forced: bool = False  # deleted without a grace: only a finalizer keeps it
    is_lost: bool = False  # its node is lost; `end` is our judgement, nobody reported it
    tolerations: tuple[dict[str, Any], ...] = ()  # of one pod that was read whole, not of a list
    is_replaced: bool = False  # its launcher has asked for another pod in its place, as it ended
    is_killed: bool = False  # its launcher was killed: its Job makes another pod, where it does so at all
    successor: int = 0  # so many pods of its index had failed before it was made
    unhealthy_devices: tuple[str, ...] | None = None  # GPUs it has; None: the cluster does not tell (before 1.36)
    digest: str = ""  # of its image
    end: PodEnd | None = None

    @property
    def node(self) -> str:
        return f"{self.role}-{self.index}"


class WorkloadView(Value, frozen=True):
    """A Job or a JobSet of one attempt."""

    name: str
    uid: str
    attempt: int
    role: str = ""  # of a Job
    owner: str = ""  # uid of the record that owns it
    created: float = 0.0
    version: str = ""
    is_suspended: bool = False
    is_held: bool = False  # marked as held back by a budget
    is_deleting: bool = False
    failed: str | None = None  # why, in Kubernetes' words
    is_complete: bool = False


class QueueView(Value, frozen=True):
    """State of an attempt's Workload in Kueue."""

    is_evicted: bool = False
    message: str = ""


class HostView(Value, frozen=True):
    """A node of the cluster that somebody waits for."""

    name: str
    is_there: bool = True
    not_ready_since: float | None = None  # silent since then, or not ready by its kubelet's own word
    said: str = ""  # why it is not ready, in its kubelet's words; empty where it is silent
    leaving: TerminationNotice | None = None  # it is about to go
    is_lost: bool = False  # our judgement (`node_loss`)


class RunSnapshot(Value, frozen=True):
    """One run, observed at one moment."""

    record: Record
    state: State
    uid: str  # of the ConfigMap
    version: str
    record_hash: str = ""  # of the record's text
    made: float = 0.0  # when the ConfigMap was created, by the server's word
    submitter_alive: float = 0.0  # when its submitter last said that it still works on the first attempt
    keep_s: float | None = None  # its objects stay for so long after its end; None: until it is removed
    is_deleting: bool = False
    stop: StopRequest | None = None
    workloads: tuple[WorkloadView, ...] = ()
    pods: tuple[PodView, ...] = ()
    replaced: tuple[PodView, ...] = ()
    late: tuple[PodView, ...] = ()  # `RunPods`
    hosts: dict[str, HostView] = {}
    failed_nodes: frozenset[str] = frozenset()  # of the attempt under way: the Job says that their index failed
    queue: QueueView | None = None
    predecessors: dict[str, PredecessorView] | None = None  # of a chained run; None: nobody looked

    def workloads_of(self, attempt: int) -> tuple[WorkloadView, ...]:
        return tuple(workload for workload in self.workloads if workload.attempt == attempt)

    def pods_of(self, attempt: int) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if pod.attempt == attempt)


def pod_view(pod: Mapping[str, Any]) -> PodView:
    meta, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    labels = meta.get("labels") or {}
    container = container_of(pod) or {}
    state = container.get("state") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    waiting = state.get("waiting") or {}
    code = int((state.get("terminated") or {}).get("exitCode") or 0)
    unschedulable = conditions.get("PodScheduled", {})
    running = state.get("running")
    end = outcome_of_pod(pod)
    # Of a container that fails a probe of its own, ContainersReady is False too.
    is_unready = (
        running is not None
        and conditions.get("Ready", {}).get("status") == "False"
        and conditions.get("ContainersReady", {}).get("status") != "False"
    )
    return PodView(
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        role=str(labels.get(ROLE, "")),
        index=_number(labels.get(INDEX) or (meta.get("annotations") or {}).get(INDEX)),
        attempt=_number(labels.get(ATTEMPT)),
        phase=str(status.get("phase") or "Pending"),
        created=parse_time(meta.get("creationTimestamp")) or 0.0,
        host=spec.get("nodeName"),
        is_scheduled=bool(spec.get("nodeName")),
        is_started=running is not None or bool(state.get("terminated")),
        is_running=running is not None,
        is_unready=is_unready,
        unready_since=parse_time(conditions.get("Ready", {}).get("lastTransitionTime")) if is_unready else None,
        started=parse_time((running or {}).get("startedAt")) or (end.started if end else None),
        waiting=str(waiting.get("reason") or ""),
        trouble=trouble_of(pod) if end is None else None,
        message=str(waiting.get("message") or unschedulable.get("message") or status.get("message") or ""),
        deleting_since=parse_time(meta.get("deletionTimestamp")),
        tolerations=tuple(spec.get("tolerations") or ()),
        is_replaced=code == RUN_REPLACED_EXIT,
        is_killed=code == LAUNCHER_KILLED_CODE,
        successor=_number((meta.get("annotations") or {}).get(FAILURES)),
        is_forced="deletionTimestamp" in meta and meta.get("deletionGracePeriodSeconds") == 0,
        unhealthy_devices=_unhealthy_devices(container),
        digest="".join(_DIGEST.findall(str(container.get("imageID") or ""))[-1:]),
        end=end,
    )


class RunPods(Value, frozen=True):
    """The pods of a run, by what they are of its gang."""

    present: tuple[PodView, ...]  # one for a member
    replaced: tuple[PodView, ...] = ()  # ended, and others are in their place or will be
    late: tuple[PodView, ...] = ()  # made in the place of others when node 0 had ended, and node 0's own second one


def pods_of_gang(record: Record, pods: Iterable[PodView]) -> RunPods:
    """A member has one pod at a time. Node 0 is never replaced: it has the verdict, and the gang ends with it.

    Of an older version a rank may end so without a launcher's wish, on node 0 as well.
    """
    pods = sorted(pods, key=lambda pod: pod.created)
    exits = replaced_exits(record)
    if not exits:
        return RunPods(present=tuple(pods))
    first = expected_nodes(record.job)[0]
    heads: dict[int, PodView] = {}
    members: set[tuple[int, str]] = set()
    present: list[PodView] = []
    replaced: list[PodView] = []
    late: list[PodView] = []
    for pod in pods:
        if pod.node == first:
            (late if pod.attempt in heads else present).append(pod)
            heads.setdefault(pod.attempt, pod)
    for pod in pods:
        if pod.node == first:
            continue
        is_later = (pod.attempt, pod.node) in members or _is_spare(record, pod, heads.get(pod.attempt))
        if is_later and _is_too_late(pod, heads.get(pod.attempt)):
            late.append(pod)
        elif pod.is_replaced or (pod.is_killed and LAUNCHER_KILLED_CODE in exits):
            replaced.append(pod)
            members.add((pod.attempt, pod.node))
        else:
            present.append(pod)
    return RunPods(present=tuple(present), replaced=tuple(replaced), late=tuple(late))


def _is_spare(record: Record, pod: PodView, head: PodView | None) -> bool:
    """Whether it was made as a spare, or may be one by now: others have taken places."""
    if not record.job.spares:
        return False
    said = head.end.said if head is not None and head.end is not None else None
    nodes = next((role.nodes for role in record.job.roles if role.name == pod.role), 0)
    return pod.index >= nodes or (said is not None and has_moved(said, pod.attempt))


def has_moved(said: NodeEnd, first: int) -> bool:
    """Whether spares may have taken places since the attempt that made the pods: a message has room for the latest
    restarts alone."""
    return len(said.restarts) < said.attempt - first or any(end.spares for end in said.restarts)


def _is_too_late(pod: PodView, head: PodView | None) -> bool:
    """Whether node 0 had ended when this pod started: there was nothing that it could take part in."""
    ended = head.end.ended if head is not None and head.end is not None else None
    return ended is not None and (pod.started is None or pod.started >= ended)


def with_failed(snapshot: RunSnapshot, failed: frozenset[str]) -> RunSnapshot:
    """The run with members whose index its Jobs count as failed. Their last pods have no successors."""
    attempt = snapshot.state.attempt
    there = {pod.node for pod in snapshot.pods_of(attempt)}
    last = {pod.node: pod for pod in sorted(snapshot.replaced, key=lambda pod: pod.created) if pod.attempt == attempt}
    back = tuple(pod for member, pod in last.items() if member in failed - there)
    replaced = tuple(pod for pod in snapshot.replaced if pod not in back)
    return msgspec.structs.replace(snapshot, failed_nodes=failed, pods=(*snapshot.pods, *back), replaced=replaced)


def _unhealthy_devices(container: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Devices of a container that their plugin has given up. Their health may be unknown too: that says nothing."""
    statuses = container.get("allocatedResourcesStatus")
    devices = [device for resource in statuses or () for device in resource.get("resources") or ()]
    unhealthy = tuple(str(device.get("resourceID")) for device in devices if device.get("health") == "Unhealthy")
    return None if statuses is None else unhealthy


def mount_trouble(events: Iterable[Mapping[str, Any]]) -> StartTrouble | None:
    """Why a volume cannot be mounted, from the newest event of a pod; None: no such event."""
    ordered = sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    last = ordered[-1] if ordered else {}
    if last.get("reason") not in ("FailedMount", "FailedAttachVolume"):
        return None
    message = " ".join(str(last.get("message") or "").split())
    missing = _NOT_THERE.search(message)
    if missing:
        is_driver = (missing[1] or "").startswith("nvidia-")  # of `manifests.gpu_driver`
        kind = "folder" if missing[3] == "directory" else "file"
        text = f"{'the GPU driver' if is_driver else 'volumes'}: {missing[2]} is no {kind} of the node"
        hint = "`gpu` of the context's settings says where it is" if is_driver else "make it there, or use a claim"
        return StartTrouble(what=text, hint=hint, cause="setup", is_final=True)
    return StartTrouble(what=f"a volume cannot be mounted: {message[:300]}", hint="check `volumes`", cause="setup")


def workload_view(body: Mapping[str, Any]) -> WorkloadView:
    meta, spec, status = body.get("metadata") or {}, body.get("spec") or {}, body.get("status") or {}
    labels = meta.get("labels") or {}
    held = {
        condition.get("type"): condition
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    failed = held.get("Failed")
    return WorkloadView(
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        attempt=_number(labels.get(ATTEMPT)),
        role=str(labels.get(ROLE, "")),
        owner=owner_of(meta),
        created=parse_time(meta.get("creationTimestamp")) or 0.0,
        version=str(meta.get("resourceVersion", "")),
        is_suspended=bool(spec.get("suspend")),
        is_held=HELD in labels,
        is_deleting="deletionTimestamp" in meta,
        failed=None if failed is None else str(failed.get("message") or failed.get("reason") or "it failed"),
        is_complete="Complete" in held or "Completed" in held,
    )


def owner_of(meta: Mapping[str, Any]) -> str:
    """The uid of the record that owns an object; empty where none does."""
    owners = meta.get("ownerReferences") or ()
    return next((str(owner.get("uid", "")) for owner in owners if owner.get("kind") == "ConfigMap"), "")


def queue_view(workload: Mapping[str, Any], words: str = "") -> QueueView:
    """From Kueue's Workload; `words` say what it waits for."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    held = {
        condition.get("type"): condition.get("reason") for condition in conditions if condition.get("status") == "True"
    }
    # Pods that were not ready in time never ran together: the same attempt may be admitted again.
    is_evicted = "Evicted" in held and held["Evicted"] != "PodsReadyTimeout"
    return QueueView(is_evicted=is_evicted, message=words)


def host_view(name: str, node: Mapping[str, Any] | None, renewed: float | None = None) -> HostView:
    """A node as its Ready condition tells it; `renewed` is when its kubelet last renewed its Lease, where known.

    The node controller says Unknown only after a silence of its own (40 s, since Kubernetes 1.32 50 s, unless set
    otherwise); what counts is when the node was last heard of. The Lease bears the node's clock, so it is believed only
    within a minute of what the node controller saw.
    """
    if node is None:
        return HostView(name=name, is_there=False)
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") != "Ready" or condition.get("status") == "True":
            continue
        since = parse_time(condition.get("lastTransitionTime")) or 0.0
        if condition.get("status") == "False":
            said = str(condition.get("message") or condition.get("reason") or "not ready")
            return HostView(name=name, not_ready_since=since, said=" ".join(said.split())[:300])
        heard = parse_time(condition.get("lastHeartbeatTime")) or 0.0
        if renewed is not None:
            return HostView(name=name, not_ready_since=min(since, max(renewed, heard, since - LEASE_BELIEVED_S)))
        return HostView(name=name, not_ready_since=min(since, max(heard, since - MONITOR_GRACE_S)))
    return HostView(name=name, leaving=notice_of(node))


def failed_members(jobs: Iterable[Mapping[str, Any]], attempt: int) -> frozenset[str]:
    """Members of the gang (`worker-1`) whose index the Jobs of an attempt count as failed."""
    members: set[str] = set()
    for job in jobs:
        labels = (job.get("metadata") or {}).get("labels") or {}
        text = str((job.get("status") or {}).get("failedIndexes") or "")
        if _number(labels.get(ATTEMPT)) == attempt and text:
            members |= {f"{labels.get(ROLE, '')}-{index}" for index in _indexes(text)}
    return frozenset(members)


def _indexes(text: str) -> Iterable[int]:
    """Indexes of Kubernetes' short form: 1,3-5."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and int(last or first) - int(first) < MOST_INDEXES:
            yield from range(int(first), int(last or first) + 1)


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0
