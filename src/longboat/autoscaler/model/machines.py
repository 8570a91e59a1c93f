"""Machines: the nodes of the pools and the orders still out, each ready, booting or failed. Pure.

A machine that boots, or whose GPUs have not appeared, counts as what it is going to be: no second one is bought for the
same demand. One that took too long counts as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from longboat.autoscaler.model.snapshot import (
    DEVICES,
    AutoscalerSettings,
    ClusterSnapshot,
    NodeMemory,
    Order,
    Pool,
    SeenNode,
    SeenPod,
)
from longboat.core.jobs import Value
from longboat.core.times import format_time, show_age
from longboat.fitting.model.nodes import HOSTNAME, ZONE, NodeShape
from longboat.fitting.model.quantities import is_gpu, is_scarce

Condition = Literal["ready", "booting", "failed", "going"]
Cordon = Literal["ours", "person"]

LEAST_BOOT_S = 60.0  # no machine of a cloud joins sooner: a pool that promises less is given this long
STARTUP_ENDINGS = ("not-ready", "uninitialized", "network-unavailable")
STARTUP_BEGINNINGS = ("startup-taint.", "ignore-taint.")


class Machine(Value, frozen=True):
    """A node of the cluster, or an order that has not become one."""

    name: str
    shape: NodeShape  # as pods will find it: that of the template where it still boots
    condition: Condition
    reason: str = ""  # why it is not ready
    pool: Pool | None = None
    node: SeenNode | None = None
    order: Order | None = None
    cordon: Cordon | None = None
    memory: NodeMemory | None = None
    expected: float | None = None  # when it will be ready
    deadline: float | None = None  # when it will have failed

    @property
    def zone(self) -> str | None:
        return self.shape.zone or (self.order.zone if self.order else None)

    @property
    def is_usable(self) -> bool:
        """Whether pods can go there, now or when it is ready."""
        return self.condition in ("ready", "booting") and self.cordon is None


def machines_of(snapshot: ClusterSnapshot, settings: AutoscalerSettings, now: float) -> list[Machine]:
    """All machines, sorted by name: nodes first, then orders."""
    pools = {pool.name: pool for pool in snapshot.pools}
    memories = {memory.node: memory for memory in snapshot.memory}
    nodes = sorted(snapshot.nodes, key=lambda node: node.name)
    machines = [_of_node(node, pools.get(node.pool or ""), memories.get(node.name), settings, now) for node in nodes]
    names = {machine.name for machine in machines}
    joined = {node.machine for node in snapshot.nodes if node.machine}
    for order in sorted(snapshot.orders, key=lambda order: (order.asked, order.machine)):
        pool = pools.get(order.pool)
        if pool is not None and order.machine not in joined and order.machine not in names:
            machines.append(_of_order(order, pool, settings, now))
    return machines


def patience(pool: Pool, settings: AutoscalerSettings) -> float:
    """How long a machine of this pool may take."""
    return max(pool.boot_s * settings.join_factor, LEAST_BOOT_S)


def _of_node(
    node: SeenNode, pool: Pool | None, memory: NodeMemory | None, settings: AutoscalerSettings, now: float
) -> Machine:
    cordon: Cordon | None = None
    if node.shape.is_unschedulable:
        cordon = "ours" if memory is not None and memory.cordoned_at is not None else "person"
    condition, reason, since = _condition(node, pool, settings, now)
    expected = deadline = None
    shape = node.shape
    if condition == "booting" and pool is not None and since is not None:
        expected, deadline = max(since + pool.boot_s, now), since + patience(pool, settings)
        shape = _shape_when_ready(node.shape, pool)
    return Machine(
        name=node.name,
        shape=shape,
        condition=condition,
        reason=reason,
        pool=pool,
        node=node,
        cordon=cordon,
        memory=memory,
        expected=expected,
        deadline=deadline,
    )


def _condition(
    node: SeenNode, pool: Pool | None, settings: AutoscalerSettings, now: float
) -> tuple[Condition, str, float | None]:
    """Condition, why, and since when it is being waited for."""
    if node.is_going:
        return "going", "the node is being deleted", None
    if pool is None:
        return ("ready", "", None) if node.is_ready else ("failed", "not ready", None)
    if not node.is_ready:
        since = max(node.created, node.ready_since or node.created) or now
        reason = f"not ready {_for(now - since)}"
    elif gpu := lacking_gpu(node, pool):
        since, reason = node.created or now, f"ready, but without {gpu}: driver or device plugin are loading"
        if node.lost and now > since + patience(pool, settings):
            return "ready", "", None  # it had them: a plugin that restarts costs no machine, an idle node goes as any
    elif unfinished := starting(node, pool):
        since, reason = node.created or now, f"ready, but {unfinished}"
        if now > since + patience(pool, settings):
            return "ready", "", None  # then this is how it is
    else:
        return "ready", "", None
    late = since + patience(pool, settings)
    if now > late:
        return "failed", f"{reason}, longer than {show_age(late - since)} ({settings.join_factor:g} boot times)", since
    return "booting", f"{reason}; expected by {format_time(max(since + pool.boot_s, now))}", since


def _for(seconds: float) -> str:
    return f"for {show_age(seconds)}"


def lacking_gpu(node: SeenNode, pool: Pool) -> str | None:
    """What the pool's machines have of GPUs, where the node shows none, of any name."""

    def shown(shape: NodeShape) -> list[str]:
        plugged = [(name, count) for name, count in shape.allocatable if not name.startswith(DEVICES)]
        return [name for name, count in plugged if count and (name == pool.gpu_resource or is_gpu(name))]

    return next(iter(shown(pool.machine)), None) if not shown(node.shape) else None


