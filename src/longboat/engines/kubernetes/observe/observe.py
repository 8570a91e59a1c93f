"""Reads one run from the cluster into a RunSnapshot: the record first, then its workloads, then their pods.

Three requests; one more for a run that waits in a Kueue queue, and one for each node that may be lost. The order
matters: what a state says has been made is seen by the lists that follow it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.errors import NotFound
from longboat.core.jobs import MOST_AFTER
from longboat.core.times import parse_time
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.explain.kueue import waiting_words
from longboat.engines.kubernetes.observe.node_loss import doubtful_hosts
from longboat.engines.kubernetes.observe.node_notices import LeavingNodes
from longboat.engines.kubernetes.observe.snapshot import (
    HostView,
    PodView,
    QueueView,
    RunSnapshot,
    WorkloadView,
    failed_members,
    host_view,
    mount_trouble,
    pod_view,
    pods_of_gang,
    queue_view,
    with_failed,
    workload_view,
)
from longboat.engines.kubernetes.record_store import (
    ALIVE,
    BadRecord,
    find_record,
    hash_of_record,
    read_record,
    read_stop,
    seconds_of,
)
from longboat.engines.kubernetes.records import Record, State, is_chained
from longboat.engines.kubernetes.slim_objects import SlimNode
from longboat.engines.lifecycle.predecessors import PredecessorView
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden, ObjectNotFound
from longboat.kubeapi.kinds import EVENT, JOB, JOBSET, LEASE, NODE, POD, WORKLOAD

STUCK_S = 2.0  # a pod with its image on the node has started by then: no events need be read
MOST_ASKED = 3
"""Pods whose events are read: of a gang whose volume is missing, all say the same."""
MOST_SINGLE = 8
"""Nodes that are read one by one; more are read in one list."""
NODE_LEASES = "kube-node-lease"

Object = dict[str, Any]

# Made here and not when first needed: msgspec looks a type over when it first meets it, and two threads that do so at
# once crash the interpreter.


def observe(client: Client, run: str, now: float, leaving: LeavingNodes | None = None) -> RunSnapshot:
    """The run as it is now. `leaving`: nodes to be looked at where it has pods on them. Raises NotFound."""
    body = find_record(client, run)
    record, state = read_record(body)
    selector = names.selector([(names.RUN, run)])
    kind = JOBSET if record.workload == "jobset" else JOB
    bodies = _list(client, kind, selector)
    workloads = [workload_view(each) for each in bodies]
    pods = [pod_view(each) for each in client.list(POD, labels=names.pods_of(run)).items]
    doubtful = doubtful_hosts(state, pods, now)
    doubtful |= leaving.of({pod.host for pod in pods if pod.end is None}).keys() if leaving is not None else set()
    snapshot = snapshot_of(
        body,
        workloads=workloads,
        pods=_with_mounts(client, pods, now),
        hosts=observe_hosts(client, doubtful, pods),
        queue=_queue(client, record, state, workloads),
    )
    if is_chained(record, state):
        snapshot = msgspec.structs.replace(snapshot, predecessors=_predecessors(client, record))
    return _with_failed(client, snapshot, bodies if kind is JOB else None)


def _predecessors(client: Client, record: Record) -> dict[str, PredecessorView]:
    """The runs that it starts after, as their records say. One whose record is damaged counts as gone."""
    seen = {}
    for wanted in record.after[:MOST_AFTER]:
        with contextlib.suppress(NotFound, BadRecord):
            theirs, state = read_record(find_record(client, wanted.run))
            seen[wanted.run] = PredecessorView(uid=theirs.uid, phase=state.phase, exit_code=state.exit_code)
    return seen


def snapshot_of(
    body: Mapping[str, Any],
    *,
    workloads: Sequence[WorkloadView],
    pods: Sequence[PodView],
    hosts: Mapping[str, HostView] | None = None,
    queue: QueueView | None = None,
) -> RunSnapshot:
    """Workloads of another owner are not of this run, whatever their labels say."""
    record, state = read_record(body)
    metadata = body["metadata"]
    uid = str(metadata.get("uid", ""))
    known = pods_of_gang(record, pods)
    return RunSnapshot(
        record=record,
        state=state,
        uid=uid,
        version=str(metadata.get("resourceVersion", "")),
        record_hash=hash_of_record(body),
        made=parse_time(metadata.get("creationTimestamp")) or record.created,
        submitter_alive=_seconds(metadata, ALIVE) or 0.0,
        keep_s=_seconds(metadata, names.KEEP),
        is_deleting=parse_time(metadata.get("deletionTimestamp")) is not None,
        stop=read_stop(body),
        workloads=tuple(workload for workload in workloads if workload.owner == uid),
        pods=known.present,
        replaced=known.replaced,
        late=known.late,
        hosts=dict(hosts or {}),
        queue=queue,
    )


def _seconds(metadata: Mapping[str, Any], annotation: str) -> float | None:
    return seconds_of(str((metadata.get("annotations") or {}).get(annotation) or ""))


def _list(client: Client, kind: Any, selector: str) -> list[Object]:
    try:
        return client.list(kind, labels=selector).items
    except ObjectNotFound:
        # JobSet was served when the run was submitted and was taken out of the cluster since.
        return []


def _queue(client: Client, record: Record, state: State, workloads: Sequence[WorkloadView]) -> QueueView | None:
    """Kueue's word on an attempt that it holds back."""
    is_held = record.gated_by == "kueue" and any(
        workload.is_suspended and workload.attempt == state.attempt for workload in workloads
    )
    return queue_of(record, state, workloads, list_queued(client)) if is_held else None


