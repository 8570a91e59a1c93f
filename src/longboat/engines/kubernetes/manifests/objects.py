"""All objects of a run as dicts, ready to be created. Pure; nothing here talks to a cluster.

    record_object(record, state)                    the ConfigMap R, created first: it owns all that follow
    run_objects(record, secrets, owner)             claims to make, Secret R-env (only with secrets), budget R, policy
    attempt_objects(record, attempt, start, owner)  Secret R-a<k>, Service R-a<k>, claim templates (DRA), JobSet or Jobs
    retry_templates(record, pin, owner)             JobSet R-t or Jobs R-t-<role>, of which later attempts are copies

    standalone(record, start, shared)               all of a run for `kubectl apply`: it needs no Longboat afterwards

`owner` is `owner_of(the ConfigMap as the server returned it)`; None leaves ownerReferences out (a dry run before the
record exists). Objects come in the order in which they are to be created: what starts pods is last.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.jobs import Value
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests import gang_file, pod_template, retry_template, volumes
from longboat.engines.kubernetes.manifests.gang_file import CodeManifest
from longboat.engines.kubernetes.manifests.network_policy import network_policy
from longboat.engines.kubernetes.manifests.workloads import workloads
from longboat.engines.kubernetes.records import Record, State

Object = dict[str, Any]
Owner = dict[str, Any]

MANAGER = "longboat"
"""Value of app.kubernetes.io/managed-by, and our field manager."""


class AttemptStart(Value, frozen=True):
    """Values that differ between attempts."""

    token: str  # of the line: random, secret
    suspended: bool
    timeout_s: float | None = None  # what is left of the job's timeout
    code: CodeManifest | None = None


def owner_of(record_map: Mapping[str, Any]) -> Owner:
    """The ownerReference to a record that exists."""
    metadata = record_map["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}


def labels_of(record: Record, attempt: int | None = None) -> dict[str, str]:
    """The user's own labels, and ours, which nothing overrides."""
    own = {key: value for key, value in record.job.labels.items() if not _is_reserved(key)}
    ours = {names.MANAGED_BY: MANAGER, names.RUN: record.name}
    if user := names.label_value(record.user):
        ours[names.USER] = user
    if attempt is not None:
        ours[names.ATTEMPT] = str(attempt)
    return {**own, **ours}


def _is_reserved(label: str) -> bool:
    """Labels by which Kubernetes, its controllers and we find objects."""
    domain = label.partition("/")[0] if "/" in label else ""
    return domain.endswith(("kubernetes.io", "k8s.io", "sigs.k8s.io", names.DOMAIN))