def starting(node: SeenNode, pool: Pool) -> str | None:
    """A taint that a node carries only while it starts, or a device that has not appeared."""
    own = {taint.key for taint in pool.machine.taints}
    for taint in node.shape.taints:
        if taint.key not in own and (taint.key.endswith(STARTUP_ENDINGS) or taint.key.startswith(STARTUP_BEGINNINGS)):
            return f"the taint {taint} is still there"
    for name, _ in pool.machine.allocatable:
        if name.startswith(DEVICES) and not node.shape.has(name):
            return f"without devices of class {name.removeprefix(DEVICES)}: their driver is loading"
        if is_scarce(name) and not is_gpu(name) and name != pool.gpu_resource and not node.shape.has(name):
            return f"without {name}: its device plugin is loading"
    return None


def _shape_when_ready(shape: NodeShape, pool: Pool) -> NodeShape:
    own = {name: count for name, count in shape.allocatable if count}
    return NodeShape(
        name=shape.name,
        labels={**pool.machine.labels, **shape.labels, HOSTNAME: shape.labels.get(HOSTNAME, shape.name)},
        taints=pool.machine.taints,
        allocatable=tuple(sorted({**dict(pool.machine.allocatable), **own}.items())),
        is_unschedulable=shape.is_unschedulable,
    )


def _of_order(order: Order, pool: Pool, settings: AutoscalerSettings, now: float) -> Machine:
    late = order.asked + patience(pool, settings)
    is_late = now > late
    reason = f"ordered {show_age(now - order.asked)} ago, has not joined"
    expected = max(order.asked + pool.boot_s, now)
    return Machine(
        name=order.machine,
        shape=template(pool, order.zone, order.machine),
        condition="failed" if is_late else "booting",
        reason=f"{reason} within {show_age(late - order.asked)}"
        if is_late
        else f"{reason} yet; expected by {format_time(expected)}",
        pool=pool,
        order=order,
        expected=expected,
        deadline=late,
    )


def template(pool: Pool, zone: str | None, name: str) -> NodeShape:
    """A new machine of the pool in this zone, under this name."""
    labels = {**pool.machine.labels, HOSTNAME: name}
    if zone is not None:
        labels[ZONE] = zone
    return msgspec.structs.replace(pool.machine, name=name, labels=labels)


def counts_by_zone(machines: list[Machine], pool: Pool) -> dict[str, int]:
    """How many machines the pool has in each of its zones, those that failed left out."""
    counts = dict.fromkeys(pool.zones, 0)
    for machine in machines:
        if machine.pool is not None and machine.pool.name == pool.name and machine.condition != "failed":
            if machine.zone in counts:
                counts[machine.zone] += 1
    return counts


def pods_by_node(snapshot: ClusterSnapshot) -> Mapping[str, list[SeenPod]]:
    """Pods that are on a node or ended there."""
    by_node: dict[str, list[SeenPod]] = {}
    for pod in snapshot.pods:
        if pod.pod.node is not None:
            by_node.setdefault(pod.pod.node, []).append(pod)
    for pods in by_node.values():
        pods.sort(key=lambda pod: (pod.pod.namespace, pod.pod.name))
    return by_node
