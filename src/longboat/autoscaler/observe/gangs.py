"""Gangs: pods that run together, by our labels, JobSet, Kueue, PodGroups and Volcano; from the API's JSON. Pure.

A gang's pods that do not exist yet (a suspended Job, pods still to be made) stand in as pods of its templates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from longboat.autoscaler.model.snapshot import Gang
from longboat.autoscaler.observe.device_claims import DeviceClaims
from longboat.core.times import parse_time
from longboat.fitting.model.pods import Claims, Pod, pod_of

Body = Mapping[str, Any]

RUN, ATTEMPT, KIND = "longboat.dev/run", "longboat.dev/attempt", "longboat.dev/kind"
CHAINED = "longboat.dev/chained"
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
    return any(one.get("type") in ends and one.get("status") == "True" for one in status.get("conditions") or ())


class GangIndex:
    """What the objects of a List say about gangs; asked once per pod."""

    def __init__(self, objects: Mapping[str, list[Body]], claims: Claims, devices: DeviceClaims | None = None) -> None:
        self.objects, self.claims, self.devices = objects, claims, devices or DeviceClaims(objects)
        self.holds: dict[tuple[str, str], str] = {}  # (namespace, pod or Job) -> why its claims cannot be judged
        self.jobs = {
            (namespace_of(body["metadata"]), body["metadata"]["name"]): body
            for body in objects.get("Job", ())
            if is_batch_job(body) and not is_template(body)
        }
        self.jobsets = {
            (namespace_of(body["metadata"]), body["metadata"]["name"]): body
            for body in objects.get("JobSet", ())
            if not is_template(body)
        }
        self.priorities = dict(SYSTEM_PRIORITIES)
        for body in objects.get("PriorityClass", ()):
            self.priorities[body["metadata"]["name"]] = int(body.get("value") or 0)
        self.least = dict(_least_members(objects))
        # Of a kind that is followed there is a list, if an empty one; a file may have been printed without it.
        self.sees_workloads = "Workload" in objects
        self.queued = dict(_queued(objects.get("Workload", ())))
        self._job_keys = {name: self._key_of_job(body) for name, body in self.jobs.items()}

    def _key_of_job(self, body: Body) -> Key | None:
        meta, spec = body["metadata"], body.get("spec") or {}
        template = spec.get("template") or {}
        inherited = {"namespace": namespace_of(meta), **(template.get("metadata") or {})}
        key = mark_of(meta, {}) or mark_of(inherited, template.get("spec") or {})
        if key is not None:
            return key
        labels = meta.get("labels") or {}
        return (namespace_of(meta), "job", meta["name"]) if labels.get(QUEUE) else None

    def key_of_pod(self, body: Body) -> Key | None:
        meta = body["metadata"]
        key = mark_of(meta, body.get("spec") or {})
        if key is not None:
            return key
        labels = meta.get("labels") or {}
        job = next((labels[name] for name in JOB_NAMES if name in labels), None)
        if job is None:
            owners = meta.get("ownerReferences") or ()
            job = next((owner.get("name", "") for owner in owners if owner.get("kind") == "Job"), None)
        if job is not None and (namespace_of(meta), job) in self.jobs:
            return self._job_keys[(namespace_of(meta), job)]
        workload = (meta.get("annotations") or {}).get(WORKLOAD)
        return (namespace_of(meta), "admitted", workload) if workload else None

    def priority_of(self, spec: Body) -> int:
        if spec.get("priority") is not None:
            return int(spec["priority"])
        return self.priorities.get(spec.get("priorityClassName") or "", 0)

    def templates(self) -> dict[Key, list[tuple[Body, list[Pod]]]]:
        """For every gang: its unfinished Jobs and JobSets, each with stand-ins for all the pods it wants."""
        found: dict[Key, list[tuple[Body, list[Pod]]]] = {}
        for name, body in sorted(self.jobs.items()):
            key = self._job_keys[name]
            if key is not None and not is_over(body) and self._is_wanted(body, key):
                found.setdefault(key, []).append((body, self.stand_ins(body, body.get("spec") or {}, name[1])))
        for name, body in sorted(self.jobsets.items()):
            key = mark_of(body["metadata"], {}) or (name[0], "jobset", name[1])
            if not is_over(body) and not _is_chained(body) and (not _is_suspended(body) or _is_queued(body)):
                for job, spec in self._children(body):
                    found.setdefault(key, []).append((body, self.stand_ins(body, spec, job)))
        return found

    def _is_wanted(self, body: Body, key: Key) -> bool:
        """A Job that somebody suspended by hand wants nothing; one that waits at our gate or in a queue does."""
        if not _is_suspended(body):
            return True
        if _is_chained(body):
            return False
        parent = self.jobsets.get((key[0], (body["metadata"].get("labels") or {}).get(JOBSET, "")))
        if parent is not None:
            return _is_queued(parent)
        return _is_queued(body) or key[1] in ("jobset", "run")

    def hold_of(self, body: Body) -> str:
        """Why Kueue does not let it in, as far as that can be seen."""
        namespace, labels = namespace_of(body["metadata"]), body["metadata"].get("labels") or {}
        owner = self.jobsets.get((namespace, labels.get(JOBSET, ""))) or body
        found = self.queued.get((namespace, str(owner["metadata"].get("name", ""))))
        if found is not None:
            return found
        is_new = _is_suspended(owner) and (owner["metadata"].get("labels") or {}).get(QUEUE)
        return "Kueue has not looked at it yet" if is_new and self.sees_workloads else ""

    def _children(self, jobset: Body) -> Iterable[tuple[str, Body]]:
        """Jobs that a JobSet will make and that are not there yet."""
        meta = jobset["metadata"]
        for replicated in (jobset.get("spec") or {}).get("replicatedJobs") or ():
            for index in range(int(replicated.get("replicas", 1) or 0)):
                name = f"{meta['name']}-{replicated.get('name', '')}-{index}"
                if (namespace_of(meta), name) not in self.jobs:
                    yield name, ((replicated.get("template") or {}).get("spec") or {})

    def stand_ins(self, owner: Body, spec: Body, job: str) -> list[Pod]:
        parallelism = int(spec.get("parallelism", 1) if spec.get("parallelism") is not None else 1)
        if spec.get("completions") is not None:
            parallelism = min(parallelism, int(spec["completions"]))
        done = _done(owner)
        template = spec.get("template") or {}
        namespace = namespace_of(owner["metadata"])
        pod_spec = {**(template.get("spec") or {}), "priority": self.priority_of(template.get("spec") or {})}
        meta = {**(template.get("metadata") or {}), "namespace": namespace, "name": job}
        body = {"metadata": meta, "spec": pod_spec}
        sample, hold = self.devices.with_claims(pod_of(body, self.claims), body)
        if hold:
            self.holds[namespace, job] = hold
        return [_named(sample, f"{job}/{index}") for index in range(max(parallelism - done, 0))]


def _done(owner: Body) -> int:
    """Pods that have ended, as the Job's status counts them."""
    status = (owner.get("status") or {}) if owner.get("kind") != "JobSet" else {}
    return int(status.get("succeeded") or 0) + int(status.get("failed") or 0)


