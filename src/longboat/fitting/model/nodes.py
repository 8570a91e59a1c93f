"""Nodes as pods see them: labels, taints, what can be asked of them. Values; made from `kubectl get nodes -o json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from longboat.core.jobs import Value
from longboat.fitting.model.quantities import Amounts, amounts, is_scarce
from longboat.fitting.model.selectors import number_of

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REFUSING = ("NoSchedule", "NoExecute")
LEAVING = "longboat.dev/leaving"
"""Taint of a node that is about to go: the autoscaler sets it where a provider takes a machine back."""


class Taint(Value, frozen=True):
    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Value, frozen=True):
    """An empty key with `Exists` tolerates everything, an empty effect all effects."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        if self.operator in ("Gt", "Lt"):
            mine, theirs = number_of(self.value), number_of(taint.value)
            if mine is None or theirs is None:
                return False
            return theirs > mine if self.operator == "Gt" else theirs < mine
        return self.key == taint.key and self.value == taint.value


UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeShape(Value, frozen=True):
    """One node, or the template of a pool's nodes."""

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()  # those that keep pods away: NoSchedule and NoExecute
    allocatable: Amounts = ()
    is_unschedulable: bool = False  # cordoned

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def zone(self) -> str | None:
        return self.labels.get(ZONE)

    def has(self, resource: str) -> int:
        for name, count in self.allocatable:
            if name == resource:
                return count
        return 0

    @property
    def devices(self) -> int:
        """How many scarce things it has, of all names."""
        return sum(count for name, count in self.allocatable if is_scarce(name))


def node_of(body: Mapping[str, Any]) -> NodeShape:
    """From a node as the API prints it."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    return NodeShape(
        name=meta["name"],
        labels=dict(meta.get("labels") or {}),
        taints=taints_of(spec.get("taints")),
        # Capacity stands in where a template states nothing else, as the scheduler's own defaulting does.
        allocatable=amounts(status.get("allocatable") or status.get("capacity")),
        is_unschedulable=bool(spec.get("unschedulable")),
    )


def taints_of(bodies: Iterable[Mapping[str, Any]] | None) -> tuple[Taint, ...]:
    taints = (
        Taint(key=str(body.get("key", "")), effect=str(body.get("effect", "")), value=str(body.get("value") or ""))
        for body in bodies or ()
    )
    return tuple(taint for taint in taints if taint.effect in REFUSING)


def tolerations_of(bodies: Iterable[Mapping[str, Any]] | None) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=str(body.get("key") or ""),
            operator=str(body.get("operator") or "Equal"),
            value=str(body.get("value") or ""),
            effect=str(body.get("effect") or ""),
        )
        for body in bodies or ()
    )


def untolerated(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """The first taint that nothing tolerates."""
    for taint in taints:
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None
