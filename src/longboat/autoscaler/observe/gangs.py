"""Gangs: pods that run together, by our labels, JobSet, Kueue, PodGroups and Volcano; from the API's JSON. Pure.

A gang's pods that do not exist yet (a suspended Job, pods still to be made) stand in as pods of its templates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec

from longboat.autoscaler.model.snapshot import Gang
from longboat.autoscaler.observe.device_claims import DeviceClaims
from longboat.autoscaler.observe.gang_marks import (
    ATTEMPT,
    CHAINED,
    HELD,
    JOB_NAMES,
    JOBSET,
    POD_GROUP_TOTAL,
    QUEUE,
    RUN,
    SYSTEM_PRIORITIES,
    WORKLOAD,
    Key,
    holds_of_queue,
    is_batch_job,
    is_over,
    is_template,
    least_of_group,
    least_of_job,
    least_of_workload,
    mark_of,
    namespace_of,
    number_in,
)
from longboat.autoscaler.observe.odd_objects import OddObjects
from longboat.core.times import parse_time
from longboat.fitting.model.pods import Claims, Pod, pod_of

Body = Mapping[str, Any]
Templates = list[tuple[Body, list[Pod]]]
"""Jobs and JobSets, each with stand-ins for the pods it wants."""

MOST_PODS = 50_000
"""Stand-ins of one Job or JobSet, as many as a run may have nodes. Whoever may write a Job writes any number into it,
and each stand-in is a value that is placed in every turn."""
MOST_IN_NAMESPACE = 150_000
"""And of a namespace: no cluster of Kubernetes is meant for more pods."""


class GangIndex:
    """What the objects of a List say about gangs; asked once per pod."""

    def __init__(
        self,
        objects: Mapping[str, list[Body]],
        claims: Claims,
        devices: DeviceClaims | None = None,
        odd: OddObjects | None = None,
    ) -> None:
        self.claims, self.devices, self.odd = claims, devices or DeviceClaims(objects), odd or OddObjects()
        self.holds: dict[tuple[str, str], str] = {}  # (namespace, pod or Job) -> why it cannot be judged
        readable = self.odd.readable
        jobs = [job for job in readable(objects.get("Job", ()), self._job) if job is not None]
        self.jobs = {name: body for name, body, _ in jobs}
        self._job_keys = {name: key for name, _, key in jobs}
        jobsets = [job_set for job_set in readable(objects.get("JobSet", ()), _jobset) if job_set is not None]
        self.jobsets = {name: body for name, body, _ in jobsets}
        self._jobset_keys = {name: key for name, _, key in jobsets}
        self._in_namespace: Counter[str] = Counter()
        self.priorities = dict(SYSTEM_PRIORITIES)
        for body in objects.get("PriorityClass", ()):
            self.priorities[body["metadata"]["name"]] = int(body.get("value") or 0)
        least = (("PodGroup", least_of_group), ("Workload", least_of_workload), ("Job", least_of_job))
        self.least = dict(chain.from_iterable(chain(*(readable(objects.get(kind, ()), read) for kind, read in least))))
        # Of a kind that is followed there is a list, if an empty one; a file may have been printed without it.
        self.sees_workloads = "Workload" in objects
        self.queued = dict(chain.from_iterable(readable(objects.get("Workload", ()), holds_of_queue)))

    def _job(self, body: Body) -> tuple[tuple[str, str], Body, Key | None] | None:
        if not is_batch_job(body) or is_template(body):
            return None
        return _full_name(body), body, self._key_of_job(body)

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
        return (namespace_of(meta), "admitted", str(workload)) if workload else None

    def priority_of(self, spec: Body) -> int:
        if spec.get("priority") is not None:
            return int(spec["priority"])
        return self.priorities.get(spec.get("priorityClassName") or "", 0)

    def templates(self) -> dict[Key, Templates]:
        """For every gang: its unfinished Jobs and JobSets, each with stand-ins for all the pods it wants."""
        by_key: dict[Key, Templates] = {}
        for name, body in sorted(self.jobs.items(), key=lambda pair: pair[0]):
            key = self._job_keys[name]
            if key is not None:
                by_key.setdefault(key, []).extend(self._templates_of_job(body, key))
        for name, body in sorted(self.jobsets.items(), key=lambda pair: pair[0]):
            key = self._jobset_keys[name]
            by_key.setdefault(key, []).extend(self._templates_of_jobset(body))
        return {key: templates for key, templates in by_key.items() if templates}

    def _templates_of_job(self, body: Body, key: Key) -> Templates:
        name = body["metadata"]["name"]
        try:
            if is_over(body) or not self._is_wanted(body, key):
                return []
            reason = self._too_many(body, _parallelism(body.get("spec") or {}))
            placeholder_pods = self.placeholder_pods(body, body.get("spec") or {}, name) if not reason else []
        except Exception as bad:  # what a stranger wrote may fail anywhere
            reason = self.odd.note(body, bad)
        return [(body, [self._held(body, reason)] if reason else placeholder_pods)]

    def _templates_of_jobset(self, body: Body) -> Templates:
        try:
            if is_over(body) or _is_chained(body) or (_is_suspended(body) and not _is_queued(body)):
                return []
            # Children are counted before they are named: there may be as many of them as of pods.
            reason = self._too_many(body, sum(_size(replicated) for replicated in _replicated(body)))
            templates = (
                [(body, self.placeholder_pods(body, spec, job)) for job, spec in self._children(body)]
                if not reason
                else []
            )
        except Exception as bad:
            reason = self.odd.note(body, bad)
        return [(body, [self._held(body, reason)])] if reason else templates

    def _too_many(self, body: Body, count: int) -> str:
        """Why no stand-ins are made for it; empty: they are."""
        namespace, kind = namespace_of(body["metadata"]), body.get("kind", "Job")
        if count > MOST_PODS:
            return f"its {kind} asks for {count} pods; more than {MOST_PODS} are not looked at"
        if self._in_namespace[namespace] + count > MOST_IN_NAMESPACE:
            return f"Jobs of its namespace ask for more than {MOST_IN_NAMESPACE} pods, which are not looked at"
        self._in_namespace[namespace] += count
        return ""

    def _held(self, body: Body, reason: str) -> Pod:
        """One held pod that stands for a gang that cannot be read."""
        namespace, name = _full_name(body)
        self.holds[namespace, name] = reason
        return Pod(name=f"{name}/0", namespace=namespace)

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
        hold = self.queued.get((namespace, str(owner["metadata"].get("name", ""))))
        if hold is not None:
            return hold
        is_new = _is_suspended(owner) and (owner["metadata"].get("labels") or {}).get(QUEUE)
        return "Kueue has not looked at it yet" if is_new and self.sees_workloads else ""

    def _children(self, jobset: Body) -> Iterable[tuple[str, Body]]:
        """Jobs that a JobSet will make and that are not there yet."""
        meta = jobset["metadata"]
        for replicated in _replicated(jobset):
            for index in range(_replicas(replicated)):
                name = f"{meta['name']}-{replicated.get('name', '')}-{index}"
                if (namespace_of(meta), name) not in self.jobs:
                    yield name, ((replicated.get("template") or {}).get("spec") or {})

    def placeholder_pods(self, owner: Body, spec: Body, job: str) -> list[Pod]:
        template = spec.get("template") or {}
        namespace = namespace_of(owner["metadata"])
        pod_spec = {**(template.get("spec") or {}), "priority": self.priority_of(template.get("spec") or {})}
        meta = {**(template.get("metadata") or {}), "namespace": namespace, "name": job}
        body = {"metadata": meta, "spec": pod_spec}
        sample, hold = self.devices.with_claims(pod_of(body, self.claims), body)
        if hold:
            self.holds[namespace, job] = hold
        return [_named(sample, f"{job}/{index}") for index in range(_parallelism(spec) - _done(owner))]


def _full_name(body: Body) -> tuple[str, str]:
    return namespace_of(body["metadata"]), body["metadata"]["name"]


def _jobset(body: Body) -> tuple[tuple[str, str], Body, Key] | None:
    if is_template(body):
        return None
    namespace, name = _full_name(body)
    return (namespace, name), body, mark_of(body["metadata"], {}) or (namespace, "jobset", name)


def _parallelism(spec: Body) -> int:
    """Pods that a Job has at once."""
    wanted = int(spec.get("parallelism", 1) if spec.get("parallelism") is not None else 1)
    return wanted if spec.get("completions") is None else min(wanted, int(spec["completions"]))


def _replicated(jobset: Body) -> list[Body]:
    return list((jobset.get("spec") or {}).get("replicatedJobs") or ())


def _replicas(replicated: Body) -> int:
    return int(replicated.get("replicas", 1) or 0)


def _size(replicated: Body) -> int:
    """Pods of a replicated job; of one without pods its Jobs, which are looked at one by one too."""
    spec = (replicated.get("template") or {}).get("spec") or {}
    return max(_replicas(replicated), 0) * max(_parallelism(spec), 1)


def _done(owner: Body) -> int:
    """Pods that have ended, as the Job's status counts them."""
    status = (owner.get("status") or {}) if owner.get("kind") != "JobSet" else {}
    return int(status.get("succeeded") or 0) + int(status.get("failed") or 0)


