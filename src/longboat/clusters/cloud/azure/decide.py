"""What `up` does with the resource group that it finds, and what differs from the file. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from longboat.clouds.machine_types import MachineTable
from longboat.clusters.cloud.azure.aks_view import AksPoolView, AksView
from longboat.clusters.cloud.azure.template import CLUSTER_TAG, make_template, parameter_values
from longboat.clusters.cloud.labels import POOL_LABEL, labels_of
from longboat.clusters.cloud.spec import CloudPool, CloudSpec
from longboat.core.errors import EngineError, Refused
from longboat.core.jobs import Value

Decision = Literal["deploy", "follow", "nothing"]
DIGEST_TAG = "longboat-template"
"""Of the resource group: the file that was deployed last."""
SPOT_TAINT = "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"
"""AKS puts it on spot pools by itself."""
BUSY_STATES = ("Accepted", "Running", "Creating", "Updating", "Deleting")


class GroupView(Value, frozen=True):
    """The resource group of a cluster."""

    state: str
    tags: dict[str, str] = {}


class DeploymentView(Value, frozen=True):
    state: str
    error: str = ""


class SizeView(Value, frozen=True):
    """A machine type in a region, for this subscription."""

    family: str
    zones: tuple[str, ...] = ()
    is_refused: bool = False


def digest_of(name: str, spec: CloudSpec) -> str:
    text = json.dumps([make_template(name, spec), parameter_values(spec)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def decide_up(
    name: str, spec: CloudSpec, group: GroupView | None, deployment: DeploymentView | None, cluster: AksView | None
) -> Decision:
    """Raises LongboatError where nothing can be done."""
    if group is None:
        return "deploy"
    if group.tags.get(CLUSTER_TAG) != name:
        raise Refused(
            f"there is a resource group of this name that is not of the cluster {name}",
            hint="give the cluster another name",
        )
    if group.state == "Deleting":
        raise EngineError(f"{name} is being taken down", hint=f"longboat cluster down {name} follows that; then up")
    if deployment is not None and deployment.state in BUSY_STATES:
        return "follow"
    is_deployed = group.tags.get(DIGEST_TAG) == digest_of(name, spec) and deployment is not None
    if is_deployed and deployment is not None and deployment.state == "Succeeded":
        if cluster is not None and not drift(spec, cluster):
            return "nothing"
    return "deploy"


def parameters_of(spec: CloudSpec, cluster: AksView | None) -> dict[str, Any]:
    """Parameters for the deployment: a pool with a range keeps the machines that it has."""
    values = parameter_values(spec)
    sizes = {pool.name: pool.count for pool in cluster.pools} if cluster else {}
    for pool in spec.pools:
        if pool.min < pool.max and pool.name in sizes:
            values[f"{pool.name}Count"] = min(max(sizes[pool.name], pool.min), pool.max)
    return values


def removed_pools(spec: CloudSpec, cluster: AksView | None) -> list[str]:
    """Pools that Longboat made and the file has no more: a deployment would leave them."""
    names = {pool.name for pool in spec.pools}
    ours = [pool.name for pool in cluster.pools if pool.labels.get(POOL_LABEL) == pool.name] if cluster else []
    return [name for name in ours if name not in names]


def drift(spec: CloudSpec, view: AksView) -> list[str]:
    """What is not as the file says, as sentences."""
    lines = []
    if not view.version.startswith(f"{spec.version}.") and view.version != spec.version:
        lines.append(f"Kubernetes is {view.version}, the file has {spec.version}")
    if set(view.access) != set(spec.network.access):
        networks = ", ".join(view.access)
        lines.append(f"the API server is reached from {networks}, the file has {', '.join(spec.network.access)}")
    there = {pool.name: pool for pool in view.pools}
    for pool in spec.pools:
        lines += (
            _pool_drift(spec, pool, there[pool.name]) if pool.name in there else [f"{pool.name}: AKS has no such pool"]
        )
    names = {pool.name for pool in spec.pools}
    return lines + [f"the pool {name} is not in the file" for name in there if name not in names]


def _pool_drift(spec: CloudSpec, pool: CloudPool, view: AksPoolView) -> list[str]:
    labels, taints = labels_of(pool), tuple(sorted(str(taint) for taint in pool.taints))
    shown = tuple(taint for taint in view.taints if taint != SPOT_TAINT or SPOT_TAINT in taints)
    is_ranged = pool.min < pool.max
    facts: Sequence[tuple[str, object, object]] = (
        ("type", view.type, pool.type),
        ("spot", view.spot, pool.spot),
        ("zones", view.zones, tuple(sorted(pool.zones))),
        ("labels", {key: view.labels.get(key) for key in labels}, labels),
        ("taints", shown, taints),
        ("range", (view.min, view.max), (pool.min, pool.max) if is_ranged else (0, 0)),
        ("AKS's own autoscaler", view.is_managed, is_ranged and not spec.autoscaler),
        ("count", view.count if not is_ranged else None, pool.count if not is_ranged else None),
    )
    return [f"{pool.name}: {name}: {has}, the file has {wanted}" for name, has, wanted in facts if has != wanted]


def problems_of(
    spec: CloudSpec, table: MachineTable, sizes: Mapping[str, SizeView], left: Mapping[str, float]
) -> list[str]:
    """Why the subscription cannot have the machines of the start; `left`: processors by family of types."""
    lines = []
    wanted: dict[str, int] = {}
    for pool in spec.pools:
        size = sizes.get(pool.type)
        if size is None or size.is_refused:
            reason = "does not offer" if size is None else "does not let this subscription have"
            lines.append(f"pool {pool.name}: {spec.region} {reason} {pool.type}")
            continue
        missing = [zone for zone in pool.zones if zone not in size.zones]
        if missing:
            lines.append(f"pool {pool.name}: {pool.type} is not in zone {missing[0]}")
        family = "lowPriorityCores" if pool.spot else size.family
        for key in (family, *(() if pool.spot else ("cores",))):
            wanted[key] = wanted.get(key, 0) + pool.count * table.machines[pool.type].cpus
    return lines + [
        f"{name}: {count} processors wanted, {left[name]:g} left"
        for name, count in sorted(wanted.items())
        if name in left and count > left[name]
    ]
