"""The cluster's nodes and all that is on them, read as the values of `longboat.fitting`. Reads only.

Where nodes may not be listed there is no answer: None. Where pods of other namespaces may not, only those of this one
are known, and what the others hold looks free.
"""

from __future__ import annotations

from typing import Any, TypedDict

from longboat.engines.kubernetes.gate.decide import ClusterUsage
from longboat.fitting.model.nodes import node_of
from longboat.fitting.model.pods import Claims, pods_of
from longboat.fitting.model.volumes import claims_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden, ObjectNotFound
from longboat.kubeapi.kinds import NODE, POD, PVC, VOLUME, Kind

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
PAGE = 2000


class _Owner(TypedDict, total=False):
    kind: str
    controller: bool


class _Meta(TypedDict, total=False):
    name: str
    namespace: str
    labels: dict[str, str]
    ownerReferences: list[_Owner]
    deletionTimestamp: str


class _Port(TypedDict, total=False):
    hostPort: int
    containerPort: int
    hostIP: str
    protocol: str


class _Resources(TypedDict, total=False):
    requests: dict[str, str | int | float]
    limits: dict[str, str | int | float]


class _Container(TypedDict, total=False):
    name: str
    resources: _Resources
    restartPolicy: str
    ports: list[_Port]


class _Claim(TypedDict, total=False):
    claimName: str


class _Volume(TypedDict, total=False):
    name: str
    persistentVolumeClaim: _Claim
    ephemeral: dict[str, Any]


class _PodSpec(TypedDict, total=False):
    nodeName: str
    containers: list[_Container]
    initContainers: list[_Container]
    resources: _Resources
    overhead: dict[str, str | int | float]
    nodeSelector: dict[str, str]
    affinity: dict[str, Any]
    tolerations: list[dict[str, Any]]
    topologySpreadConstraints: list[dict[str, Any]]
    volumes: list[_Volume]
    hostNetwork: bool
    priority: int
    schedulingGates: list[dict[str, Any]]


class _Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str


class _ContainerStatus(TypedDict, total=False):
    name: str
    allocatedResources: dict[str, str | int | float]


class _PodStatus(TypedDict, total=False):
    phase: str
    conditions: list[_Condition]
    containerStatuses: list[_ContainerStatus]


class SlimPod(TypedDict, total=False):
    """A pod as the API prints it, with only the fields that decide where it fits."""

    metadata: _Meta
    spec: _PodSpec
    status: _PodStatus


class _NodeSpec(TypedDict, total=False):
    unschedulable: bool
    taints: list[dict[str, str]]


class _NodeStatus(TypedDict, total=False):
    allocatable: dict[str, str | int | float]
    capacity: dict[str, str | int | float]


class SlimNode(TypedDict, total=False):
    """A node, in the same way."""

    metadata: _Meta
    spec: _NodeSpec
    status: _NodeStatus


def observe_room(client: Client, *, with_claims: bool = True) -> ClusterUsage | None:
    """All nodes and all unfinished pods; with the volumes that claims are bound to, where these may be listed."""
    try:
        nodes = client.list(NODE, into=SlimNode, page=PAGE).items
    except (Forbidden, ObjectNotFound):
        return None
    claims = bound_claims(client) if with_claims else {}
    pods = _list_pods(client)
    return ClusterUsage(nodes=tuple(node_of(node) for node in nodes), pods=tuple(pods_of(pods, claims)))


def _list_pods(client: Client) -> list[SlimPod]:
    try:
        return client.list(POD, everywhere=True, fields=UNFINISHED, into=SlimPod, page=PAGE).items
    except Forbidden:
        return client.list(POD, fields=UNFINISHED, into=SlimPod, page=PAGE).items


def bound_claims(client: Client) -> Claims:
    """Where the claims of the client's namespace bind pods to. Volumes belong to no namespace and may be hidden."""
    claims = _list_or_nothing(client, PVC)
    volumes = _list_or_nothing(client, VOLUME) if claims else []
    return claims_of(claims, volumes)


def _list_or_nothing(client: Client, kind: Kind) -> list[dict[str, Any]]:
    try:
        return client.list(kind).items
    except (Forbidden, ObjectNotFound):
        return []
