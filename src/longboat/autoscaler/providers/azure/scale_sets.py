"""Virtual machine scale sets as values, out of Azure's answers: sizes, zones, machines, orders in their tags. Pure.

An order is written into the set's tags by the request that raises its capacity, so that both happen or none. Azure does
not say for which request it made a machine: machines belong to the newest order before them that still lacks some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from longboat.autoscaler.model.snapshot import POOL_LABEL, FailureKind
from longboat.autoscaler.providers.azure.errors import code_of_status
from longboat.autoscaler.providers.provider import KINDS, MachineState
from longboat.core.jobs import Value
from longboat.fitting.model.nodes import Taint

ORDER_TAG = "longboat-order-"
"""Begins tags with an order: its token; how many machines, when, and why the rest does not come."""
CANCELLED_TAG = "longboat-cancelled-orders"
CLUSTER_TAG = "longboat-cluster"
"""Of a set of one's own: whose machines it has. Names of tags may not have a slash on Azure."""
POOL_TAG = "longboat-pool"
AKS_POOL = "aks-managed-poolName"
TEMPLATE = "k8s.io_cluster-autoscaler_node-template_"
"""Begins tags of a set of one's own that tell labels, taints and resources of its nodes, `_` for a slash."""
MOST_ORDERS = 16  # a resource has 50 tags at most, and AKS needs some
LONGEST_TAG = 256  # of a tag's value, as Azure has it
CLOCKS_S = 5  # by so much clocks of Azure may differ
SPOT = "kubernetes.azure.com/scalesetpriority"
"""Label and taint that AKS puts on its spot nodes."""
EVICTED = ("PowerState/deallocated", "PowerState/deallocating", "PowerState/stopped")


class SetOrder(Value, frozen=True):
    token: str
    count: int
    at: int
    """By Azure's clock, in seconds."""
    refused: FailureKind | None = None

    @property
    def text(self) -> str:
        return f"{self.count} {self.at} {self.refused or ''}".strip()


class ScaleSet(Value, frozen=True):
    """One scale set, as it is now."""

    path: str
    name: str
    location: str
    zones: tuple[str, ...]
    capacity: int
    type: str
    tier: str | None
    spot: bool
    state: str
    tags: dict[str, str]
    etag: str | None = None

    @property
    def min(self) -> int:
        return _number(self.tags.get("min")) or 0

    @property
    def max(self) -> int | None:
        return _number(self.tags.get("max"))

    @property
    def is_failed(self) -> bool:
        return self.state == "Failed"

    @property
    def zone(self) -> str | None:
        """Where its machines come; None: Azure chooses among several, or it has none."""
        return zone_name(self.location, self.zones[0]) if len(self.zones) == 1 else None

    @property
    def cancelled(self) -> tuple[str, ...]:
        return tuple(self.tags.get(CANCELLED_TAG, "").split())

    @property
    def orders(self) -> tuple[SetOrder, ...]:
        """Oldest first."""
        orders = []
        for name, text in self.tags.items():
            match = re.fullmatch(r"(\d{1,6}) (\d{1,12})(?: ([a-z-]+))?", text) if name.startswith(ORDER_TAG) else None
            if match:
                kind = next((each for each in KINDS if each == match[3]), None)
                token = name.removeprefix(ORDER_TAG)
                orders.append(SetOrder(token=token, count=int(match[1]), at=int(match[2]), refused=kind))
        return tuple(sorted(orders, key=lambda order: (order.at, order.token)))

    def ordered(self, token: str) -> int:
        """How many machines of this order it has taken on."""
        return next((order.count for order in self.orders if order.token == token), 0)

    def has_room(self, token: str, count: int) -> bool:
        """Whether all that the order still lacks fits below its max."""
        lacking = count - self.ordered(token)
        return lacking <= 0 or self.max is None or self.capacity + lacking <= self.max