def record_object(record: Record, state: State) -> Object:
    metadata = {
        "name": record.name,
        "namespace": record.namespace,
        "labels": {**labels_of(record), names.KIND: "run"},
        "annotations": annotations_of(record),
    }
    data = {"record": msgspec.json.encode(record).decode(), "state": msgspec.json.encode(state).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def annotations_of(record: Record) -> dict[str, str]:
    """Annotations with the run's origin: hashes of job and code, the commit."""
    spec = hashlib.sha256(msgspec.json.encode(record.job)).hexdigest()
    annotations = {f"{names.DOMAIN}/spec": spec, f"{names.DOMAIN}/uid": record.uid}
    if record.bundle:
        annotations[f"{names.DOMAIN}/code"] = record.bundle
    if record.commit:
        annotations[f"{names.DOMAIN}/commit"] = record.commit + ("-dirty" if record.dirty else "")
    return annotations


def run_objects(record: Record, secrets: Mapping[str, bytes], *, owner: Owner | None = None) -> list[Object]:
    """Objects of the run besides its record and attempts. `secrets`: variable -> value from the submitter.

    Claims that the job describes come first; one that is there already stays as it is, and none is owned by the run.
    """
    objects: list[Object] = []
    if secrets:
        objects.append(secret_object(names.env_secret(record.name), secrets, "env"))
    objects.append(_budget(record))
    if record.network_policy:
        objects.append(network_policy(record))
    made = [_finished(each, record, owner, labels_of(record)) for each in objects]
    return [*volumes.claims(record.job, record.namespace), *made]


def attempt_objects(record: Record, attempt: int, start: AttemptStart, *, owner: Owner | None = None) -> list[Object]:
    """Objects of one attempt. Raises Refused when the gang is too large for a Secret."""
    layout = gang_file.layout_of(record, attempt)
    gang = gang_file.encode(gang_file.gang_of(record, layout, timeout_s=start.timeout_s, code=start.code))
    name = names.attempt_name(record.name, attempt)
    labels = labels_of(record, attempt)
    made = workloads(record, attempt, labels, suspended=start.suspended)
    if record.after and not attempt and start.suspended:
        for each in made:
            each["metadata"]["labels"] = {**each["metadata"]["labels"], names.CHAINED: "true"}
    objects = [
        secret_object(name, {"gang": gang, "token": start.token.encode()}, "attempt"),
        _service(name, record, attempt),
        *claim_templates(record, attempt),
        *made,
    ]
    return [_finished(each, record, owner, labels) for each in objects]


def retry_templates(record: Record, pin: str, *, owner: Owner | None = None) -> list[Object]:
    """Created with the submitter's own rights, and with the run's labels only where that makes nothing of them."""
    templates = retry_template.template_objects(record, pin, labels_of(record, retry_template.FIRST))
    for each in templates:
        each["metadata"] = {**each["metadata"], "namespace": record.namespace}
        if owner is not None:
            each["metadata"]["ownerReferences"] = [owner]
    return templates


def standalone(
    record: Record, start: AttemptStart, shared: Sequence[Object], secrets: Mapping[str, bytes] | None = None
) -> tuple[list[Object], list[str]]:
    """One attempt as objects that `kubectl apply` accepts and that then run by themselves, and what to know about them.

    `shared`: Secrets of launcher and code (`code.upload.upload_objects`). There is no record: nobody retries the run or
    keeps what it leaves. Without `secrets` (variable -> value) it only says where their values are expected.
    """
    started = msgspec.structs.replace(start, suspended=False)
    notices = []
    for secret in sorted({name for name, _ in record.secrets.values()} if not secrets else ()):
        keys = ", ".join(sorted(key for name, key in record.secrets.values() if name == secret))
        notices.append(f"the Secret {secret} with {keys} is left out: create it in namespace {record.namespace} first")
    if record.job.retries.count:
        notices.append("nobody retries a run that was applied by hand")
    objects = [*shared, *run_objects(record, secrets or {}), *attempt_objects(record, 0, started)]
    return objects, notices


def _finished(body: Object, record: Record, owner: Owner | None, labels: Mapping[str, str]) -> Object:
    metadata = {
        **body["metadata"],
        "namespace": record.namespace,
        "labels": {**body["metadata"].get("labels", {}), **labels},
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {**body, "metadata": metadata}


def secret_object(name: str, data: Mapping[str, bytes], kind: str) -> Object:
    """A Secret of a run that nobody changes any more."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {names.KIND: kind}},
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def _service(name: str, record: Record, attempt: int) -> Object:
    """Gives every pod its address, before it is ready: peers wait for each other."""
    selector = {names.RUN: record.name, names.ATTEMPT: str(attempt)}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _budget(record: Record) -> Object:
    """No pod of the gang may be drained away. A number, because shares need a controller that can be scaled."""
    selector = {
        "matchLabels": {names.RUN: record.name},
        "matchExpressions": [{"key": names.ROLE, "operator": "Exists"}],
    }
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": record.name},
        "spec": {"minAvailable": record.job.pods, "selector": selector},
    }


def claim_templates(record: Record, attempt: int) -> list[Object]:
    """DRA: what each pod of a role claims."""
    templates = []
    for role in record.job.roles:
        if pod_template.is_dra(record, role):
            device_class = str(record.gpu_resource).removeprefix(pod_template.DRA)
            exactly = {"deviceClassName": device_class, "count": role.resources.gpus.count}
            spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
            metadata = {
                "name": pod_template.claim_template_name(record, role, attempt),
                "labels": {names.ROLE: role.name},
            }
            body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata}
            templates.append({**body, "spec": {"spec": spec}})
    return templates