def _named(sample: Pod, name: str) -> Pod:
    import msgspec

    return msgspec.structs.replace(sample, name=name)


def _is_suspended(body: Body) -> bool:
    return bool((body.get("spec") or {}).get("suspend"))


def _is_chained(body: Body) -> bool:
    """It waits for another run to succeed; room is made for it after that."""
    return bool((body["metadata"].get("labels") or {}).get(CHAINED))


def _is_queued(body: Body) -> bool:
    labels = body["metadata"].get("labels") or {}
    return bool(labels.get(RUN) or labels.get(QUEUE))


def _least_members(objects: Mapping[str, list[Body]]) -> Iterable[tuple[Key, int]]:
    """How many pods a group needs at least, where an object says so."""
    for body in objects.get("PodGroup", ()):
        meta, spec = body["metadata"], body.get("spec") or {}
        policy = (spec.get("schedulingPolicy") or spec.get("policy") or {}).get("gang") or {}
        least = spec.get("minMember") or policy.get("minCount")
        if least:
            yield (namespace_of(meta), "podgroup", meta["name"]), int(least)
    for body in objects.get("Workload", ()):
        meta = body["metadata"]
        for group in (body.get("spec") or {}).get("podGroups") or ():
            gang = (group.get("policy") or group.get("schedulingPolicy") or {}).get("gang") or {}
            if gang.get("minCount"):
                yield (namespace_of(meta), "workload", f"{meta['name']}/{group.get('name', '')}"), int(gang["minCount"])
    for body in objects.get("Job", ()):
        least = (body.get("spec") or {}).get("minAvailable")
        if not is_batch_job(body) and least:
            yield (namespace_of(body["metadata"]), "volcano", body["metadata"]["name"]), int(least)


def _queued(workloads: Iterable[Body]) -> Iterable[tuple[tuple[str, str], str]]:
    """(namespace, owner) -> why Kueue does not let it in; empty: it has quota, or lacks nothing but machines."""
    for body in workloads:
        spec, meta = body.get("spec") or {}, body["metadata"]
        if not str(body.get("apiVersion", "kueue")).startswith("kueue"):
            continue  # the Workload of Kubernetes itself
        conditions = {one.get("type"): one for one in (body.get("status") or {}).get("conditions") or ()}
        quota = conditions.get("QuotaReserved") or {}
        message = str(quota.get("message", ""))
        reason = ""
        if spec.get("active") is False:
            reason = "Kueue: the workload was deactivated"
        elif quota.get("status") != "True" and "topology" not in message.lower():
            reason = f"Kueue: {message[:200] or 'no quota is reserved for it yet'}"
        for owner in meta.get("ownerReferences") or ():
            yield (namespace_of(meta), str(owner.get("name", ""))), reason


