"""Estimated nodes: what a machine of Azure will offer as a node, by Azure's description of its size, until nodes show
it. Pure.

AKS keeps a part of every machine for itself; where its versions differ, the larger part counts here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longboat.autoscaler.model.pools_file import template_of
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.providers.azure.scale_sets import ScaleSet, SetFacts
from longboat.autoscaler.providers.reservations import GIB, HYPERVISOR, MIB, reserved_memory
from longboat.clouds.machine_types import MachineTable
from longboat.core.jobs import Value
from longboat.fitting.model.quantities import amount

_CPU_RESERVED = ((1, 60), (2, 100), (4, 140), (8, 180), (16, 260), (32, 420), (64, 740))
"""Processors up to -> what AKS reserves, in thousandths of one."""
_EVICTION = 750 * MIB
_PER_POD, _KUBELET = 20 * MIB, 50 * MIB
_ARCHITECTURES = {"x64": "amd64", "Arm64": "arm64"}


class VmSize(Value, frozen=True):
    name: str
    cpus: int
    memory: int
    gpus: int = 0
    architecture: str = "amd64"


def read_size(body: Mapping[str, Any]) -> VmSize | None:
    """As the list of sizes describes it; None: it is no machine."""
    if body.get("resourceType") != "virtualMachines":
        return None
    has = {each.get("name"): each.get("value") or "" for each in body.get("capabilities") or ()}
    try:
        return VmSize(
            name=body["name"],
            cpus=int(has.get("vCPUsAvailable") or has["vCPUs"]),
            memory=int(float(has["MemoryGB"]) * GIB),
            gpus=int(has.get("GPUs") or 0),
            architecture=_ARCHITECTURES.get(has.get("CpuArchitectureType", "x64"), "amd64"),
        )
    except (KeyError, ValueError):
        return None


def allocatable_cpus(cpus: int) -> float:
    largest, most = _CPU_RESERVED[-1]
    reserved = next((each for limit, each in _CPU_RESERVED if cpus <= limit), cpus * most // largest)
    return round(cpus - reserved / 1000, 3)


def allocatable_memory(memory: int, pods: int) -> int:
    seen = int(memory * (1 - HYPERVISOR))
    by_pods = min(_PER_POD * pods + _KUBELET, seen // 4)
    return seen - max(reserved_memory(seen), by_pods) - _EVICTION


def pool_of(
    name: str,
    provider: str,
    sets: Sequence[tuple[ScaleSet, SetFacts]],
    sizes: Mapping[str, VmSize],
    table: MachineTable,
) -> Pool:
    """The pool that these sets are; their sizes are known, and each says its max."""
    mine = [sizes[each.type] for each, _ in sets]
    first, facts = sets[0]
    types = {each.name for each in mine}
    labels = {"topology.kubernetes.io/region": first.location, "kubernetes.io/arch": mine[0].architecture}
    if len(types) == 1:
        labels["node.kubernetes.io/instance-type"] = mine[0].name
    machine = {
        "cpus": min(allocatable_cpus(each.cpus) for each in mine),
        "memory": min(allocatable_memory(each.memory, facts.most_pods) for each in mine),
        "pods": facts.most_pods,
        "gpus": min(each.gpus for each in mine),
        "gpu_resource": "nvidia.com/gpu",
        "labels": {**labels, **facts.labels},
        "taints": facts.taints,
        "resources": {resource: amount(resource, text) for resource, text in facts.resources.items()},
    }
    dearest = max(each.price for each in table.machines.values())
    return Pool(
        name=name,
        machine=template_of(name, machine),
        provider=provider,
        min=sum(each.min for each, _ in sets),
        max=sum(each.max or 0 for each, _ in sets),
        price=max(table.machines[each].price if each in table.machines else dearest for each in types),
        spot=first.spot,
        zones=tuple(sorted({each.zone for each, _ in sets if each.zone})) if all(each.zone for each, _ in sets) else (),
        is_estimated=True,
    )
