"""What a machine of AWS will offer: what EKS reserves, the least of several types, prices."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.autoscaler.providers.aws.groups import GroupFacts, ScalingGroup
from longboat.autoscaler.providers.aws.machines import (
    MachineType,
    Offers,
    allocatable_cpus,
    allocatable_memory,
    pool_of,
    read_type,
)
from longboat.clouds.machine_types import CloudMachine, MachineTable

GIB = 1 << 30


def machine(name: str, **more: Any) -> MachineType:
    return MachineType(**{"name": name, "cpus": 8, "memory": 64 * GIB, "pods": 58, **more})


def offers(*types: MachineType, **more: Any) -> Offers:
    priced = {"big": 10.0, "small": 4.0}
    table = {name: CloudMachine(type=name, cpus=8, memory_gib=64, price=price) for name, price in priced.items()}
    known = {each.name: each for each in types}
    return Offers(types=known, table=MachineTable(machines=table, note=""), **more)


def group(name: str = "g", **more: Any) -> ScalingGroup:
    given = {"name": name, "min": 0, "max": 3, "zones": ("a",), "created": 0.0, "tags": {}, "machines": (), **more}
    return ScalingGroup(**given)


def facts(*types: str, **more: Any) -> GroupFacts:
    return GroupFacts(**{"pool": "p", "types": types, "spot": False, "labels": {}, **more})


@pytest.mark.parametrize(("cpus", "left"), [(1, 0.94), (2, 1.93), (4, 3.92), (8, 7.91), (192, 191.45)])
def test_processors_that_eks_leaves(cpus: int, left: float) -> None:
    assert allocatable_cpus(cpus) == left


def test_memory_that_eks_leaves() -> None:
    mib = (255 + 29 * 11 + 100) * (1 << 20)
    assert allocatable_memory(8 * GIB, 29) == int(8 * GIB * 0.925) - mib


def test_a_type_as_aws_describes_it() -> None:
    body = {
        "InstanceType": "g5.xlarge",
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16384},
        "NetworkInfo": {"MaximumNetworkInterfaces": 4, "Ipv4AddressesPerInterface": 15},
        "GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA", "Count": 1}]},
        "ProcessorInfo": {"SupportedArchitectures": ["arm64"]},
    }
    known = read_type(body)
    assert (known.cpus, known.memory, known.pods, known.gpus) == (4, 16 * GIB, 58, 1)
    assert (known.gpu_resource, known.architecture) == ("nvidia.com/gpu", "arm64")


def test_of_several_types_the_least_counts_and_the_dearest_price() -> None:
    types = machine("big", gpus=8, cpus=16), machine("small", gpus=4)
    pool = pool_of("p", "aws", "r", [(group(), facts("big", "small"))], offers(*types))
    assert pool.machine.has("nvidia.com/gpu") == 4 and pool.machine.has("cpu") == 7910 and pool.price == 10.0
    assert "node.kubernetes.io/instance-type" not in pool.machine.labels and pool.is_estimated


def test_groups_in_different_zones_are_one_pool() -> None:
    groups = [(group("x"), facts("small")), (group("y", zones=("b",), min=1), facts("small"))]
    pool = pool_of("p", "aws", "r", groups, offers(machine("small")))
    assert (pool.zones, pool.min, pool.max) == (("a", "b"), 1, 6)
    assert pool.machine.labels["node.kubernetes.io/instance-type"] == "small"


@pytest.mark.parametrize(
    ("name", "spot", "prices", "price"),
    [("small", True, {("small", "a"): 1.2}, 1.2), ("small", True, {}, 4.0), ("new", False, {}, 10.0)],
)
def test_prices(name: str, spot: bool, prices: dict[tuple[str, str], float], price: float) -> None:
    known = offers(machine(name), spot=prices)
    assert pool_of("p", "aws", "r", [(group(), facts(name, spot=spot))], known).price == price
