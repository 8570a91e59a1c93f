"""Manifests of the autoscaler for `longboat install --autoscaler`: Deployment, pools file, least RBAC. Pure.

Everywhere it reads what demand and machines are told by, changes and deletes nodes, and evicts pods by the eviction
API. It writes ConfigMaps and its Lease in its own namespace only, by name. It reads no Secrets.
"""

from __future__ import annotations

import hashlib

from longboat.engines.kubernetes.install.controller_manifests import (
    EVERYBODY,
    HOME,
    Object,
    RbacRule,
    binding_of,
    container_of,
    deployment_of,
    object_of,
    rules_of,
)
from longboat.kubeapi.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    DEPLOYMENT,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
)
from longboat.kubeapi.leases import MANAGED_BY

AUTOSCALER = "longboat-autoscaler"
STATUS = f"{AUTOSCALER}-status"
"""Numbers of its pools, for everybody."""
REPORT = f"{AUTOSCALER}-report"
"""What it does and for whom: it names runs of all namespaces, so only who may read ConfigMaps there sees it."""
POOLS = f"{AUTOSCALER}-pools"
BOOKS = "longboat-kwok"
LABELS = {**MANAGED_BY, "app.kubernetes.io/name": AUTOSCALER}
PORT = 8087
FOLDER = "/etc/longboat"
NODE_LEASES = "kube-node-lease"

SEES = ("list", "watch")
CLUSTER: tuple[RbacRule, ...] = (
    RbacRule("", "nodes", ("get", "list", "watch", "patch", "delete")),
    RbacRule("", "pods", ("get", "list", "watch")),
    RbacRule("", "pods/eviction", ("create",)),
    RbacRule("", "persistentvolumeclaims", SEES),
    RbacRule("", "persistentvolumes", SEES),
    RbacRule("", "namespaces", SEES),
    RbacRule("", "events", ("create",)),
    RbacRule("", "configmaps", ("get",)),  # records, so that events about a run name it by its uid
    RbacRule("batch", "jobs", SEES),
    RbacRule("apps", "daemonsets", SEES),
    RbacRule("policy", "poddisruptionbudgets", SEES),
    RbacRule("scheduling.k8s.io", "priorityclasses", SEES),
    RbacRule("scheduling.k8s.io", "podgroups", SEES),
    RbacRule("scheduling.k8s.io", "workloads", SEES),
    RbacRule("resource.k8s.io", "deviceclasses", SEES),
    RbacRule("resource.k8s.io", "resourceclaims", SEES),
    RbacRule("resource.k8s.io", "resourceclaimtemplates", SEES),
    RbacRule("resource.k8s.io", "resourceslices", SEES),
    RbacRule("jobset.x-k8s.io", "jobsets", SEES),
    RbacRule("kueue.x-k8s.io", "workloads", SEES),
    RbacRule("scheduling.x-k8s.io", "podgroups", SEES),
    RbacRule("scheduling.volcano.sh", "podgroups", SEES),
    RbacRule("batch.volcano.sh", "jobs", SEES),
)
OWN: tuple[RbacRule, ...] = (
    RbacRule("", "configmaps", ("create",)),
    RbacRule("", "configmaps", ("update", "patch"), (AUTOSCALER, STATUS, REPORT)),
    RbacRule("coordination.k8s.io", "leases", ("create",)),
    RbacRule("coordination.k8s.io", "leases", ("get", "update", "delete"), (AUTOSCALER,)),
)
"""In its own namespace: memory, status, leadership."""

KWOK_CLUSTER: tuple[RbacRule, ...] = (RbacRule("", "nodes", ("create",)),)
KWOK_OWN: tuple[RbacRule, ...] = (RbacRule("", "configmaps", ("update",), (BOOKS,)),)
KWOK_LEASES: tuple[RbacRule, ...] = (RbacRule("coordination.k8s.io", "leases", ("delete",)),)
"""What simulated machines need besides: they are nodes that the provider makes itself."""


def service_account(version: str) -> Object:
    """Who the autoscaler is; clouds give rights to it."""
    meta = {"name": AUTOSCALER, "namespace": HOME, "labels": {**LABELS, "app.kubernetes.io/version": version}}
    return object_of(SERVICE_ACCOUNT, meta, automountServiceAccountToken=False)


def autoscaler_objects(*, image: str, pools: str, version: str, simulates: bool) -> list[Object]:
    """Manifests in the order of their creation, after the controller's. `pools`: the text of the pools file.

    `simulates`: a pool has the provider `kwok`.
    """
    named = {"name": AUTOSCALER, "labels": {**LABELS, "app.kubernetes.io/version": version}}
    placed = {**named, "namespace": HOME}
    seen = {**placed, "name": f"{AUTOSCALER}-seen"}
    objects = [
        service_account(version),
        object_of(ROLE, placed, rules=rules_of((*OWN, *(KWOK_OWN if simulates else ())))),
        binding_of(ROLE_BINDING, placed, ROLE),
        object_of(ROLE, seen, rules=rules_of((RbacRule("", "configmaps", ("get",), (STATUS,)),))),
        binding_of(ROLE_BINDING, seen, ROLE, EVERYBODY),
        object_of(CLUSTER_ROLE, named, rules=rules_of((*CLUSTER, *(KWOK_CLUSTER if simulates else ())))),
        binding_of(CLUSTER_ROLE_BINDING, named, CLUSTER_ROLE),
    ]
    if simulates:
        leases = {**named, "namespace": NODE_LEASES}
        objects += [object_of(ROLE, leases, rules=rules_of(KWOK_LEASES)), binding_of(ROLE_BINDING, leases, ROLE)]
    file = object_of(CONFIG_MAP, {**placed, "name": POOLS}, data={"pools.yaml": pools})
    return [*objects, file, object_of(DEPLOYMENT, placed, spec=_deployment(image, pools))]


def _deployment(image: str, pools: str) -> Object:
    volumes: list[Object] = [
        {"name": "home", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "pools", "configMap": {"name": POOLS}},
    ]
    # Another file is another pod: a running one goes by what it has read.
    return deployment_of(LABELS, _container(image), volumes, pools=hashlib.sha256(pools.encode()).hexdigest()[:16])


def _container(image: str) -> Object:
    container = container_of("autoscaler", image, PORT, "2Gi")
    pools = ["--pools", f"{FOLDER}/pools.yaml", "--home", HOME]
    return {
        **container,
        "command": ["longboat", "autoscaler", "run", *pools, "--metrics-port", str(PORT)],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        # What the commands of a provider need, and the address of a webhook.
        "envFrom": [{"secretRef": {"name": AUTOSCALER, "optional": True}}],
        "volumeMounts": [*container["volumeMounts"], {"name": "pools", "mountPath": FOLDER, "readOnly": True}],
    }
