"""Retry templates: the workload of a run as its submitter created it, suspended and without pods. Pure.

A record is a ConfigMap, which more people may write than may create Jobs. So whoever starts a later attempt (often the
controller, with rights in many namespaces) makes it of a template: a Job or JobSet that only somebody who may create
such a thing can have created, as the API server holds it, with nothing replaced but names, labels and the like of the
attempt. The template carries a pin, a hash of the record and of the first attempt's Secret, in a field of its pod
template that nobody can change: another record, or another gang file, is not what the submitter vouched for.

It is inert in three ways: suspended, `parallelism: 0`, and without the labels by which the gate and the autoscaler find
workloads. In a cluster with Kueue it names a queue that is not there.

Not here: creating and reading it (`creation`).
"""

from __future__ import annotations

import base64
import binascii
import copy
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from longboat.core.elastic.sizes import is_elastic, is_elastic_role
from longboat.core.jobs import Role
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests import volumes
from longboat.engines.kubernetes.manifests.pod_template import CONTAINER, claim_template_name
from longboat.engines.kubernetes.manifests.workloads import QUEUE, workloads
from longboat.engines.kubernetes.records import Record

Object = dict[str, Any]

PIN = "LONGBOAT_TEMPLATE_PIN"
FIRST = 0
"""The attempt whose names a template has in its spec."""
NO_QUEUE = "longboat-template"
"""A LocalQueue that nobody makes. Kueue takes jobs that name no queue into one called `default`, where there is one; it
then starts them, and its controller does not get over one that wants no pods."""
SERVER_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
"""Labels that the API server gives the pods of a Job; a copy gets its own."""


def is_needed(record: Record) -> bool:
    """Whether anything may have to be made for the run later: another attempt, or a pod that reads what it kept."""
    is_retried = record.job.retries.count > 0 or is_elastic(record.job)
    return is_retried or any("emptyDir" not in volume for volume in volumes.pod_volumes(record)[0])


