"""A cluster of AKS as it was seen: state, version, endpoint, pools. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longboat.core.jobs import Value


class AksPoolView(Value, frozen=True):
    name: str
    state: str
    type: str = ""
    count: int = 0
    min: int = 0
    max: int = 0
    """0: it has no range."""
    spot: bool = False
    zones: tuple[str, ...] = ()
    is_managed: bool = False
    """AKS's own autoscaler changes its size."""
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()


class AksView(Value, frozen=True):
    state: str
    version: str = ""
    endpoint: str = ""
    node_group: str = ""
    """The resource group in which AKS keeps machines, and disks of claims."""
    access: tuple[str, ...] = ()
    pools: tuple[AksPoolView, ...] = ()


def read_aks(body: Mapping[str, Any]) -> AksView:
    properties = body.get("properties") or {}
    access = (properties.get("apiServerAccessProfile") or {}).get("authorizedIPRanges") or ()
    return AksView(
        state=properties.get("provisioningState") or "",
        version=properties.get("currentKubernetesVersion") or properties.get("kubernetesVersion") or "",
        endpoint=properties.get("fqdn") or "",
        node_group=properties.get("nodeResourceGroup") or "",
        access=tuple(access) or ("0.0.0.0/0",),
        pools=tuple(_pool(each) for each in properties.get("agentPoolProfiles") or ()),
    )


def _pool(body: Mapping[str, Any]) -> AksPoolView:
    is_managed, tags = bool(body.get("enableAutoScaling")), body.get("tags") or {}
    low, high = (body.get("minCount"), body.get("maxCount")) if is_managed else (tags.get("min"), tags.get("max"))
    return AksPoolView(
        name=body["name"],
        state=body.get("provisioningState") or "",
        type=body.get("vmSize") or "",
        count=int(body.get("count") or 0),
        min=_number(low),
        max=_number(high),
        is_managed=is_managed,
        spot=body.get("scaleSetPriority") == "Spot",
        zones=tuple(sorted(body.get("availabilityZones") or ())),
        labels=dict(body.get("nodeLabels") or {}),
        taints=tuple(sorted(body.get("nodeTaints") or ())),
    )


def _number(value: Any) -> int:
    """A tag may have any text."""
    return int(value) if str(value or "").isdecimal() else 0
