"""The pod of a run's node: one container that starts the launcher. Pure: a Record and a role in, a pod template out.

What is mounted where is in docs/contributing/kubernetes.md. The root file system may be read-only and the user any; the
pod has no service account token, and no GPU is visible where none was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from longboat.core.jobs import Role
from longboat.core.resources import format_cpus, format_quantity
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests import gpu_packing, volumes
from longboat.engines.kubernetes.manifests.gang_file import engine_env
from longboat.engines.kubernetes.manifests.gpu_driver import driver_volumes
from longboat.engines.kubernetes.manifests.overlay import overlaid
from longboat.engines.kubernetes.manifests.security_context import container_security, pod_security
from longboat.engines.kubernetes.records import Record

Object = dict[str, Any]

CONTAINER = "main"
LAUNCHER = f"{volumes.ROOT}/launcher/launcher.pyz"
DEFAULT_SHM = 64 << 20  # as container runtimes have it
AFTER_GRACE_S = 10
"""What the launcher has, after the ranks' grace, to write down how they ended."""

DRA = "dra:"
GPU_TAINT = "nvidia.com/gpu"


def pod_template(record: Record, role: Role, attempt: int, *, labels: Mapping[str, str]) -> Object:
    """The template of a role's pods. `labels` come on top of the user's own."""
    template = {
        "metadata": {
            "labels": {**labels, **gpu_packing.size_label(role.resources.gpus.count)},
            "annotations": _annotations(record),
        },
        "spec": _without_empty(
            {
                "subdomain": names.attempt_name(record.name, attempt),
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": math.ceil(record.job.grace_s) + AFTER_GRACE_S,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "serviceAccountName": record.service_account,
                "imagePullSecrets": [{"name": name} for name in record.pull_secrets],
                "securityContext": pod_security(record.security),
                "affinity": _affinity(record, role),
                "tolerations": _tolerations(record, role),
                "resourceClaims": _resource_claims(record, role, attempt),
                "containers": [_container(record, role)],
                "volumes": _volumes(record, role, attempt),
            }
        ),
    }
    return overlaid(template, record.pod)


def is_dra(record: Record, role: Role) -> bool:
    return bool(role.resources.gpus.count and (record.gpu_resource or "").startswith(DRA))


def claim_template_name(record: Record, role: Role, attempt: int) -> str:
    short = names.role_names(record.job, record.name, attempt, record.workload)[role.name]
    return names.job_name(record.name, attempt, short)


def _annotations(record: Record) -> dict[str, str]:
    annotations = {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    if record.queue is not None:
        for how, label in record.topology.items():
            annotations[f"kueue.x-k8s.io/podset-{how}-topology"] = label
    return annotations


def _container(record: Record, role: Role) -> Object:
    return _without_empty(
        {
            "name": CONTAINER,
            "image": record.images.get(role.name) or role.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "-I", "-S", LAUNCHER, "--pod", volumes.ROOT, role.name],
            "workingDir": volumes.NODE,
            "env": _env(record, role),
            "resources": _resources(record, role),
            "securityContext": container_security(record.security),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": _mounts(record) + driver_volumes(record, role)[1],
        }
    )


