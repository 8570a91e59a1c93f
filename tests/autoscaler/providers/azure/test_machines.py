"""What a machine of Azure offers as a node: never more than AKS leaves."""

from __future__ import annotations

import pytest

from longboat.autoscaler.providers.azure.machines import allocatable_cpus, allocatable_memory, read_size

GIB = 1 << 30


@pytest.mark.parametrize(("cpus", "left"), [(2, 1.9), (4, 3.86), (8, 7.82), (64, 63.26), (96, 94.89)])
def test_processors(cpus: int, left: float) -> None:
    assert allocatable_cpus(cpus) == left


@pytest.mark.parametrize(("memory", "pods"), [(8, 30), (16, 110), (220, 110), (1900, 250)])
def test_memory_is_less_than_both_ways_of_aks_leave(memory: int, pods: int) -> None:
    left = allocatable_memory(memory * GIB, pods)
    assert 0 < left < memory * GIB * 0.925 - (20 * pods + 50 + 100) * (1 << 20)


def test_sizes_without_numbers_and_other_things_are_passed_over() -> None:
    numbers = [{"name": "vCPUs", "value": "4"}, {"name": "MemoryGB", "value": "3.5"}, {"name": "GPUs", "value": "1"}]
    size = read_size({"resourceType": "virtualMachines", "name": "x", "capabilities": numbers})
    assert size is not None and (size.cpus, size.memory, size.gpus) == (4, int(3.5 * GIB), 1)
    assert read_size({"resourceType": "disks", "name": "x"}) is None
    assert read_size({"resourceType": "virtualMachines", "name": "x", "capabilities": numbers[:1]}) is None