def _named(sample: Pod, name: str) -> Pod:
    return msgspec.structs.replace(sample, name=name)


def _is_suspended(body: Body) -> bool:
    return bool((body.get("spec") or {}).get("suspend"))


def _is_chained(body: Body) -> bool:
    """Whether it waits for another run to succeed, or for a budget: it is no demand before that."""
    labels = body["metadata"].get("labels") or {}
    return bool(labels.get(CHAINED) or labels.get(HELD))


def _is_queued(body: Body) -> bool:
    labels = body["metadata"].get("labels") or {}
    return bool(labels.get(RUN) or labels.get(QUEUE))


class GangPod:
    """A pod of the List that belongs to a gang."""

    __slots__ = ("pod", "body", "job")

    def __init__(self, pod: Pod, body: Body) -> None:
        self.pod, self.body = pod, body
        labels = body["metadata"].get("labels") or {}
        owners = [
            owner.get("name", "")
            for owner in body["metadata"].get("ownerReferences") or ()
            if owner.get("kind") == "Job"
        ]
        self.job: str = next((labels[name] for name in JOB_NAMES if name in labels), owners[0] if owners else "")


def gangs_of(groups: GangIndex, members: Mapping[Key, list[GangPod]]) -> tuple[list[Gang], set[str]]:
    """The gangs that wait, and the names of pods that are beyond their gang's least and so go alone."""
    templates = groups.templates()
    gangs: list[Gang] = []
    alone: set[str] = set()
    for key in sorted({*members, *templates}, key=lambda key: tuple(map(str, key))):
        here, wanted = members.get(key, []), templates.get(key, [])
        try:
            gang, extra = _gang(groups, key, here, wanted)
        except Exception as bad:  # its pods stay a part of it, and so nothing is bought for them
            groups.odd.note((wanted[0][0] if wanted else here[0].body), bad)
            continue
        alone |= extra
        if gang is not None:
            gangs.append(gang)
    return gangs, alone


