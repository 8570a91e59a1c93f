"""Nodes and unfinished pods of the cluster, listed as values of `longboat.fitting`. Reads only.

Where nodes may not be listed there is no answer: None. Where pods of other namespaces may not, only those of this one
are known, and what the others hold looks free.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from longboat.core.guards.decoding import decode
from longboat.core.jobs import Value
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.gate.decide import ClusterUsage
from longboat.engines.kubernetes.slim_objects import UNFINISHED, SlimNode, SlimPod
from longboat.fitting.backfill import UpcomingNode
from longboat.fitting.model.nodes import node_of
from longboat.fitting.model.pods import Claims, pods_of
from longboat.fitting.model.quantities import is_gpu
from longboat.fitting.model.volumes import claims_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden, ObjectNotFound, answer_or_none
from longboat.kubeapi.kinds import CONFIG_MAP, NODE, POD, PVC, VOLUME, Kind
from longboat.metrics.values import GpuUse

AUTOSCALER_STATUS = "longboat-autoscaler-status"
"""What the autoscaler tells everybody. Read in its own namespace only: a tenant can write one like it into his own."""
GPU_PRODUCT = "nvidia.com/gpu.product"
"""Label of GPU feature discovery: the model."""
SILENT_S = 300.0
"""An autoscaler that has written nothing for so long does not work: it writes every half minute."""


class _Told(Value, frozen=True):
    """What the gate reads of it; the rest is passed over."""

    at: float = 0.0
    upcoming: tuple[UpcomingNode, ...] = ()


def observe_upcoming(client: Client, now: float) -> tuple[UpcomingNode, ...]:
    """Machines that the autoscaler has ordered and that boot; none where that cannot be read."""
    body = answer_or_none(lambda: client.find(CONFIG_MAP, AUTOSCALER_STATUS, namespace=names.SYSTEM))
    try:
        report = decode(str(((body or {}).get("data") or {}).get("report") or "{}"), _Told)
    except msgspec.DecodeError:
        return ()
    return report.upcoming if now - report.at < SILENT_S else ()


def observe_room(client: Client, *, with_claims: bool = True) -> ClusterUsage | None:
    """All nodes and all unfinished pods; with the volumes that claims are bound to, where these may be listed.

    A kubelet says that containers have ended a second or more before it says so of their pod. An attempt that follows
    at once would be judged as if the one before it still held everything, and an elastic run would shrink for that.
    """
    try:
        nodes = client.list(NODE, into=SlimNode).items
    except (Forbidden, ObjectNotFound):
        return None
    claims = bound_claims(client) if with_claims else {}
    pods = [pod for pod in _list_pods(client) if not has_ended(pod)]
    return ClusterUsage(nodes=tuple(node_of(node) for node in nodes), pods=tuple(pods_of(pods, claims)))


def has_ended(pod: SlimPod) -> bool:
    """Whether every container of a pod has ended and none is started again, whatever its phase still is. Pure."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    containers = spec.get("containers") or []
    parts = [*containers, *(spec.get("initContainers") or [])]
    if spec.get("restartPolicy") != "Never" or any("restartPolicy" in each for each in parts):
        return False
    statuses = status.get("containerStatuses") or ()
    ended = {each.get("name") for each in statuses if "terminated" in (each.get("state") or {})}
    return bool(containers) and all(each.get("name") in ended for each in containers)


def _list_pods(client: Client) -> list[SlimPod]:
    try:
        return client.list(POD, everywhere=True, fields=UNFINISHED, into=SlimPod).items
    except Forbidden:
        return client.list(POD, fields=UNFINISHED, into=SlimPod).items


def bound_claims(client: Client) -> Claims:
    """Node affinity of the namespace's bound claims; empty where PersistentVolumes may not be listed."""
    claims = _list_or_nothing(client, PVC)
    volumes = _list_or_nothing(client, VOLUME) if claims else []
    return claims_of(claims, volumes)


def _list_or_nothing(client: Client, kind: Kind) -> list[dict[str, Any]]:
    try:
        return client.list(kind).items
    except (Forbidden, ObjectNotFound):
        return []


def free_gpus(usage: ClusterUsage) -> list[GpuUse]:
    """GPUs that no pod has asked for, on nodes that take pods. Pure."""
    taken: Counter[tuple[str, str]] = Counter()
    for pod in usage.pods:
        if pod.node is not None and not pod.is_finished:
            for resource, count in pod.shape.requests:
                taken[pod.node, resource] += count
    free = []
    for node in usage.nodes:
        for resource, count in () if node.is_unschedulable else node.allocatable:
            if is_gpu(resource):
                model = node.labels.get(GPU_PRODUCT, "")
                free += [GpuUse(node=node.name, model=model)] * max(0, count - taken[node.name, resource])
    return free
