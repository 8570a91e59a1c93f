"""Values of ClusterFacts: nodes and their use, queues, quotas, limits, claims, made from what the API server answers.
Pure; `cluster_facts` asks the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from longboat.core.jobs import Value
from longboat.engines.kubernetes.submit.kueue_quotas import FlavorQuota
from longboat.fitting.model.nodes import NodeShape, node_of
from longboat.fitting.model.quantities import PODS, Amounts, total
from longboat.fitting.model.requests import requests_of

SecurityLevel = Literal["privileged", "baseline", "restricted"]
SECURITY_LABEL = "pod-security.kubernetes.io/enforce"
RUN_LABEL = "longboat.dev/run"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
POOL_LABELS = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "longboat.dev/pool",
)
"""Labels of nodes that a cloud or an autoscaler made."""
SILENT_S = 300.0
"""An autoscaler of ours that has written nothing for so long does not work."""


class NodeUse(Value, frozen=True):
    """A node, and what pods take of it."""

    node: NodeShape
    is_ready: bool = True
    used: Amounts = ()  # by all pods that have not ended
    standing: Amounts = ()  # of these, by pods that do not end by themselves (all but those of Jobs and of runs)
    daemons: Amounts = ()  # of these, by DaemonSets and static pods: every pod shares the node with them


class LocalQueue(Value, frozen=True):
    """A LocalQueue of Kueue."""

    name: str
    cluster_queue: str = ""
    is_active: bool | None = None
    message: str = ""
    flavors: tuple[FlavorQuota, ...] | None = None  # what its ClusterQueue can ever give; None: may not be looked at


class Quota(Value, frozen=True):
    name: str
    hard: dict[str, str] = {}
    used: dict[str, str] = {}
    scopes: tuple[str, ...] = ()  # "PriorityClass" stands for every selector we do not read


class Limit(Value, frozen=True):
    """One item of a LimitRange."""

    name: str
    type: str  # Container, Pod, PersistentVolumeClaim
    max: dict[str, str] = {}
    min: dict[str, str] = {}
    default: dict[str, str] = {}


class ClaimView(Value, frozen=True):
    name: str
    phase: str = ""  # Bound, Pending, Lost
    access_modes: tuple[str, ...] = ()
    storage_class: str | None = None
    size: str = ""


class StorageClass(Value, frozen=True):
    name: str
    is_default: bool = False


class Autoscaler(Value, frozen=True):
    """Something that may add nodes. `can_grow` False: every pool is at its maximum."""

    name: str
    can_grow: bool | None = None
    detail: str = ""
    gpu_hour: float | None = None  # price of the cheapest GPU that it can add, as far as it tells
    boot_s: float | None = None  # how long the quickest machine with GPUs takes to come


def uses_of(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> tuple[NodeUse, ...]:
    """Each node with what pods that have not ended take of it."""
    taken: dict[str, list[tuple[str, Amounts]]] = {}
    for pod in pods:
        host = (pod.get("spec") or {}).get("nodeName")
        if host and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            taken.setdefault(host, []).append((_kind_of(pod), (*requests_of(pod["spec"]), (PODS, 1))))
    uses = []
    for body in nodes:
        shape = node_of(body)
        here = taken.get(shape.name, [])
        uses.append(
            NodeUse(
                node=shape,
                is_ready=is_ready(body),
                used=total(amounts for _, amounts in here),
                standing=total(amounts for kind, amounts in here if kind != "run"),
                daemons=total(amounts for kind, amounts in here if kind == "daemon"),
            )
        )
    return tuple(uses)


def _kind_of(pod: Mapping[str, Any]) -> Literal["daemon", "standing", "run"]:
    meta = pod.get("metadata") or {}
    owners = {str(owner.get("kind")) for owner in meta.get("ownerReferences") or () if owner.get("controller")}
    if owners & {"DaemonSet", "Node"}:
        return "daemon"
    if "Job" in owners or RUN_LABEL in (meta.get("labels") or {}) or not owners:
        return "run"
    return "standing"


def is_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def queue_of(body: Mapping[str, Any]) -> LocalQueue:
    status = body.get("status") or {}
    active = next(
        (condition for condition in status.get("conditions") or () if condition.get("type") == "Active"), None
    )
    return LocalQueue(
        name=str(body["metadata"]["name"]),
        cluster_queue=str((body.get("spec") or {}).get("clusterQueue") or ""),
        is_active=None if active is None else active.get("status") == "True",
        message="" if active is None else str(active.get("message") or ""),
    )


def quota_of(body: Mapping[str, Any]) -> Quota:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    selector = ("PriorityClass",) if spec.get("scopeSelector") else ()
    return Quota(
        name=str(body["metadata"]["name"]),
        hard={str(key): str(value) for key, value in (spec.get("hard") or {}).items()},
        used={str(key): str(value) for key, value in (status.get("used") or {}).items()},
        scopes=(*(str(scope) for scope in spec.get("scopes") or ()), *selector),
    )


def limits_of(body: Mapping[str, Any]) -> tuple[Limit, ...]:
    name = str(body["metadata"]["name"])
    return tuple(
        Limit(
            name=name,
            type=str(item.get("type") or ""),
            max=dict(item.get("max") or {}),
            min=dict(item.get("min") or {}),
            default=dict(item.get("default") or {}),
        )
        for item in (body.get("spec") or {}).get("limits") or ()
    )


def claim_of(body: Mapping[str, Any]) -> ClaimView:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    size = (status.get("capacity") or (spec.get("resources") or {}).get("requests") or {}).get("storage")
    return ClaimView(
        name=str(body["metadata"]["name"]),
        phase=str(status.get("phase") or ""),
        access_modes=tuple(status.get("accessModes") or spec.get("accessModes") or ()),
        storage_class=spec.get("storageClassName"),
        size=str(size or ""),
    )


def storage_class_of(body: Mapping[str, Any]) -> StorageClass:
    meta = body["metadata"]
    return StorageClass(
        name=str(meta["name"]),
        is_default=(meta.get("annotations") or {}).get(DEFAULT_CLASS) == "true",
    )


def security_of(namespace: Mapping[str, Any]) -> SecurityLevel:
    level = ((namespace.get("metadata") or {}).get("labels") or {}).get(SECURITY_LABEL)
    return level if level in ("baseline", "restricted") else "privileged"


def autoscaler_of(
    status: Mapping[str, Any] | None, groups: Mapping[str, Any], nodes: Iterable[NodeUse] | None, *, is_known: bool
) -> Autoscaler | None:
    """The autoscaler that may add nodes: by cluster-autoscaler's ConfigMap, Karpenter's API, or labels of nodes.

    `is_known`: the ConfigMap could be looked for. Else nodes of a cloud's pools may grow, for all we know.
    """
    if "karpenter.sh" in groups:
        return Autoscaler(name="karpenter", can_grow=None, detail="it makes nodes to measure")
    if status is not None:
        return _cluster_autoscaler(str((status.get("data") or {}).get("status") or ""))
    labels = {label for use in nodes or () for label in POOL_LABELS if label in use.node.labels}
    if "longboat.dev/pool" in labels:
        return Autoscaler(name="longboat", can_grow=None)
    if labels and not is_known:
        return Autoscaler(name="the cloud's autoscaler, if there is one", can_grow=None)
    return None


def own_autoscaler(status: Mapping[str, Any] | None, now: float) -> Autoscaler | None:
    """Longboat's own, by what it writes about itself while it works; pools without a machine have no node to tell."""
    import json

    try:
        report = json.loads(((status or {}).get("data") or {}).get("report") or "{}")
        pools = [
            (str(pool["note"]["pool"]), int(pool["note"].get("size", 0)), int(pool.get("max", 0)))
            for pool in report.get("pools", ())
        ]
        growing = [
            (int(pool.get("gpus", 0)), float(pool.get("price", 0.0)), float(pool.get("boot_s", 0.0)))
            for pool, (_, size, most) in zip(report.get("pools", ()), pools)
            if size < most
        ]
        if not pools or now - float(report.get("at", 0.0)) > SILENT_S:
            return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    detail = ", ".join(f"{name} {size} of at most {most}" for name, size, most in pools)
    return Autoscaler(
        name="longboat",
        can_grow=any(size < most for _, size, most in pools),
        detail=detail,
        gpu_hour=min((price / gpus for gpus, price, _ in growing if gpus > 0 and price > 0), default=None),
        boot_s=min((boot_s for gpus, _, boot_s in growing if gpus > 0 and boot_s > 0), default=None),
    )


def _cluster_autoscaler(text: str) -> Autoscaler:
    """Its status is YAML; the one from before 1.30 is prose, of which we know only that it is there."""
    import yaml

    try:
        status = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        status = None
    groups = status.get("nodeGroups") if isinstance(status, dict) else None
    if not isinstance(groups, list):
        return Autoscaler(name="cluster-autoscaler")
    sizes = []
    for group in groups:
        health = (group.get("health") or {}) if isinstance(group, dict) else {}
        sizes.append((str(group.get("name", "")), health.get("cloudProviderTarget"), health.get("maxSize")))
    known = [(name, target, most) for name, target, most in sizes if isinstance(target, int) and isinstance(most, int)]
    detail = ", ".join(f"{name.rpartition('/')[2]} {target} of at most {most}" for name, target, most in known)
    grows = any(target < most for _, target, most in known) if known else None
    return Autoscaler(name="cluster-autoscaler", can_grow=grows, detail=detail)
