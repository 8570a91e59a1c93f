"""A GKE cluster as it was seen: state, version, endpoint, node pools. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longboat.clusters.cloud.gcp.request import CLUSTER_LABEL, IDENTITY_MODE, MAX_LABEL, MIN_LABEL
from longboat.core.jobs import Value


class NodePoolView(Value, frozen=True):
    name: str
    status: str
    type: str = ""
    version: str = ""
    spot: bool = False
    flex_start: bool = False
    min: int = 0
    max: int = 0
    """0: it has no range."""
    is_managed: bool = False
    """GKE's own autoscaler changes its size."""
    has_identity: bool = False
    """Its pods are who their service accounts are."""
    locations: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    taints: tuple[tuple[str, str, str], ...] = ()
    groups: tuple[str, ...] = ()
    """Addresses of its instance groups."""
    issue: str = ""
    size: int | None = None
    """Machines that its groups have as their goal; None: not asked."""


class GkeView(Value, frozen=True):
    status: str
    owner: str
    """The cluster that its label names; empty: Longboat did not make it."""
    version: str = ""
    endpoint: str = ""
    authority: str = ""
    workload_pool: str = ""
    """Empty: service accounts of the cluster are nobody for Google."""
    access: tuple[str, ...] = ()
    pools: tuple[NodePoolView, ...] = ()
    issue: str = ""


def read_cluster_view(body: Mapping[str, Any]) -> GkeView:
    network = (body.get("controlPlaneEndpointsConfig") or {}).get("ipEndpointsConfig") or {}
    limits = network.get("authorizedNetworksConfig") or body.get("masterAuthorizedNetworksConfig") or {}
    blocks = [each["cidrBlock"] for each in limits.get("cidrBlocks") or ()] if limits.get("enabled") else []
    return GkeView(
        status=body.get("status") or "",
        owner=(body.get("resourceLabels") or {}).get(CLUSTER_LABEL, ""),
        version=body.get("currentMasterVersion") or body.get("initialClusterVersion") or "",
        endpoint=body.get("endpoint") or "",
        authority=(body.get("masterAuth") or {}).get("clusterCaCertificate") or "",
        workload_pool=(body.get("workloadIdentityConfig") or {}).get("workloadPool") or "",
        access=tuple(blocks) or ("0.0.0.0/0",),
        pools=tuple(_pool(each) for each in body.get("nodePools") or ()),
        issue=_issue(body.get("conditions") or ()) or body.get("statusMessage") or "",
    )


def _pool(body: Mapping[str, Any]) -> NodePoolView:
    config, sizes = body.get("config") or {}, body.get("autoscaling") or {}
    is_managed, labels = bool(sizes.get("enabled")), config.get("resourceLabels") or {}
    low, high = sizes.get("totalMinNodeCount"), sizes.get("totalMaxNodeCount")
    if not is_managed:
        low, high = labels.get(MIN_LABEL), labels.get(MAX_LABEL)
    return NodePoolView(
        name=body["name"],
        status=body.get("status") or "",
        type=config.get("machineType") or "",
        version=body.get("version") or "",
        spot=bool(config.get("spot")),
        flex_start=bool(config.get("flexStart")),
        min=_number(low),
        max=_number(high),
        is_managed=is_managed,
        has_identity=(config.get("workloadMetadataConfig") or {}).get("mode") == IDENTITY_MODE,
        locations=tuple(body.get("locations") or ()),
        labels=dict(config.get("labels") or {}),
        taints=tuple(
            sorted((each["key"], each.get("value") or "", each["effect"]) for each in config.get("taints") or ())
        ),
        groups=tuple(body.get("instanceGroupUrls") or ()),
        issue=_issue(body.get("conditions") or ()) or body.get("statusMessage") or "",
    )


def _number(value: Any) -> int:
    """A label may have any text."""
    return int(value) if str(value or "").isdecimal() else 0


def _issue(conditions: Sequence[Mapping[str, Any]]) -> str:
    words = [str(each.get("message") or each.get("canonicalCode") or each.get("code") or "") for each in conditions]
    return " ".join("; ".join(text for text in words if text).split())[:600]