def _env(record: Record, role: Role) -> list[Object]:
    """Secrets, and what the container runtime itself must know. All other variables are in the gang file."""
    env: list[Object] = []
    if not role.resources.gpus.count:
        env += [{"name": name, "value": value} for name, value in engine_env(role).items()]
    for variable, (secret, key) in sorted(record.secrets.items()):
        env.append({"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return env


def _resources(record: Record, role: Role) -> Object:
    needs = role.resources
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    if needs.cpus is not None:
        requests["cpu"] = format_cpus(needs.cpus)
    if needs.memory is not None:
        requests["memory"] = limits["memory"] = format_quantity(needs.memory)
    if needs.disk is not None:
        requests["ephemeral-storage"] = format_quantity(needs.disk)
    resources: Object = {"requests": requests, "limits": limits}
    if needs.gpus.count and is_dra(record, role):
        resources["claims"] = [{"name": "gpus"}]
    elif needs.gpus.count and record.gpu_resource is not None:
        requests[record.gpu_resource] = limits[record.gpu_resource] = str(needs.gpus.count)
    return _without_empty(resources)


def _resource_claims(record: Record, role: Role, attempt: int) -> list[Object]:
    if not is_dra(record, role):
        return []
    return [{"name": "gpus", "resourceClaimTemplateName": claim_template_name(record, role, attempt)}]


def shm_size(role: Role) -> int:
    """Bytes of /dev/shm: as asked, else half of the memory, else what containers usually have. Part of the memory."""
    if role.resources.shm is not None:
        return role.resources.shm
    return role.resources.memory // 2 if role.resources.memory is not None else DEFAULT_SHM


def _volumes(record: Record, role: Role, attempt: int) -> list[Object]:
    gang = names.attempt_name(record.name, attempt)
    volume_list: list[Object] = [
        {"name": "node", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": format_quantity(shm_size(role))}},
        {"name": "launcher", "secret": {"secretName": record.launcher, "defaultMode": 0o444}},
        {"name": "gang", "secret": {"secretName": gang, "defaultMode": 0o444}},
    ]
    if record.packs:
        sources = [
            {"secret": {"name": pack, "items": [{"key": "pack", "path": str(number)}]}}
            for number, pack in enumerate(record.packs)
        ]
        volume_list.append({"name": "code", "projected": {"sources": sources, "defaultMode": 0o444}})
    if record.code_store is not None and record.code_store.secret is not None:
        volume_list.append({"name": "store", "secret": {"secretName": record.code_store.secret, "defaultMode": 0o444}})
    return volume_list + volumes.pod_volumes(record)[0] + driver_volumes(record, role)[0]


def _mounts(record: Record) -> list[Object]:
    mounts: list[Object] = [
        {"name": "node", "mountPath": volumes.NODE},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "launcher", "mountPath": f"{volumes.ROOT}/launcher", "readOnly": True},
        {"name": "gang", "mountPath": f"{volumes.ROOT}/gang", "readOnly": True},
    ]
    if record.packs:
        mounts.append({"name": "code", "mountPath": f"{volumes.ROOT}/code", "readOnly": True})
    if record.code_store is not None and record.code_store.secret is not None:
        mounts.append({"name": "store", "mountPath": f"{volumes.ROOT}/store", "readOnly": True})
    mounts += volumes.pod_volumes(record)[1]
    return mounts + _stored_packs(record, mounts)


def _stored_packs(record: Record, mounts: list[Object]) -> list[Object]:
    """Code that was too large for Secrets: files of the storage, where packs are expected."""
    if record.storage is None:
        return []
    name = next(mount["name"] for mount in mounts if mount["mountPath"] == volumes.STORAGE)
    return [
        {
            "name": name,
            "mountPath": f"{volumes.ROOT}/code/{number}",
            "subPath": f"{record.storage.folder}/{path}",
            "readOnly": True,
        }
        for number, path in enumerate(record.stored_packs)
    ]


def _tolerations(record: Record, role: Role) -> list[Object]:
    lost_s = round(record.node_lost_s)  # for runs that nobody drives: the cluster itself gives the pod up
    tolerations: list[Object] = [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for state, seconds in (("not-ready", lost_s), ("unreachable", lost_s))
    ]
    if role.resources.gpus.count:
        resource = record.gpu_resource
        keys = {GPU_TAINT} if resource is None or resource.startswith(DRA) else {GPU_TAINT, resource}
        tolerations += [{"key": key, "operator": "Exists"} for key in sorted(keys)]
    return tolerations


def _affinity(record: Record, role: Role) -> Object:
    """The type of the GPUs: any of the labels will do, clouds and vendors name the same GPU differently."""
    affinity = gpu_packing.preference(role.resources.gpus.count)
    labels = record.gpu_selector.get(role.name)
    if not labels:
        return affinity
    terms = [
        {"matchExpressions": [{"key": label, "operator": "In", "values": list(values)}]}
        for label, values in sorted(labels.items())
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**affinity, "nodeAffinity": required}


def _without_empty(fields: Object) -> Object:
    """The object without empty fields: to the API server absent and empty are the same."""
    return {key: value for key, value in fields.items() if value is not None and value != [] and value != {}}
