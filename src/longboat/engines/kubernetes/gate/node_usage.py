"""Nodes and unfinished pods of the cluster, listed as values of `longboat.fitting`. Reads only.

Where nodes may not be listed there is no answer: None. Where pods of other namespaces may not, only those of this one
are known, and what the others hold looks free.
"""

from __future__ import annotations

from typing import Any

from longboat.engines.kubernetes.gate.decide import ClusterUsage
from longboat.engines.kubernetes.slim_objects import UNFINISHED, SlimNode, SlimPod
from longboat.fitting.model.nodes import node_of
from longboat.fitting.model.pods import Claims, pods_of
from longboat.fitting.model.volumes import claims_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden, ObjectNotFound
from longboat.kubeapi.kinds import NODE, POD, PVC, VOLUME, Kind


def observe_room(client: Client, *, with_claims: bool = True) -> ClusterUsage | None:
    """All nodes and all unfinished pods; with the volumes that claims are bound to, where these may be listed."""
    try:
        nodes = client.list(NODE, into=SlimNode).items
    except (Forbidden, ObjectNotFound):
        return None
    claims = bound_claims(client) if with_claims else {}
    pods = _list_pods(client)
    return ClusterUsage(nodes=tuple(node_of(node) for node in nodes), pods=tuple(pods_of(pods, claims)))


def _list_pods(client: Client) -> list[SlimPod]:
    try:
        return client.list(POD, everywhere=True, fields=UNFINISHED, into=SlimPod).items
    except Forbidden:
        return client.list(POD, fields=UNFINISHED, into=SlimPod).items


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