class GangPod:
    """A pod of the List that belongs to a gang."""

    __slots__ = ("pod", "body", "job")

    def __init__(self, pod: Pod, body: Body) -> None:
        self.pod, self.body = pod, body
        labels = body["metadata"].get("labels") or {}
        owners = [
            one.get("name", "") for one in body["metadata"].get("ownerReferences") or () if one.get("kind") == "Job"
        ]
        self.job: str = next((labels[name] for name in JOB_NAMES if name in labels), owners[0] if owners else "")


def gangs_of(groups: GangIndex, members: Mapping[Key, list[GangPod]]) -> tuple[list[Gang], set[str]]:
    """The gangs that wait, and the names of pods that are beyond their gang's least and so go alone."""
    templates = groups.templates()
    gangs, alone = [], set()
    for key in sorted({*members, *templates}):
        gang, extra = _gang(groups, key, members.get(key, []), templates.get(key, []))
        alone |= extra
        if gang is not None:
            gangs.append(gang)
    return gangs, alone


def _gang(
    groups: GangIndex, key: Key, members: list[GangPod], templates: list[tuple[Body, list[Pod]]]
) -> tuple[Gang | None, set[str]]:
    newest = _newest_attempt([*(member.body for member in members), *(body for body, _ in templates)])
    members = [one for one in members if _attempt(one.body) in (None, newest)]
    templates = [template for template in templates if _attempt(template[0]) in (None, newest)]
    here = [one for one in members if not one.pod.is_finished]
    waiting = sorted((one.pod for one in here if _waits(one.pod)), key=lambda pod: pod.name)
    held = sum(1 for gang_pod in here if gang_pod.pod.node is not None and not gang_pod.pod.is_terminating)
    missing = _missing(members, templates)
    pods = [*waiting, *missing]
    if not pods:
        return None, set()
    least, hold = _least(groups, key, members), ""
    extra: set[str] = set()
    if least is not None:
        if held + len(pods) < least:
            hold = f"{held + len(pods)} of the gang's {least} pods exist"
        needed = max(least - held, 0)
        extra = {f"{pod.namespace}/{pod.name}" for pod in waiting[needed:]}
        pods = pods[:needed]
        if not pods:
            return None, extra
    unclear = (groups.holds.get((pod.namespace, pod.name.rpartition("/")[0] or pod.name)) for pod in pods)
    hold = hold or next((reason for reason in unclear if reason), "")
    return _value(groups, key, pods, held, hold, [*(body for body, _ in templates), *(m.body for m in here)]), extra


def _value(groups: GangIndex, key: Key, pods: list[Pod], held: int, hold: str, bodies: list[Body]) -> Gang:
    created = [parse_time(body["metadata"].get("creationTimestamp")) for body in bodies]
    owners = [groups.hold_of(body) for body in bodies]
    return Gang(
        name=f"{key[0]}/{key[2].rstrip('/')}",
        pods=tuple(pods),
        created=min((moment for moment in created if moment is not None), default=0.0),
        priority=max(pod.priority for pod in pods),
        run=key[2] if key[1] == "run" else None,
        is_suspended=any(_is_suspended(body) for body in bodies),
        held=held,
        hold=hold or next((reason for reason in owners if reason), ""),
    )


def _waits(pod: Pod) -> bool:
    return pod.node is None and not pod.is_terminating


def _missing(members: list[GangPod], templates: list[tuple[Body, list[Pod]]]) -> list[Pod]:
    """Stand-ins for the pods that a Job wants and has not made.

    A Job's status follows its pods by a second or so: pods that have ended and are not counted there are not to come.
    """
    made: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for member in members:
        if member.pod.is_finished:
            ended[member.job] += 1
        elif not member.pod.is_terminating:
            made[member.job] += 1
    unknown = made.pop("", 0)
    pods: list[Pod] = []
    for body, wanted in templates:
        job = wanted[0].name.rpartition("/")[0] if wanted else ""
        pods += wanted[made[job] + max(ended[job] - _done(body), 0) :]
    return pods[unknown:]


def _least(groups: GangIndex, key: Key, members: list[GangPod]) -> int | None:
    if key[1] == "kueue":
        totals = [
            str((member.body["metadata"].get("annotations") or {}).get(POD_GROUP_TOTAL, "")) for member in members
        ]
        return next((int(total) for total in totals if total.isdigit()), None)
    return groups.least.get(key)


def _attempt(body: Body) -> int | None:
    text = (body["metadata"].get("labels") or {}).get(ATTEMPT, "")
    return int(text) if text.isdigit() else None


def _newest_attempt(bodies: Iterable[Body]) -> int | None:
    return max((number for number in map(_attempt, bodies) if number is not None), default=None)
