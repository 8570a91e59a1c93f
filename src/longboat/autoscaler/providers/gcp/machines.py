"""Estimated nodes: what a machine of Google will offer as a node, by Google's description of its type, until nodes show
it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longboat.autoscaler.model.pools_file import template_of
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.providers.gcp.groups import NodePool
from longboat.autoscaler.providers.reservations import HYPERVISOR, MIB, reserved_cpus, reserved_memory
from longboat.clouds.machine_types import MachineTable
from longboat.core.jobs import Value

_EVICTION = 100 * MIB
_ARCHITECTURES = {"X86_64": "amd64", "ARM64": "arm64"}


class GoogleMachineType(Value, frozen=True):
    name: str
    cpus: int
    memory: int
    gpus: int = 0
    architecture: str = "amd64"


def read_type(body: Mapping[str, Any]) -> GoogleMachineType:
    gpus = sum(int(each.get("guestAcceleratorCount") or 0) for each in body.get("accelerators") or ())
    return GoogleMachineType(
        name=body["name"],
        cpus=int(body["guestCpus"]),
        memory=int(body["memoryMb"]) * MIB,
        gpus=gpus,
        architecture=_ARCHITECTURES.get(body.get("architecture") or "X86_64", "amd64"),
    )


def allocatable_memory(memory: int) -> int:
    seen = int(memory * (1 - HYPERVISOR))
    return seen - reserved_memory(seen) - _EVICTION


def pool_of(provider: str, region: str, pool: NodePool, kind: GoogleMachineType, table: MachineTable) -> Pool:
    """The pool that this node pool is; it says its max."""
    assert pool.pool is not None and pool.max is not None
    labels = {
        "topology.kubernetes.io/region": region,
        "kubernetes.io/arch": kind.architecture,
        "node.kubernetes.io/instance-type": kind.name,
    }
    machine = {
        "cpus": round(kind.cpus - reserved_cpus(kind.cpus), 3),
        "memory": allocatable_memory(kind.memory),
        "pods": pool.pods,
        "gpus": pool.gpus or kind.gpus,
        "gpu_resource": "nvidia.com/gpu",
        "labels": {**labels, **pool.labels},
        "taints": pool.taints,
        "resources": {},
    }
    dearest = max(each.price for each in table.machines.values())
    return Pool(
        name=pool.pool,
        machine=template_of(pool.pool, machine),
        provider=provider,
        min=pool.min,
        max=pool.max,
        price=table.machines[kind.name].price if kind.name in table.machines else dearest,
        spot=pool.spot,
        zones=tuple(group.zone for group in pool.groups),
        is_estimated=True,
    )