def queue_of(
    record: Record, state: State, workloads: Sequence[WorkloadView], queued: Sequence[Object]
) -> QueueView | None:
    """The same, out of Kueue's Workloads. Pure."""
    held = [workload for workload in workloads if workload.attempt == state.attempt and workload.is_suspended]
    owners = {view.uid for view in held} if record.gated_by == "kueue" else set()
    for each in queued if owners else ():
        references = (each.get("metadata") or {}).get("ownerReferences") or ()
        if any(reference.get("uid") in owners for reference in references):
            return queue_view(each, waiting_words(each, queued))
    return None


def list_queued(client: Client) -> list[Object]:
    """Kueue's Workloads, in the newest version that is served."""
    for version in ("v1beta2", "v1beta1"):
        try:
            return client.list(WORKLOAD._replace(api_version=f"kueue.x-k8s.io/{version}")).items
        except ObjectNotFound:
            continue
        except ApiError:
            break
    return []


def _with_mounts(client: Client, pods: Sequence[PodView], now: float) -> list[PodView]:
    """Why a container that has a place does not start is said by events alone, where a volume is to blame."""
    views = list(pods)
    for place in [place for place, pod in enumerate(pods) if is_stuck(pod, now)][:MOST_ASKED]:
        try:
            events = client.list(EVENT, fields=f"involvedObject.uid={pods[place].uid}").items
        except ApiError:
            break
        trouble = mount_trouble(events)
        if trouble is not None:
            views[place] = msgspec.structs.replace(pods[place], trouble=trouble)
    return views


def is_stuck(pod: PodView, now: float) -> bool:
    """A pod that has a node but has not started, for reasons that its status does not tell."""
    is_held_up = pod.is_scheduled and not pod.is_started and pod.end is None and pod.trouble is None
    return is_held_up and now - pod.created > STUCK_S


def _with_failed(client: Client, snapshot: RunSnapshot, jobs: Sequence[Object] | None) -> RunSnapshot:
    """Failed indexes of Jobs (of a JobSet: of its Jobs), read only where pods are missing."""
    state, record = snapshot.state, snapshot.record
    if state.is_final or not 0 < len(snapshot.pods_of(state.attempt)) < record.job.pods:
        return snapshot
    if jobs is None:
        try:
            jobs = client.list(JOB, labels=names.selector([(names.RUN, record.name)])).items
        except ApiError:
            return snapshot
    return with_failed(snapshot, failed_members(jobs, state.attempt))


def observe_hosts(client: Client, wanted: Collection[str], pods: Sequence[PodView] = ()) -> dict[str, HostView]:
    """These nodes of the cluster, one by one, or out of one list where they are many."""
    if not wanted:
        return {}
    try:
        if len(wanted) > MOST_SINGLE:
            return {name: host_view(name, body) for name, body in node_bodies(client, wanted).items()}
        return {name: _host(client, name) for name in sorted(wanted)}
    except Forbidden:
        # The node controller's word on the pods is left; it comes later than that of the nodes.
        since = {pod.host: pod.unready_since for pod in pods if pod.unready_since is not None and pod.end is None}
        return {str(host): HostView(name=str(host), not_ready_since=moment) for host, moment in since.items()}
    except ApiError:
        return {}


def node_bodies(client: Client, wanted: Collection[str]) -> dict[str, Mapping[str, Any] | None]:
    """These nodes as the API prints them, None for one that is gone; one by one, or out of one list."""
    if len(wanted) <= MOST_SINGLE:
        return {name: client.find(NODE, name) for name in sorted(wanted)}
    every = {str(body["metadata"]["name"]): body for body in client.list(NODE, into=SlimNode).items}
    return {name: every.get(name) for name in sorted(wanted)}


def _host(client: Client, name: str) -> HostView:
    body = client.find(NODE, name)
    view = host_view(name, body)
    if view.not_ready_since is None or view.said:
        return view
    try:
        lease = client.find(LEASE, name, namespace=NODE_LEASES)
    except ApiError:
        return view  # few may read it: the node's own condition tells nearly as much
    return host_view(name, body, parse_time(((lease or {}).get("spec") or {}).get("renewTime")))
