"""One run, read from the cluster into a Snapshot: the record first, then its workloads, then their pods.

Three requests; one more for a run that waits in a Kueue queue, and one for each node that may be lost. The order
matters: what a state says has been made is seen by the lists that follow it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.times import parse_time
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.explain.kueue import waiting_words
from longboat.engines.kubernetes.observe.node_loss import doubtful_hosts
from longboat.engines.kubernetes.observe.slim_objects import SlimNode
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
    queue_view,
    workload_view,
)
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.shared.stop_request import StopRequest
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError, Forbidden, ObjectNotFound
from longboat.kubeapi.kinds import CONFIG_MAP, EVENT, JOB, JOBSET, LEASE, NODE, POD, WORKLOAD

STOP = f"{names.DOMAIN}/stop"
ALIVE = f"{names.DOMAIN}/submitter-alive-at"
"""Annotation of the record: seconds since the epoch, by the server's clock. Whoever forges it delays his own run."""
STUCK_S = 2.0
MOST_ASKED = 3
"""Pods whose events are read: of a gang whose volume is missing, all say the same."""
MOST_NODES = 50_000
"""Nodes of one run, ten times what the largest clusters have: of a number that somebody forged no list is made."""
MOST_ATTEMPTS = 1_000_000
"""Attempts that a state may speak of; a run that fails at once every second has as many after eleven days."""
MOST_GRACE_S = 1e7
"""Seconds, four months: no pod has a longer one."""
MOST_MOMENT = 1e12
MOST_DIGITS = 12
"""Of a moment in whole seconds: ten until the year 2286."""
MOST_QUOTED = 300
"""Characters of a message about a record, a line or two of a terminal."""
MOST_SINGLE = 8
"""Nodes that are read one by one; more are read in one list."""
NODE_LEASES = "kube-node-lease"

Object = dict[str, Any]
_UID = re.compile(r"[0-9a-f]{8,64}")
"""A part of it is in the names of the run's folders."""
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_WILD = re.compile(r"(?<![\d.])\d{17}|[eE]\+?(?:\d{3}|[2-9]\d|1[6-9])")
"""Numbers of 10^16 and more. No amount, moment or code of a run is as large, and what is computed with larger ones
overflows where nobody expects it: as a time, as a float, or when it is printed."""

# Made here and not when first needed: msgspec looks a type over when it first meets it, and two threads that do so at
# once crash the interpreter.
RECORDS = msgspec.json.Decoder(Record)
STATES = msgspec.json.Decoder(State)
STOPS = msgspec.json.Decoder(StopRequest)


def find_record(client: Client, run: str) -> Object:
    """The ConfigMap of a run. Raises NotFound."""
    found = client.find(CONFIG_MAP, run) if _is_name(run) else None
    if found is None or not is_record(found):
        raise NotFound(f"no run named {run!r} in namespace {client.namespace}", hint="`longboat ps -a` lists all runs")
    return found


def _is_name(run: str) -> bool:
    try:
        names.check_run_id(run)
    except UsageError:
        return False
    return True


def is_record(body: Mapping[str, Any]) -> bool:
    """Whether a ConfigMap is there for a run; what it holds may still be of no use (`read_record`)."""
    labels = (body.get("metadata") or {}).get("labels") or {}
    return labels.get(names.KIND) == "run"


class BadRecord(EngineError):
    """A record that nobody acts upon: it is damaged, of a newer version, or about another run than its object."""

    def __init__(self, run: str, what: str) -> None:
        # Others wrote what is quoted here: nothing of it steers a terminal or fills a log.
        shown = "".join(char if char.isprintable() else "?" for char in what[:MOST_QUOTED])
        super().__init__(f"the record of run {run} {shown}", hint="`longboat rm --force` removes it")


def read_record(body: Mapping[str, Any]) -> tuple[Record, State]:
    """Record and state of a ConfigMap: the one way in, for whoever acts and whoever shows. Raises BadRecord.

    Tenants can write ConfigMaps. So a record is about the run of its object's own name and namespace or about none, and
    what it says is bounded before anything is computed from it.
    """
    metadata, data = body.get("metadata") or {}, body.get("data") or {}
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    written, kept = data.get("record") or "", data.get("state") or "{}"
    try:
        record = RECORDS.decode(written)
        state = STATES.decode(kept)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadRecord(name, f"is damaged: {error}") from None
    # After it was read: in a text that is JSON every string ends, and so the search does not begin again and again.
    if any(_WILD.search(_STRING.sub("", text)) for text in (written, kept)):
        raise BadRecord(name, "is damaged: it holds a number that is out of all bounds")
    if (record.name, record.namespace) != (name, namespace):
        about = f"{record.namespace[:64]}/{record.name[:64]}"
        raise BadRecord(name, f"in namespace {namespace} says that it is about {about}; nothing is done about it")
    if not _UID.fullmatch(record.uid):
        raise BadRecord(name, "is damaged: its uid is none")
    if not 0 < record.job.nodes <= MOST_NODES or any(role.nodes < 0 for role in record.job.roles):
        raise BadRecord(name, f"is damaged: it asks for {record.job.nodes} nodes, and a run has 1 to {MOST_NODES}")
    if not 0 <= state.attempt <= MOST_ATTEMPTS:
        raise BadRecord(name, f"is damaged: it says that attempt {state.attempt} is next")
    return record, state


def hash_of_record(body: Mapping[str, Any]) -> str:
    """Of the text as it is written: what a template vouches for."""
    return hashlib.sha256(((body.get("data") or {}).get("record") or "").encode()).hexdigest()


