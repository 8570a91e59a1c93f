"""What managed clusters keep of a machine for themselves: shares that fall with its size. Pure."""

from __future__ import annotations

GIB = 1 << 30
MIB = 1 << 20
HYPERVISOR = 0.075
"""Share of a type's memory that its system does not see, at most: as Karpenter assumes it."""
_SHARES = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06))
_REST = 0.02
"""Of the first 4 GiB, the next 4 and so on: what GKE reserves, and AKS before 1.29."""
_CPU_SHARES = (0.06, 0.01, 0.005, 0.005)
_CPU_REST = 0.0025
"""Of each of the first four processors, and of every other one: what GKE and EKS's images reserve."""


def reserved_cpus(cpus: int) -> float:
    return sum(_CPU_SHARES[:cpus]) + max(cpus - len(_CPU_SHARES), 0) * _CPU_REST


def reserved_memory(memory: int) -> int:
    left, reserved = memory, 0.0
    for gib, share in _SHARES:
        reserved += min(left, gib * GIB) * share
        left -= min(left, gib * GIB)
    return int(reserved + left * _REST)