def pin_of(record_hash: str, secret: Mapping[str, Any]) -> str:
    """Digest that a template vouches for: the record's text and the first attempt's Secret, gang file and token."""
    data = secret.get("data") or {}
    parts = [record_hash, *(hashlib.sha256(_bytes(data, key)).hexdigest() for key in ("gang", "token"))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def token_of(secret: Mapping[str, Any], attempt: int) -> str:
    """The gang's token of a later attempt. It follows from the first, which only readers of Secrets know: so a Secret
    that somebody else put in an attempt's place beforehand is told from one that we made."""
    first = _bytes(secret.get("data") or {}, "token")
    return hmac.new(first, f"attempt {attempt}".encode(), hashlib.sha256).hexdigest()[: len(first)]


def _bytes(data: Mapping[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(data.get(key) or "", validate=True)
    except (binascii.Error, ValueError):
        return b""


def template_objects(record: Record, pin: str, labels: Mapping[str, str]) -> list[Object]:
    """One for each workload of an attempt, in their order; without owner and namespace.

    `labels` are those of the run's objects.
    """
    return as_templates(workloads(record, FIRST, labels, suspended=True), record, pin)


def as_templates(bodies: Sequence[Object], record: Record, pin: str) -> list[Object]:
    """Workloads of the first attempt as templates of later ones."""
    own = {names.MANAGED_BY: "longboat", names.KIND: "template", names.TEMPLATE_OF: record.name}
    queue = {QUEUE: NO_QUEUE} if record.queue is not None else {}
    objects = []
    for body, name in zip(copy.deepcopy(list(bodies)), template_names(record), strict=True):
        spec = {**body["spec"], "suspend": True}
        for job in _jobs({**body, "spec": spec}):
            _hide(job["spec"], pin)
            if body["kind"] == "JobSet":
                job["metadata"] = {"labels": own}
        if body["kind"] == "JobSet":
            spec["network"] = {"enableDNSHostnames": False}
        metadata = {"name": name, "labels": {**own, **queue}}
        objects.append({**body, "metadata": metadata, "spec": spec})
    return objects


def template_names(record: Record) -> list[str]:
    """No longer than the names of attempt 0, which fit."""
    base = names.template_name(record.name)
    if record.workload == "jobset":
        return [base]
    short = names.role_names(record.job, record.name, FIRST, "job")
    return [f"{base}-{short[role.name]}" for role in record.job.roles]


def _jobs(body: Object) -> list[Object]:
    """Holders of Job specs: the Job itself, or the templates of a JobSet."""
    return (
        [replicated["template"] for replicated in body["spec"]["replicatedJobs"]]
        if body["kind"] == "JobSet"
        else [body]
    )


def _hide(spec: Object, pin: str) -> None:
    """No pods, and none that anybody takes for the run's."""
    spec["parallelism"] = 0
    pod = spec["template"]
    pod["metadata"]["labels"] = {
        key: value for key, value in pod["metadata"]["labels"].items() if key not in (names.RUN, names.ATTEMPT)
    }
    main = _main(pod["spec"])
    main["env"] = [*main.get("env", ()), {"name": PIN, "value": pin}]


def _main(pod_spec: Object) -> Object:
    main: Object = next(container for container in pod_spec["containers"] if container.get("name") == CONTAINER)
    return main


def pod_specs(body: Mapping[str, Any]) -> list[Object]:
    """Pod specs of a Job or JobSet as stored by the API server."""
    return [job["spec"]["template"]["spec"] for job in _jobs(dict(body))]


def pins_of(template: Mapping[str, Any]) -> set[str]:
    """All pins of a stored template; exactly one if it was made for a run."""
    pins: set[str] = set()
    for job in _jobs(dict(template)):
        containers = (((job.get("spec") or {}).get("template") or {}).get("spec") or {}).get("containers") or ()
        values = [
            str(entry.get("value", ""))
            for container in containers
            if container.get("name") == CONTAINER
            for entry in container.get("env") or ()
            if entry.get("name") == PIN
        ]
        pins |= set(values or [""])
    return pins


def copies(
    templates: Sequence[Object], record: Record, attempt: int, wanted: Sequence[Object], *, origin: Record | None = None
) -> list[Object]:
    """The workloads of a later attempt: the templates, with what `wanted` (the same workloads as rendered from the
    record) says about names, labels and suspension, and the attempt's names in place of the first attempt's.

    `origin`: the run whose names the templates have, where that is another one, as for trials of a sweep; its pods have
    the labels of that run."""
    renaming = _Renaming(origin or record, record, attempt, has_labels=origin is None)
    roles = list(record.job.roles)
    objects = []
    for held, rendered in zip(templates, wanted, strict=True):
        made = {key: rendered[key] for key in ("apiVersion", "kind", "metadata")}
        if rendered["kind"] == "JobSet":
            objects.append({**made, "spec": _jobset(held["spec"], rendered["spec"], renaming)})
        else:
            spec = _job(held["spec"], rendered["spec"], roles[len(objects)], renaming)
            objects.append({**made, "spec": {**spec, "suspend": rendered["spec"]["suspend"]}})
    return objects


class _Renaming(NamedTuple):
    """Of a template that has the names of the first attempt of `origin`."""

    origin: Record
    record: Record
    attempt: int
    has_labels: bool  # the template's pods have the labels of this run already, but those of the attempt


def _jobset(held: Object, rendered: Object, renaming: _Renaming) -> Object:
    replicated = []
    pairs = zip(held["replicatedJobs"], rendered["replicatedJobs"], renaming.record.job.roles, strict=True)
    for held_job, ours, role in pairs:
        spec = _job(held_job["template"]["spec"], ours["template"]["spec"], role, renaming)
        template = {"metadata": ours["template"]["metadata"], "spec": spec}
        replicated.append({**held_job, "name": ours["name"], "template": template})
    kept = {key: value for key, value in held.items() if key not in ("replicatedJobs", "network", "suspend")}
    return {**kept, "suspend": rendered["suspend"], "network": rendered["network"], "replicatedJobs": replicated}


def _job(held: Object, rendered: Object, role: Role, renaming: _Renaming) -> Object:
    spec = copy.deepcopy({key: value for key, value in held.items() if key not in ("selector", "suspend")})
    if is_elastic_role(role):  # its range is in the record, which the template vouches for
        spec["completions"] = role.nodes
    spec["parallelism"] = spec["completions"]
    pod = spec["template"]
    labels = (pod.get("metadata") or {}).get("labels") or {}
    ours = rendered["template"]["metadata"]["labels"]
    kept = {key: value for key, value in labels.items() if key not in SERVER_LABELS}
    own = {key: ours[key] for key in (names.RUN, names.ATTEMPT)} if renaming.has_labels else ours
    pod["metadata"] = {
        **{key: value for key, value in (pod.get("metadata") or {}).items() if key == "annotations"},
        "labels": {**kept, **own},
    }
    _rename(pod["spec"], role, renaming)
    return spec


def _rename(pod_spec: Object, role: Role, renaming: _Renaming) -> None:
    """The first attempt's names, where the template has them, become this one's; the pin is left out."""
    origin, record, attempt, _ = renaming
    before, after = names.attempt_name(origin.name, FIRST), names.attempt_name(record.name, attempt)
    if pod_spec.get("subdomain") == before:
        pod_spec["subdomain"] = after
    for volume in pod_spec.get("volumes") or ():
        if volume.get("name") == "gang" and (volume.get("secret") or {}).get("secretName") == before:
            volume["secret"]["secretName"] = after
    for claim in pod_spec.get("resourceClaims") or ():
        if claim.get("resourceClaimTemplateName") == claim_template_name(origin, role, FIRST):
            claim["resourceClaimTemplateName"] = claim_template_name(record, role, attempt)
    main = _main(pod_spec)
    main["env"] = [entry for entry in main.get("env") or () if entry.get("name") != PIN]
    if not main["env"]:
        del main["env"]