class SetMachine(Value, frozen=True):
    """One machine of a set."""

    number: str
    path: str
    state: MachineState
    zone: str | None = None
    created: float | None = None
    node: str | None = None
    disk: str | None = None
    code: str = ""
    message: str = ""

    @property
    def provider_id(self) -> str:
        return provider_id(self.path)


class SetFacts(Value, frozen=True):
    """What the nodes of a set will be."""

    pool: str | None
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resources: dict[str, str] = {}
    most_pods: int = 110  # as the kubelet has it
    is_managed: bool = False
    """AKS's own autoscaler changes its size."""


def zone_name(location: str, zone: str) -> str:
    """As nodes have it in their label."""
    return f"{location}-{zone}"


def provider_id(path: str) -> str:
    """As the kubelet writes it: the resource group in small letters."""
    return "azure://" + re.sub(r"/resourceGroups/[^/]+/", lambda match: match[0].lower(), path, flags=re.I).replace(
        "/resourcegroups/", "/resourceGroups/"
    )


MACHINE_ID = re.compile(
    r"azure://(?P<set>/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/"
    r"virtualMachineScaleSets/[^/]+)/virtualMachines/(?P<number>[0-9]+)",
    re.IGNORECASE,
)


def read_set(body: Mapping[str, Any]) -> ScaleSet:
    properties, sku = body.get("properties") or {}, body.get("sku") or {}
    profile = properties.get("virtualMachineProfile") or {}
    return ScaleSet(
        path=body["id"],
        name=body["name"],
        location=body["location"],
        zones=tuple(sorted(body.get("zones") or ())),
        capacity=int(sku.get("capacity") or 0),
        type=sku.get("name") or "",
        tier=sku.get("tier"),
        spot=profile.get("priority") in ("Spot", "Low"),
        state=properties.get("provisioningState") or "",
        tags=dict(body.get("tags") or {}),
        etag=body.get("etag"),
    )


def read_machine(body: Mapping[str, Any]) -> SetMachine:
    properties = body.get("properties") or {}
    statuses = (properties.get("instanceView") or {}).get("statuses") or ()
    failure: Mapping[str, Any] = next(
        (each for each in statuses if str(each.get("code", "")).startswith("ProvisioningState/failed")), {}
    )
    is_evicted = any(each.get("code") in EVICTED for each in statuses)
    state = "Failed" if is_evicted else properties.get("provisioningState") or ""
    message = "it is stopped: Azure took it back, or somebody did" if is_evicted else failure.get("message") or ""
    disk = ((properties.get("storageProfile") or {}).get("osDisk") or {}).get("managedDisk") or {}
    zones = body.get("zones") or ()
    name = (properties.get("osProfile") or {}).get("computerName")
    return SetMachine(
        number=str(body["instanceId"]),
        path=body["id"],
        state=_STATES.get(state, "running"),
        zone=zone_name(body["location"], zones[0]) if zones else None,
        created=_moment(properties.get("timeCreated")),
        node=name.lower() if name else None,
        disk=disk.get("id"),
        code=code_of_status(str(failure.get("code", ""))),
        message=" ".join(message.split())[:600],
    )


_STATES: dict[str, MachineState] = {"Creating": "pending", "Deleting": "stopping", "Failed": "failed"}


def facts_of_pool(pool: Mapping[str, Any]) -> SetFacts:
    """Of a pool of AKS, as it describes it."""
    labels = {"agentpool": pool["name"], "kubernetes.azure.com/agentpool": pool["name"]}
    labels |= pool.get("nodeLabels") or {}
    taints = [_taint(text) for text in pool.get("nodeTaints") or ()]
    if pool.get("scaleSetPriority") == "Spot":
        labels[SPOT] = "spot"
        if all(taint.key != SPOT for taint in taints):
            taints.append(Taint(key=SPOT, effect="NoSchedule", value="spot"))
    return SetFacts(
        pool=labels.get(POOL_LABEL),
        labels=labels,
        taints=tuple(taints),
        most_pods=int(pool.get("maxPods") or 110),
        is_managed=bool(pool.get("enableAutoScaling")),
    )


