"""What `up` does with the GKE cluster that it finds, and what differs from the file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from longboat.clouds.machine_types import MachineTable
from longboat.clusters.cloud.gcp.cluster_view import GkeView, NodePoolView
from longboat.clusters.cloud.gcp.request import ANY_PROJECT, EFFECTS, IDENTITY_MODE, make_request, range_labels, zone_of
from longboat.clusters.cloud.labels import POOL_LABEL, labels_of
from longboat.clusters.cloud.spec import CloudPool, CloudSpec
from longboat.core.errors import EngineError, Refused
from longboat.core.jobs import Value

Verb = Literal[
    "create_cluster", "create_pool", "delete_pool", "resize_pool", "limit_pool", "update_cluster", "update_pool"
]
GPU_TAINT = ("nvidia.com/gpu", "present", "NO_SCHEDULE")
"""GKE puts it on nodes with GPUs by itself."""


class GkeStep(Value, frozen=True):
    """One request, and what it is about."""

    verb: Verb
    name: str
    body: dict[str, Any] = {}

    @property
    def text(self) -> str:
        words = {
            "create_cluster": "the cluster is made",
            "create_pool": f"the node pool {self.name} is made",
            "delete_pool": f"the node pool {self.name} is deleted: the file does not have it any more",
            "resize_pool": f"the node pool {self.name} gets {self.body.get('nodeCount')} machines",
            "limit_pool": f"the node pool {self.name} gets the range of the file",
            "update_cluster": "service accounts of the cluster become somebody for Google, for the autoscaler",
            "update_pool": f"the node pool {self.name} is changed for the autoscaler, and its nodes may be made anew",
        }
        return words[self.verb]


def decide_up(
    name: str, spec: CloudSpec, table: MachineTable, view: GkeView | None, project: str = ANY_PROJECT
) -> tuple[GkeStep, ...]:
    """Requests in their order; none: all is as the file says, as far as GKE lets it be changed."""
    request = make_request(name, spec, table, project)
    if view is None:
        return (GkeStep(verb="create_cluster", name=name, body=request),)
    _check_state(name, spec, view)
    there = {pool.name: pool for pool in view.pools}
    bodies = {body["name"]: body for body in request["cluster"]["nodePools"]}
    steps = _identity_steps(name, request["cluster"], view) if spec.autoscaler else []
    steps += [
        GkeStep(verb="create_pool", name=pool.name, body={"nodePool": bodies[pool.name]})
        for pool in spec.pools
        if pool.name not in there
    ]
    for pool in spec.pools:
        if pool.name in there:
            steps += _sizes(spec, pool, there[pool.name], bodies[pool.name])
    names = {pool.name for pool in spec.pools}
    ours = [pool for pool in view.pools if pool.labels.get(POOL_LABEL) == pool.name]
    return (*steps, *(GkeStep(verb="delete_pool", name=pool.name) for pool in ours if pool.name not in names))


def _check_state(name: str, spec: CloudSpec, view: GkeView) -> None:
    """Raises LongboatError where nothing can be done."""
    if view.owner != name:
        raise Refused(
            f"GKE has a cluster {name} in {spec.region} already, which Longboat did not make",
            hint="give the cluster another name, or take it as it is: kind: existing",
        )
    if view.status == "STOPPING":
        raise EngineError(f"{name} is being taken down", hint=f"longboat cluster down {name} follows that; then up")
    if view.status == "ERROR":
        raise EngineError(
            f"{name} was not made: {view.issue or view.status}",
            hint=f"longboat cluster down {name} --yes removes what is left of it, then up again",
        )


def _identity_steps(name: str, request: Mapping[str, Any], view: GkeView) -> list[GkeStep]:
    """For a cluster that was made without the autoscaler."""
    steps = []
    if not view.workload_pool:
        update = {"desiredWorkloadIdentityConfig": request["workloadIdentityConfig"]}
        steps.append(GkeStep(verb="update_cluster", name=name, body={"update": update}))
    names = {body["name"] for body in request["nodePools"]}
    mode = {"workloadMetadataConfig": {"mode": IDENTITY_MODE}}
    return steps + [
        GkeStep(verb="update_pool", name=pool.name, body=mode)
        for pool in view.pools
        if pool.name in names and not pool.has_identity
    ]


def _own_sizes(pool: CloudPool, view: NodePoolView, body: Mapping[str, Any]) -> list[GkeStep]:
    """Of a pool whose machines Longboat's autoscaler orders: labels say how many it may have."""
    steps = []
    if view.is_managed:
        steps.append(GkeStep(verb="limit_pool", name=pool.name, body={"autoscaling": {"enabled": False}}))
    has_range = pool.min < pool.max
    if (view.min, view.max) != ((pool.min, pool.max) if has_range else (0, 0)) and not view.is_managed:
        labels = range_labels(pool) if has_range else {}
        steps.append(GkeStep(verb="update_pool", name=pool.name, body={"resourceLabels": {"labels": labels}}))
    if not has_range and view.size not in (None, pool.count):
        steps.append(GkeStep(verb="resize_pool", name=pool.name, body={"nodeCount": pool.count}))
    return steps


