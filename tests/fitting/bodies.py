"""Nodes and pods as the API prints them, for the tests of fitting."""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import NodeShape, node_of
from longboat.fitting.model.pods import Pod, pod_of
from longboat.fitting.packing import Placement, Shortfall
from longboat.fitting.pod_affinity import AffinityView
from longboat.fitting.predicates import amount_refusals, placing_refusals

Body = dict[str, Any]
GPU = "nvidia.com/gpu"
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


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


def at(name: str, found: Pod) -> Pod:
    return msgspec.structs.replace(found, node=name)


def reason(wanted: Pod, shape: Any, *others: Pod) -> str | None:
    fleet = Fleet([shape], [at(shape.name, one) for one in others])
    return why_not(wanted, fleet, shape.name)


def gpu_nodes(*gpus: int, **more: Any) -> list[NodeShape]:
    return [node(f"n{number}", {GPU: str(count)}, **more) for number, count in enumerate(gpus)]


def nodes_of(found: Placement | Shortfall) -> tuple[str, ...]:
    assert isinstance(found, Placement), found
    return found.nodes


def why_not(pod: Pod, fleet: Fleet, node: str) -> str | None:
    """None when the pod could be put there now. Reasons that no waiting cures come alone, else what is lacking now."""
    state = fleet.states[node]
    found = placing_refusals(pod.shape.placing, state.shape)
    if not found:
        found = [*amount_refusals(pod, state), *AffinityView(pod, fleet).refusals(state)]
    return "; ".join(found) or None
