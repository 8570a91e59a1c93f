"""Marks of gangs: what labels, annotations and specs of one object say of the gang it belongs to. Pure.

By our labels, JobSet, Kueue, PodGroups and Volcano; from the API's JSON. Gangs are made of it in `gangs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Body = Mapping[str, Any]

RUN, ATTEMPT, KIND = "longboat.dev/run", "longboat.dev/attempt", "longboat.dev/kind"
CHAINED = "longboat.dev/chained"
HELD = "longboat.dev/held"
NODES = "longboat.dev/nodes"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
QUEUE, WORKLOAD = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/workload"
POD_GROUP, POD_GROUP_TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
GROUPS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "pod-group-name",
)
"""Of PodGroups and Volcano; some schedulers read a label, some an annotation."""
VOLCANO_JOB = "volcano.sh/job-name"
LEADER_SET, LEADER_GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
JOB_NAMES = ("batch.kubernetes.io/job-name", "job-name")
OUR_GATES = ("kueue.x-k8s.io/", "longboat.dev/", "scheduling.k8s.io/")
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

Key = tuple[str, str, str]
"""Namespace, kind of mark, name."""


def namespace_of(meta: Body) -> str:
    return meta.get("namespace") or "default"


def mark_of(meta: Body, spec: Body) -> Key | None:
    """The gang that marks on the object itself tell of."""
    mark = _mark(meta, spec)
    return None if mark is None else (mark[0], mark[1], str(mark[2]))


def _mark(meta: Body, spec: Body) -> Key | None:
    labels = meta.get("labels") or {}
    annotations = meta.get("annotations")
    marks = {**annotations, **labels} if annotations else labels
    namespace = namespace_of(meta)
    if labels.get(RUN):
        return (namespace, "run", labels[RUN])
    if marks.get(JOBSET):
        return (namespace, "jobset", marks[JOBSET])
    if labels.get(POD_GROUP):
        return (namespace, "kueue", labels[POD_GROUP])
    for name in GROUPS:
        if marks.get(name):
            return (namespace, "podgroup", marks[name])
    native = (spec.get("schedulingGroup") or {}).get("podGroupName")
    if native:
        return (namespace, "podgroup", native)
    if reference := spec.get("workloadRef"):
        return (namespace, "workload", f"{reference.get('name', '')}/{reference.get('podGroup', '')}")
    if labels.get(LEADER_SET) and labels.get(LEADER_GROUP):
        return (namespace, "group", f"{labels[LEADER_SET]}-{labels[LEADER_GROUP]}")
    volcano = marks.get(VOLCANO_JOB)
    return (namespace, "volcano", volcano) if volcano else None


def is_batch_job(body: Body) -> bool:
    return str(body.get("apiVersion", "batch/v1")).startswith("batch/")


def is_template(body: Body) -> bool:
    """Whether it is there to be copied for a retry, and wants nothing itself."""
    return (body["metadata"].get("labels") or {}).get(KIND) == "template"


def is_over(body: Body) -> bool:
    """Whether a Job, JobSet or Workload has ended or is being deleted."""
    status = body.get("status") or {}
    if body["metadata"].get("deletionTimestamp") or status.get("terminalState"):
        return True
    ends = ("Complete", "Completed", "Failed", "Finished", "FailureTarget", "SuccessCriteriaMet")
    return any(
        condition.get("type") in ends and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def least_of_group(body: Body) -> list[tuple[Key, int]]:
    """minMember or minCount of a PodGroup, where it has one."""
    meta, spec = body["metadata"], body.get("spec") or {}
    policy = (spec.get("schedulingPolicy") or spec.get("policy") or {}).get("gang") or {}
    least = spec.get("minMember") or policy.get("minCount")
    return [((namespace_of(meta), "podgroup", meta["name"]), int(least))] if least else []


def least_of_workload(body: Body) -> list[tuple[Key, int]]:
    """minCount of each group of a Workload of scheduling.k8s.io."""
    meta = body["metadata"]
    groups: list[tuple[Key, int]] = []
    for group in (body.get("spec") or {}).get("podGroups") or ():
        least = ((group.get("policy") or group.get("schedulingPolicy") or {}).get("gang") or {}).get("minCount")
        if least:
            groups.append(((namespace_of(meta), "workload", f"{meta['name']}/{group.get('name', '')}"), int(least)))
    return groups


def least_of_job(body: Body) -> list[tuple[Key, int]]:
    """minAvailable of a Volcano Job."""
    least = (body.get("spec") or {}).get("minAvailable")
    if is_batch_job(body) or not least:
        return []
    return [((namespace_of(body["metadata"]), "volcano", body["metadata"]["name"]), int(least))]


def holds_of_queue(body: Body) -> list[tuple[tuple[str, str], str]]:
    """Kueue Workloads: (namespace, owner) -> why it is not admitted; empty: only machines are missing."""
    spec, meta = body.get("spec") or {}, body["metadata"]
    if not str(body.get("apiVersion", "kueue")).startswith("kueue"):
        return []  # the Workload of Kubernetes itself
    conditions = {condition.get("type"): condition for condition in (body.get("status") or {}).get("conditions") or ()}
    quota = conditions.get("QuotaReserved") or {}
    message = str(quota.get("message", ""))
    reason = ""
    if spec.get("active") is False:
        reason = "Kueue: the workload was deactivated"
    elif quota.get("status") != "True" and "topology" not in message.lower():
        reason = f"Kueue: {message[:200] or 'no quota is reserved for it yet'}"
    owners = meta.get("ownerReferences") or ()
    return [((namespace_of(meta), str(owner.get("name", ""))), reason) for owner in owners]


def range_of(body: Body) -> tuple[int, int] | None:
    """Fewest and most pods that an elastic Job may have: `2-8`. None: it has one size."""
    least, _, most = str((body["metadata"].get("annotations") or {}).get(NODES) or "").partition("-")
    low, high = number_in(least), number_in(most)
    return (low, high) if low and high and low < high else None


def number_in(text: object) -> int | None:
    """A count in a label or an annotation, which anybody may write: `isdigit` alone takes what `int` does not."""
    is_count = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 18
    return int(str(text)) if is_count else None