def _sizes(spec: CloudSpec, pool: CloudPool, view: NodePoolView, body: Mapping[str, Any]) -> list[GkeStep]:
    """A pool with a range keeps the machines that it has."""
    has_range = pool.min < pool.max
    if spec.autoscaler:
        return _own_sizes(pool, view, body)
    if has_range and (not view.is_managed or (view.min, view.max) != (pool.min, pool.max)):
        return [GkeStep(verb="limit_pool", name=pool.name, body={"autoscaling": dict(body["autoscaling"])})]
    if has_range:
        return []
    steps = (
        []
        if not view.is_managed
        else [GkeStep(verb="limit_pool", name=pool.name, body={"autoscaling": {"enabled": False}})]
    )
    if view.size is not None and view.size != pool.count:
        steps.append(GkeStep(verb="resize_pool", name=pool.name, body={"nodeCount": pool.count}))
    return steps


def drift(spec: CloudSpec, view: GkeView) -> list[str]:
    """What is not as the file says, as sentences."""
    lines = []
    if spec.autoscaler and not view.workload_pool:
        lines.append("service accounts of the cluster are nobody for Google, and the autoscaler is to be somebody")
    if not view.version.startswith(f"{spec.version}.") and view.version != spec.version:
        lines.append(f"Kubernetes is {view.version}, the file has {spec.version}")
    if set(view.access) != set(spec.network.access):
        reached, wanted = ", ".join(view.access), ", ".join(spec.network.access)
        lines.append(f"the API server is reached from {reached}, the file has {wanted}")
    pools = {pool.name: pool for pool in view.pools}
    for pool in spec.pools:
        there = pools.get(pool.name)
        lines += [f"{pool.name}: there is no such node pool"] if there is None else _pool_drift(spec, pool, there)
    names = {pool.name for pool in spec.pools}
    return lines + [f"the node pool {pool.name} is not in the file" for pool in view.pools if pool.name not in names]


def _pool_drift(spec: CloudSpec, pool: CloudPool, view: NodePoolView) -> list[str]:
    taints = tuple(sorted((taint.key, taint.value, EFFECTS[taint.effect]) for taint in pool.taints))
    shown = tuple(each for each in view.taints if each != GPU_TAINT or GPU_TAINT in taints)
    labels = labels_of(pool)
    pairs: Sequence[tuple[str, object, object]] = (
        ("machines are", view.type, pool.type),
        ("spot is", view.spot, pool.spot),
        ("flex start is", view.flex_start, pool.flex_start),
        ("its zones are", ", ".join(view.locations), zone_of(spec, pool)),
        ("its labels are", {key: view.labels.get(key) for key in labels}, labels),
        ("its taints are", shown, taints),
        ("GKE's own autoscaler is", view.is_managed, pool.min < pool.max and not spec.autoscaler),
        ("its range is", (view.min, view.max), (pool.min, pool.max) if pool.min < pool.max else (view.min, 0)),
    )
    lines = [f"{pool.name}: {name} {has}, the file has {wanted}" for name, has, wanted in pairs if has != wanted]
    if pool.min == pool.max and view.size not in (None, pool.count):
        lines.append(f"{pool.name}: it has {view.size} machines, the file has {pool.count}")
    return lines + ([f"{pool.name}: GKE says: {view.issue}"] if view.issue else [])


def quota_problems(spec: CloudSpec, table: MachineTable, left: Mapping[str, float]) -> list[str]:
    """Machines at the start that the region's quotas do not allow. What the region does not tell is not judged."""
    wanted: dict[str, float] = {}
    for pool in spec.pools:
        machine = table.machines[pool.type]
        prefix = "PREEMPTIBLE_" if pool.spot else ""
        if pool.gpus:
            name = "A100_80GB" if (machine.gpu, machine.gpu_memory_gib) == ("A100", 80) else machine.gpu.upper()
            key = f"{prefix}NVIDIA_{name}_GPUS"
            wanted[key] = wanted.get(key, 0) + pool.count * machine.gpus
        if not pool.spot:
            wanted["CPUS"] = wanted.get("CPUS", 0) + pool.count * machine.cpus
    return [
        f"{metric}: {count:g} wanted, {left[metric]:g} left"
        for metric, count in sorted(wanted.items())
        if metric in left and count > left[metric]
    ]
