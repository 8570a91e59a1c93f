"""Pending pods: why they do not run yet (queue, quota, nodes, autoscaler, volumes, images, peers). Pure.

What was seen comes as the API server prints it (`PendingFacts`); `explain` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longboat.core.jobs import Value
from longboat.core.times import parse_time
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.explain.admission_errors import creation_troubles
from longboat.engines.kubernetes.explain.containers import StartTrouble, trouble_of
from longboat.engines.kubernetes.explain.kueue import kueue_reason, waiting_words
from longboat.engines.kubernetes.explain.unschedulable import (
    asked_words,
    autoscaler_words,
    node_reasons,
    scheduler_reasons,
)
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import node_of
from longboat.fitting.model.pods import Pod, pod_of

Object = Mapping[str, Any]

_STORAGE_EVENTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "VolumeResizeFailed")
_CLAIM_EVENTS = ("ProvisioningFailed", "FailedBinding", "WaitForFirstConsumer", "ExternalProvisioning", "Provisioning")


class PendingFacts(Value, frozen=True):
    """Everything about one attempt that tells why it waits. None: could not be read."""

    pods: tuple[Object, ...] = ()  # of the attempt
    jobs: tuple[Object, ...] = ()  # its Jobs
    events: tuple[Object, ...] = ()  # of its pods, Jobs, JobSet and claims, oldest first
    nodes: tuple[Object, ...] | None = None
    others: tuple[Object, ...] = ()  # pods of everybody, for what they take of the nodes
    claims: tuple[Object, ...] = ()
    workloads: tuple[Object, ...] = ()  # Kueue's, of the whole queue
    owners: tuple[str, ...] = ()  # uids of the Jobs and the JobSet
    missing: dict[str, tuple[str, ...]] = {}  # node -> peers that its launcher waits for
    nodes_wanted: int = 0  # nodes of the run
    is_gated: bool = False  # held back by the gate or a queue
    now: float = 0.0


def troubles(facts: PendingFacts) -> list[StartTrouble]:
    """All that keeps the run from running, what must be done about first."""
    start_troubles: list[StartTrouble] = []
    if len(facts.pods) < facts.nodes_wanted and not facts.is_gated:
        start_troubles += creation_troubles(facts.events)
    start_troubles += _queue(facts)
    start_troubles += _claims(facts)
    start_troubles += _scheduling(facts)
    start_troubles += _starting(facts)
    start_troubles += _peers(facts)
    unique = {trouble.what: trouble for trouble in start_troubles}
    return sorted(unique.values(), key=lambda trouble: not trouble.is_final)


def node_name(pod: Object) -> str:
    meta = pod.get("metadata") or {}
    labels = meta.get("labels") or {}
    index = labels.get(names.INDEX) or (meta.get("annotations") or {}).get(names.INDEX)
    role = labels.get(names.ROLE)
    return f"{role}-{index}" if role and index is not None else str(meta.get("name", ""))


def named(pods: Sequence[str]) -> str:
    return ", ".join(pods) if len(pods) <= 3 else f"{len(pods)} nodes of the run"


def events_of(facts: PendingFacts, *, uid: str = "", kind: str = "", name: str = "") -> list[Object]:
    events = []
    for event in facts.events:
        about = event.get("involvedObject") or event.get("regarding") or {}
        if (uid and about.get("uid") == uid) or (kind and about.get("kind") == kind and about.get("name") == name):
            events.append(event)
    return events


def event_time(event: Object) -> float:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    created = (event.get("metadata") or {}).get("creationTimestamp")
    return next((moment for moment in map(parse_time, (*times, created)) if moment is not None), 0.0)


def _queue(facts: PendingFacts) -> list[StartTrouble]:
    """What Kueue says about the run, and how many are before it in its queue."""
    mine = [workload for workload in facts.workloads if _is_owned(workload, facts.owners)]
    return [trouble for workload in mine for trouble in _workload(workload, facts.workloads)]


def _is_owned(body: Object, owners: Iterable[str]) -> bool:
    references = (body.get("metadata") or {}).get("ownerReferences") or ()
    return any(reference.get("uid") in set(owners) for reference in references)


def _conditions(body: Object) -> dict[str, Object]:
    return {str(condition.get("type")): condition for condition in (body.get("status") or {}).get("conditions") or ()}


def _workload(workload: Object, everybody: Sequence[Object]) -> list[StartTrouble]:
    if _conditions(workload).get("Admitted", {}).get("status") == "True":
        return []
    said = kueue_reason(workload)
    is_shut = any(word in said for word in ("inactive", "doesn't exist", "is stopped"))
    hint = "ask who runs the queue" if is_shut else "it starts when others end, or ask for less"
    return [StartTrouble(what=waiting_words(workload, everybody), hint=hint)]


def _claims(facts: PendingFacts) -> list[StartTrouble]:
    """Claims of the pods that are not bound, with what their provisioner says."""
    wanted = {
        volume["persistentVolumeClaim"].get("claimName")
        for pod in facts.pods
        for volume in (pod.get("spec") or {}).get("volumes") or ()
        if volume.get("persistentVolumeClaim")
    }
    start_troubles = []
    by_name = {(claim.get("metadata") or {}).get("name"): claim for claim in facts.claims}
    for name in sorted(str(claim) for claim in wanted if claim):
        claim = by_name.get(name)
        if claim is None or (claim.get("status") or {}).get("phase") == "Bound":
            continue
        events = [
            event
            for event in events_of(facts, kind="PersistentVolumeClaim", name=name)
            if event.get("reason") in _CLAIM_EVENTS
        ]
        if not events or events[-1].get("reason") == "WaitForFirstConsumer":
            said = "it is bound when its first pod has a node" if events else "nobody has made a volume for it"
        else:
            said = " ".join(str(events[-1].get("message") or "").split())[:300]
        start_troubles.append(
            StartTrouble(what=f"claim {name} is not bound: {said}", hint=f"kubectl describe pvc {name}")
        )
    return start_troubles


def _scheduling(facts: PendingFacts) -> list[StartTrouble]:
    """Pods without a node, or what the gate holds back: per node why not."""
    unbound = [pod for pod in facts.pods if not (pod.get("spec") or {}).get("nodeName") and not _has_ended(pod)]
    if unbound:
        bodies = {asked_words(pod_of(pod)) + str(pod.get("spec", {}).get("affinity")): pod for pod in unbound}
    else:
        bodies = {str(number): _template(job) for number, job in enumerate(facts.jobs) if facts.is_gated}
    if not bodies:
        return []
    fleet = _fleet(facts)
    reasons: list[str] = []
    for body in bodies.values():
        by_node = node_reasons(_alone(body), fleet) if fleet is not None else []
        reasons += by_node or _scheduler_messages(body)
    uids = [str((pod.get("metadata") or {}).get("uid")) for pod in unbound]
    said = autoscaler_words(event for event in facts.events if (event.get("involvedObject") or {}).get("uid") in uids)
    who = named([node_name(pod) for pod in unbound]) if unbound else "the run"
    reasons = list(dict.fromkeys(reasons))
    if not reasons and not said:
        return []
    text = f"no node takes {who}: " + "; ".join(reasons) if reasons else f"{who}: the scheduler has not placed it yet"
    return [StartTrouble(what=text)] + [StartTrouble(what=words) for words in said]


def _template(job: Object) -> Object:
    template = ((job.get("spec") or {}).get("template")) or {}
    meta = {**(template.get("metadata") or {}), "name": "", "namespace": (job.get("metadata") or {}).get("namespace")}
    return {"metadata": meta, "spec": template.get("spec") or {}}


def _fleet(facts: PendingFacts) -> Fleet | None:
    if facts.nodes is None:
        return None
    others = [pod_of(pod) for pod in facts.others]
    return Fleet([node_of(node) for node in facts.nodes], others)


def _alone(body: Object) -> Pod:
    """A pod of this shape that has no node yet."""
    pod = pod_of(body)
    return Pod(name=pod.name, namespace=pod.namespace, shape=pod.shape, labels=pod.labels, priority=pod.priority)


def _scheduler_messages(pod: Object) -> list[str]:
    scheduled = _conditions(pod).get("PodScheduled", {})
    return scheduler_reasons(str(scheduled.get("message") or "")) if scheduled.get("status") == "False" else []


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _starting(facts: PendingFacts) -> list[StartTrouble]:
    """Pods that have a node and no running container."""
    groups: dict[str, tuple[StartTrouble, list[str]]] = {}
    for pod in facts.pods:
        if not (pod.get("spec") or {}).get("nodeName") or _has_ended(pod) or _runs(pod):
            continue
        trouble = _pod_trouble(pod, facts)
        if trouble is not None:
            groups.setdefault(trouble.what, (trouble, []))[1].append(node_name(pod))
    return [
        StartTrouble(
            what=f"{named(nodes)}: {start_trouble.what}",
            hint=start_trouble.hint,
            cause=start_trouble.cause,
            is_final=start_trouble.is_final,
        )
        for start_trouble, nodes in groups.values()
    ]


def _runs(pod: Object) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return bool(statuses) and all((container.get("state") or {}).get("running") for container in statuses)


def _pod_trouble(pod: Object, facts: PendingFacts) -> StartTrouble | None:
    events = events_of(facts, uid=str((pod.get("metadata") or {}).get("uid")))
    trouble = trouble_of(pod, events)
    if trouble is not None:
        return trouble
    host = (pod.get("spec") or {}).get("nodeName")
    for event in reversed(events):
        kind, message = str(event.get("reason") or ""), " ".join(str(event.get("message") or "").split())
        if kind == "Pulling":
            return _pulling(event, message, host, facts.now)
        if kind in ("Pulled", "Created", "Started"):
            return None
        if kind in _STORAGE_EVENTS:
            return StartTrouble(what=f"a volume cannot be mounted on {host}: {message[:300]}", hint="check `volumes`")
        if kind == "FailedCreatePodSandBox":
            return StartTrouble(
                what=f"node {host} cannot make the pod's network: {message[-300:]}", hint="ask who runs the cluster"
            )
    return StartTrouble(what=f"node {host} has not started it yet") if not events else None


def _pulling(event: Object, message: str, host: object, now: float) -> StartTrouble:
    image = message.partition('"')[2].rpartition('"')[0] or "its image"
    since = max(0.0, now - event_time(event))
    return StartTrouble(what=f"node {host} has been pulling image {image} for {since:.0f} s")


def _peers(facts: PendingFacts) -> list[StartTrouble]:
    """Launchers that run and wait for others."""
    if not facts.missing:
        return []
    absent = sorted({peer for peers in facts.missing.values() for peer in peers})
    if not absent:
        return []
    seen = {node_name(pod) for pod in facts.pods if _runs(pod)}
    silent = [peer for peer in absent if peer in seen]
    text = f"not all nodes have found each other: {named(sorted(facts.missing))} wait for {named(absent)}"
    if silent:
        hint = "their pods run: a NetworkPolicy or the cluster's DNS may be in the way"
        return [StartTrouble(what=text + ", which cannot be reached or are still in setup", hint=hint, cause="peers")]
    return [StartTrouble(what=text, cause="peers")]