def read_stop(body: Mapping[str, Any]) -> StopRequest | None:
    text = ((body.get("metadata") or {}).get("annotations") or {}).get(STOP)
    if not text:
        return None
    try:
        found = STOPS.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        found = StopRequest(at=0.0)
    # Whoever wrote this wanted a stop, with whatever grace.
    return found if abs(found.at) < MOST_MOMENT and 0 <= (found.grace_s or 0) <= MOST_GRACE_S else StopRequest(at=0.0)


def stop_text(at: float, grace_s: float | None) -> str:
    return json.dumps({"at": at, "grace_s": grace_s})


def observe(client: Client, run: str, now: float) -> RunSnapshot:
    """The run as it is now. Raises NotFound."""
    body = find_record(client, run)
    record, state = read_record(body)
    selector = names.selector([(names.RUN, run)])
    kind = JOBSET if record.workload == "jobset" else JOB
    bodies = _list(client, kind, selector)
    workloads = [workload_view(each) for each in bodies]
    pods = [pod_view(each) for each in client.list(POD, labels=names.pods_of(run)).items]
    found = snapshot_of(
        body,
        workloads=workloads,
        pods=_with_mounts(client, pods, now),
        hosts=observe_hosts(client, doubtful_hosts(state, pods, now), pods),
        queue=_queue(client, record, state, workloads),
    )
    return _with_failed(client, found, bodies if kind is JOB else None)


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
    return RunSnapshot(
        record=record,
        state=state,
        uid=uid,
        version=str(metadata.get("resourceVersion", "")),
        record_hash=hash_of_record(body),
        made=parse_time(metadata.get("creationTimestamp")) or record.created,
        submitter_alive=_alive(metadata),
        is_deleting=parse_time(metadata.get("deletionTimestamp")) is not None,
        stop=read_stop(body),
        workloads=tuple(one for one in workloads if one.owner == uid),
        pods=tuple(pods),
        hosts=dict(hosts or {}),
        queue=queue,
    )


def _alive(metadata: Mapping[str, Any]) -> float:
    text = str((metadata.get("annotations") or {}).get(ALIVE) or "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < MOST_DIGITS else 0.0


def _list(client: Client, kind: Any, selector: str) -> list[Object]:
    try:
        return client.list(kind, labels=selector).items
    except ObjectNotFound:
        # JobSet was served when the run was submitted and was taken out of the cluster since.
        return []


def _queue(client: Client, record: Record, state: State, workloads: Sequence[WorkloadView]) -> QueueView | None:
    """Kueue's word on an attempt that it holds back."""
    is_held = record.gated_by == "kueue" and any(one.is_suspended and one.attempt == state.attempt for one in workloads)
    return queue_of(record, state, workloads, list_queued(client)) if is_held else None


def queue_of(
    record: Record, state: State, workloads: Sequence[WorkloadView], queued: Sequence[Object]
) -> QueueView | None:
    """The same, out of Kueue's Workloads. Pure."""
    held = [one for one in workloads if one.attempt == state.attempt and one.is_suspended]
    owners = {one.uid for one in held} if record.gated_by == "kueue" else set()
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
    found = list(pods)
    stuck = [
        place
        for place, pod in enumerate(pods)
        if pod.is_scheduled and not pod.is_started and pod.end is None and pod.trouble is None
    ]
    for place in [place for place in stuck if now - pods[place].created > STUCK_S][:MOST_ASKED]:
        try:
            events = client.list(EVENT, fields=f"involvedObject.uid={pods[place].uid}").items
        except ApiError:
            break
        trouble = mount_trouble(events)
        if trouble is not None:
            found[place] = msgspec.structs.replace(pods[place], trouble=trouble)
    return found


def _with_failed(client: Client, snapshot: RunSnapshot, jobs: Sequence[Object] | None) -> RunSnapshot:
    """Whose index has failed for good, where pods are missing; a JobSet's own Jobs know it."""
    state, record = snapshot.state, snapshot.record
    if state.is_final or not 0 < len(snapshot.pods_of(state.attempt)) < record.job.nodes:
        return snapshot
    if jobs is None:
        try:
            jobs = client.list(JOB, labels=names.selector([(names.RUN, record.name)])).items
        except ApiError:
            return snapshot
    return msgspec.structs.replace(snapshot, failed_nodes=failed_members(jobs, state.attempt))


def observe_hosts(client: Client, wanted: Collection[str], pods: Sequence[PodView] = ()) -> dict[str, HostView]:
    """These nodes of the cluster, one by one, or out of one list where they are many."""
    if not wanted:
        return {}
    try:
        if len(wanted) > MOST_SINGLE:
            every = {str(body["metadata"]["name"]): body for body in client.list(NODE, into=SlimNode).items}
            return {name: host_view(name, every.get(name)) for name in sorted(wanted)}
        return {name: _host(client, name) for name in sorted(wanted)}
    except Forbidden:
        # The node controller's word on the pods is left; it comes later than that of the nodes.
        since = {pod.host: pod.unready_since for pod in pods if pod.unready_since is not None and pod.end is None}
        return {str(host): HostView(name=str(host), not_ready_since=moment) for host, moment in since.items()}
    except ApiError:
        return {}


def _host(client: Client, name: str) -> HostView:
    body = client.find(NODE, name)
    found = host_view(name, body)
    if found.not_ready_since is None or found.said:
        return found
    try:
        lease = client.find(LEASE, name, namespace=NODE_LEASES)
    except ApiError:
        return found  # few may read it: the node's own condition tells nearly as much
    return host_view(name, body, parse_time(((lease or {}).get("spec") or {}).get("renewTime")))