def facts_of_tags(scale_set: ScaleSet) -> SetFacts:
    """Of a set of one's own: by its tags, as the cluster-autoscaler reads them."""
    labels, resources, taints = {}, {}, []
    for tag, value in scale_set.tags.items():
        kind, _, coded = tag.removeprefix(TEMPLATE).partition("_") if tag.startswith(TEMPLATE) else ("", "", "")
        name = coded.replace("_", "/").replace("~2", "_")
        if kind == "label":
            labels[name] = value
        elif kind == "resources":
            resources[name] = value
        elif kind == "taint":
            taints.append(_taint(f"{name}={value}"))
    pool = labels.get(POOL_LABEL) or scale_set.tags.get(POOL_TAG)
    return SetFacts(pool=pool, labels=labels, taints=tuple(taints), resources=resources)


def tokens_of(orders: Sequence[SetOrder], machines: Iterable[SetMachine]) -> dict[str, str]:
    """Number of a machine -> token of the order that it was made for. A time that is missing is now."""
    room = {order.token: order.count for order in orders}
    owners: dict[str, str] = {}
    for machine in sorted(machines, key=lambda machine: (machine.created or 0.0, int(machine.number))):
        born = machine.created if machine.created is not None else float("inf")
        before = [order for order in orders if order.at - CLOCKS_S <= born and room[order.token] > 0]
        newest = max((order.at for order in before), default=0)
        order = next((order for order in before if order.at == newest), None)
        if order is not None:
            owners[machine.number] = order.token
            room[order.token] -= 1
    return owners


def ended(scale_set: ScaleSet, machines: Sequence[SetMachine], kind: FailureKind) -> ScaleSet:
    """A set whose growth has failed, with what is there as its goal: what is missing does not come later."""
    owners = [*tokens_of(scale_set.orders, machines).values()]
    tags = dict(scale_set.tags)
    for order in scale_set.orders:
        made = owners.count(order.token)
        if made < order.count:
            short = msgspec.structs.replace(order, count=made, refused=kind)
            tags[ORDER_TAG + order.token] = short.text
    present = sum(machine.state != "stopping" for machine in machines)
    return msgspec.structs.replace(scale_set, capacity=min(present, scale_set.capacity), tags=tags)


def with_order(scale_set: ScaleSet, token: str, count: int, at: int) -> ScaleSet:
    """Larger by what the order lacks, with the order written down; the oldest orders are forgotten."""
    known = {order.token: order for order in scale_set.orders}
    earlier = known[token].count if token in known else 0
    kept = sorted((order for order in known.values() if order.token != token), key=lambda order: order.at)
    forgotten = kept[: max(len(kept) + 1 - MOST_ORDERS, 0)]
    tags = {name: text for name, text in scale_set.tags.items() if name not in {ORDER_TAG + o.token for o in forgotten}}
    tags[ORDER_TAG + token] = SetOrder(token=token, count=count, at=at).text
    return msgspec.structs.replace(scale_set, capacity=scale_set.capacity + count - earlier, tags=tags)


def with_cancelled(scale_set: ScaleSet, tokens: Sequence[str]) -> ScaleSet:
    """With orders of which nothing is to be made: the newest that have room in the tag."""
    text = " ".join(dict.fromkeys((*(each for each in scale_set.cancelled if each not in set(tokens)), *tokens)))
    while len(text) > LONGEST_TAG:
        text = text.partition(" ")[2]
    return msgspec.structs.replace(scale_set, tags={**scale_set.tags, CANCELLED_TAG: text})


def _taint(text: str) -> Taint:
    """`KEY=VALUE:EFFECT`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key=key, effect=effect, value=value)


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,6}", text) else None


def _moment(text: str | None) -> float | None:
    try:
        # Python 3.10 reads at most six digits of a second, Azure writes seven.
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text or "").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