def _gang(groups: GangIndex, key: Key, members: list[GangPod], templates: Templates) -> tuple[Gang | None, set[str]]:
    newest = _newest_attempt([*(member.body for member in members), *(body for body, _ in templates)])
    members = [member for member in members if _attempt(member.body) in (None, newest)]
    templates = [template for template in templates if _attempt(template[0]) in (None, newest)]
    here = [member for member in members if not member.pod.is_finished]
    waiting = sorted((member.pod for member in here if _waits(member.pod)), key=lambda pod: pod.name)
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
    # Some pods of a Job that cannot be told may be there: the gang is held all the same.
    judged = [*pods, *(wanted[0] for _, wanted in templates if wanted)]
    unclear = (groups.holds.get((pod.namespace, pod.name.rpartition("/")[0] or pod.name)) for pod in judged)
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
        owner=next((uid for body in bodies if (uid := _record_of(body, key))), ""),
    )


def _record_of(body: Body, key: Key) -> str:
    """The uid of the run's record; empty: this object does not name it."""
    owners = body["metadata"].get("ownerReferences") or ()
    names = ((owner.get("kind"), owner.get("name"), owner.get("uid")) for owner in owners)
    return next((str(uid) for kind, name, uid in names if (kind, name) == ("ConfigMap", key[2])), "")


def _waits(pod: Pod) -> bool:
    return pod.node is None and not pod.is_terminating


def _missing(members: list[GangPod], templates: Templates) -> list[Pod]:
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
        marks = [member.body["metadata"].get("annotations") or {} for member in members]
        totals = (number_in(mark.get(POD_GROUP_TOTAL)) for mark in marks)
        return next((total for total in totals if total is not None), None)
    return groups.least.get(key)


def _attempt(body: Body) -> int | None:
    return number_in((body["metadata"].get("labels") or {}).get(ATTEMPT))


def _newest_attempt(bodies: Iterable[Body]) -> int | None:
    return max((number for number in map(_attempt, bodies) if number is not None), default=None)
