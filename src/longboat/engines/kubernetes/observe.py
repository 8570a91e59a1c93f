"""One run, read from the cluster into a Snapshot: the record first, then its workloads, then their pods.

Three requests; one more for a run that waits in a Kueue queue, and one for each machine that may be lost. The order
matters: what a state says has been made is seen by the lists that follow it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.api.client import Client
from longboat.engines.kubernetes.api.errors import ApiError, NotThere
from longboat.engines.kubernetes.api.kinds import CONFIG_MAP, EVENT, JOB, JOBSET, NODE, POD, WORKLOAD
from longboat.engines.kubernetes.queuewords import waiting_words
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.kubernetes.views import (
    HostView,
    PodView,
    QueueView,
    Snapshot,
    StopRequest,
    WorkloadView,
    host_view,
    mount_trouble,
    pod_view,
    queue_view,
    seconds,
    workload_view,
)

STOP = f"{names.DOMAIN}/stop"
STUCK_S = 2.0
MOST_ASKED = 3
"""Pods whose events are read: of a gang whose volume is missing, all say the same."""
LATE_S = 5.0
"""A pod that should be gone for this long, or a container whose machine does not vouch for it, is looked into."""

Object = dict[str, Any]

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
    labels = (body.get("metadata") or {}).get("labels") or {}
    return labels.get(names.KIND) == "run" and "record" in (body.get("data") or {})


def read_record(body: Mapping[str, Any]) -> tuple[Record, State]:
    """Record and state of a ConfigMap. Raises EngineError for one that was damaged."""
    data = body.get("data") or {}
    try:
        record = RECORDS.decode(data.get("record") or "")
        state = STATES.decode(data.get("state") or "{}")
    except msgspec.MsgspecError as error:
        name = (body.get("metadata") or {}).get("name")
        raise EngineError(
            f"the record of run {name} is damaged: {error}", hint="`longboat rm --force` removes it"
        ) from None
    return record, state


def read_stop(body: Mapping[str, Any]) -> StopRequest | None:
    text = ((body.get("metadata") or {}).get("annotations") or {}).get(STOP)
    if not text:
        return None
    try:
        return STOPS.decode(text)
    except msgspec.MsgspecError:
        # Whoever wrote this wanted a stop, with whatever grace.
        return StopRequest(at=0.0)


def stop_text(at: float, grace_s: float | None) -> str:
    return json.dumps({"at": at, "grace_s": grace_s})


def observe(client: Client, run: str, now: float) -> Snapshot:
    """The run as it is now. Raises NotFound."""
    body = find_record(client, run)
    record, state = read_record(body)
    selector = names.selector([(names.RUN, run)])
    kind = JOBSET if record.workload == "jobset" else JOB
    workloads = [workload_view(each) for each in _list(client, kind, selector)]
    pods = [pod_view(each) for each in client.list(POD, labels=names.pods_of(run)).items]
    return snapshot_of(
        body,
        workloads=workloads,
        pods=_with_mounts(client, pods, now),
        hosts=_hosts(client, pods, now),
        queue=_queue(client, record, state, workloads),
    )


def snapshot_of(
    body: Mapping[str, Any],
    *,
    workloads: Sequence[WorkloadView],
    pods: Sequence[PodView],
    hosts: Mapping[str, HostView] | None = None,
    queue: QueueView | None = None,
) -> Snapshot:
    record, state = read_record(body)
    metadata = body["metadata"]
    return Snapshot(
        record=record,
        state=state,
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        is_deleting=seconds(metadata.get("deletionTimestamp")) is not None,
        stop=read_stop(body),
        workloads=tuple(workloads),
        pods=tuple(pods),
        hosts=dict(hosts or {}),
        queue=queue,
    )


def _list(client: Client, kind: Any, selector: str) -> list[Object]:
    try:
        return client.list(kind, labels=selector).items
    except NotThere:
        # JobSet was served when the run was submitted and was taken out of the cluster since.
        return []


def _queue(client: Client, record: Record, state: State, workloads: Sequence[WorkloadView]) -> QueueView | None:
    """Kueue's word on an attempt that it holds back."""
    held = [one for one in workloads if one.attempt == state.attempt and one.is_suspended]
    if record.gated_by != "kueue" or not held:
        return None
    owners = {one.uid for one in held}
    found = _queued(client)
    for each in found:
        references = (each.get("metadata") or {}).get("ownerReferences") or ()
        if any(reference.get("uid") in owners for reference in references):
            return queue_view(each, waiting_words(each, found))
    return None


def _queued(client: Client) -> list[Object]:
    """Kueue's Workloads, in the newest version that is served."""
    for version in ("v1beta2", "v1beta1"):
        try:
            return client.list(WORKLOAD._replace(api_version=f"kueue.x-k8s.io/{version}")).items
        except NotThere:
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


def _hosts(client: Client, pods: Sequence[PodView], now: float) -> dict[str, HostView]:
    """The machines of pods that should have ended or that nobody vouches for."""
    doubtful = {
        pod.host
        for pod in pods
        if pod.host and pod.end is None and (pod.is_unready or (pod.deleting_since or now) < now - LATE_S)
    }
    found = {}
    for name in sorted(doubtful):
        try:
            found[name] = host_view(name, client.find(NODE, name))
        except ApiError:
            # Not allowed to look: the cluster's own controllers clean up, only later.
            continue
    return found
