"""Nodes and pods as the API prints them, for the tests of fitting."""

from __future__ import annotations

from typing import Any

from longboat.fitting.model.nodes import NodeShape, node_of
from longboat.fitting.model.pods import Pod, pod_of

Body = dict[str, Any]
GPU = "nvidia.com/gpu"


def node_body(name: str, room: Body | None = None, *, labels: Body | None = None, **spec: Any) -> Body:
    room = {"cpu": "8", "memory": "32Gi", "pods": "110", **(room or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": room, "capacity": room},
    }


def pod_body(name: str, requests: Body | None = None, *, labels: Body | None = None, **spec: Any) -> Body:
    container = {"name": "main", "image": "x", "resources": {"requests": requests or {}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Pending"},
    }


def node(name: str, room: Body | None = None, *, labels: Body | None = None, **spec: Any) -> NodeShape:
    return node_of(node_body(name, room, labels=labels, **spec))


def pod(name: str, requests: Body | None = None, *, labels: Body | None = None, **spec: Any) -> Pod:
    return pod_of(pod_body(name, requests, labels=labels, **spec))


def gang(
    count: int, requests: Body | None = None, *, name: str = "g", labels: Body | None = None, **spec: Any
) -> list[Pod]:
    return [pod(f"{name}-{number}", requests, labels=labels, **spec) for number in range(count)]


def term(key: str, labels: Body, **more: Any) -> Body:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}, **more}


def affinity(kind: str, *terms: Body) -> Body:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def node_affinity(*terms: list[Body]) -> Body:
    selector = {"nodeSelectorTerms": [{"matchExpressions": list(one)} for one in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def wants(key: str, operator: str, *values: str) -> Body:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
