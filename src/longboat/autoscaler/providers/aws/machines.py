"""Estimated nodes: what a machine of AWS will offer as a node, by AWS's description of its type: an estimate until
nodes show it. Pure.

EKS keeps a part of every machine for itself; the amounts are those of its own images. Of several types the least of
each counts, and the dearest price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longboat.autoscaler.model.pools_file import template_of
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.providers.aws.groups import GroupFacts, ScalingGroup, serving
from longboat.autoscaler.providers.reservations import HYPERVISOR, MIB, reserved_cpus
from longboat.clouds.machine_types import MachineTable
from longboat.core.jobs import Value
from longboat.fitting.model.quantities import amount

_KUBELET = 255 * MIB
_PER_POD = 11 * MIB
_EVICTION = 100 * MIB
"""What EKS's images reserve of memory: for the kubelet, for each pod it may have, and before it evicts."""
_MOST_PODS = ((30, 110), (1 << 30, 250))
"""Processors up to -> pods at most, whatever addresses there are."""
_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}


class MachineType(Value, frozen=True):
    name: str
    cpus: int
    memory: int
    pods: int
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    architecture: str = "amd64"


def read_type(body: Mapping[str, Any]) -> MachineType:
    """As DescribeInstanceTypes describes it."""
    cpus = body["VCpuInfo"]["DefaultVCpus"]
    network = body.get("NetworkInfo") or {}
    addresses = network.get("MaximumNetworkInterfaces", 1) * (network.get("Ipv4AddressesPerInterface", 2) - 1) + 2
    gpus = (body.get("GpuInfo") or {}).get("Gpus") or ()
    makers = [str(gpu.get("Manufacturer", "")).lower() for gpu in gpus]
    processors = (body.get("ProcessorInfo") or {}).get("SupportedArchitectures") or ["x86_64"]
    return MachineType(
        name=body["InstanceType"],
        cpus=cpus,
        memory=body["MemoryInfo"]["SizeInMiB"] * MIB,
        pods=min(addresses, next(most for limit, most in _MOST_PODS if cpus <= limit)),
        gpus=sum(gpu.get("Count", 0) for gpu in gpus),
        gpu_resource=next((_RESOURCES[maker] for maker in makers if maker in _RESOURCES), "nvidia.com/gpu"),
        architecture=next((_ARCHITECTURES[name] for name in processors if name in _ARCHITECTURES), "amd64"),
    )


def allocatable_cpus(cpus: int) -> float:
    return round(cpus - reserved_cpus(cpus), 3)


def allocatable_memory(memory: int, pods: int) -> int:
    return int(memory * (1 - HYPERVISOR)) - _KUBELET - _PER_POD * pods - _EVICTION


class Offers(Value, frozen=True):
    """What a region has: types, their prices on demand by the table that ships, and spot prices by type and zone."""

    types: dict[str, MachineType]
    table: MachineTable
    spot: dict[tuple[str, str], float] = {}


def pool_of(
    name: str, provider: str, region: str, groups: Sequence[tuple[ScalingGroup, GroupFacts]], offers: Offers
) -> Pool:
    """The pool that these groups are; their types are known."""
    zones = serving(group for group, _ in groups)
    used = {group.name for group in zones.values()}
    _, facts = max(groups, key=lambda pair: (pair[0].created, pair[0].name))
    types = [offers.types[each] for each in facts.types]
    machine = {
        "cpus": min(allocatable_cpus(each.cpus) for each in types),
        "memory": min(allocatable_memory(each.memory, each.pods) for each in types),
        "pods": min(each.pods for each in types),
        "gpus": min(each.gpus for each in types) if facts.has_gpus else 0,
        "gpu_resource": types[0].gpu_resource,
        "labels": {**_labels(types, region), **facts.labels},
        "taints": facts.taints,
        "resources": {resource: amount(resource, text) for resource, text in facts.resources.items()},
    }
    return Pool(
        name=name,
        machine=template_of(name, machine),
        provider=provider,
        min=sum(group.min for group, _ in groups if group.name in used),
        max=sum(group.max for group, _ in groups if group.name in used),
        price=max(_price(each.name, facts.spot, tuple(zones), offers) for each in types),
        spot=facts.spot,
        gpu_resource=types[0].gpu_resource,
        zones=tuple(sorted(zones)),
        is_estimated=True,
    )


def _labels(types: Sequence[MachineType], region: str) -> dict[str, str]:
    labels = {"topology.kubernetes.io/region": region, "kubernetes.io/arch": types[0].architecture}
    return {**labels, "node.kubernetes.io/instance-type": types[0].name} if len(types) == 1 else labels


def _price(type_name: str, is_spot: bool, zones: Sequence[str], offers: Offers) -> float:
    """By the hour. A spot price that AWS does not tell is the price on demand, the most that it can be; a type that the
    table does not have counts as its dearest, so that nothing is preferred because nobody knows what it costs.
    """
    machines = offers.table.machines
    prices = [offers.spot[type_name, zone] for zone in zones if (type_name, zone) in offers.spot] if is_spot else []
    known = machines.get(type_name)
    return (
        max(prices) if prices else known.price if known is not None else max(each.price for each in machines.values())
    )
