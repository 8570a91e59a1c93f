"""A model of kube-scheduler for pods that ask for GPUs: which machine a pod gets.

Ready machines that are not cordoned and have room are ranked. As the plugin NodeResourcesFit ranks them:
`least-allocated`, the default of kube-scheduler, takes the emptiest, `most-allocated` the fullest. The share of GPUs
stands for that of CPU and memory, which pods are taken to ask for in proportion. As the default kube-scheduler ranks
them for pods that Longboat made (`engines.kubernetes.manifests.gpu_packing`): `packed` takes the one with the most GPUs
in use, among equals the emptiest. kube-scheduler draws among what is still equal; here the one that has had so much
room the longest is taken, so that a replay can be repeated. Pods are tried in the order of their creation, and one that
finds no place holds up nobody. There is no preemption.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from longboat.simulator.entities import SimulatedMachine

Ranking = Literal["least-allocated", "most-allocated", "packed"]
RANKINGS: tuple[str, ...] = get_args(Ranking)


_RANKS: dict[str, Callable[[int, int], tuple[float, float]]] = {
    "least-allocated": lambda used, size: (used / size, 0.0),
    "most-allocated": lambda used, size: (-used / size, 0.0),
    "packed": lambda used, size: (-used, used / size),
}
"""The least comes first."""


class Scheduler:
    def __init__(self, ranking: Ranking = "least-allocated") -> None:
        self._rank = _RANKS[ranking]
        self._groups: dict[tuple[int, int], dict[str, SimulatedMachine]] = {}  # (free, size) -> machines

    def open(self, machine: SimulatedMachine) -> None:
        """The machine takes pods, with the room it has now."""
        self._groups.setdefault((machine.free, machine.gpus), {})[machine.name] = machine

    def close(self, machine: SimulatedMachine) -> None:
        group = self._groups.get((machine.free, machine.gpus))
        if group is not None:
            group.pop(machine.name, None)

    def find(self, gpus: int) -> SimulatedMachine | None:
        """The machine for a pod with so many GPUs."""
        best: dict[str, SimulatedMachine] | None = None
        score = (0.0, 0.0)
        for (free, size), group in self._groups.items():
            if free >= gpus and group:
                rank = self._rank(size - free, size)
                if best is None or rank < score:
                    best, score = group, rank
        return None if best is None else next(iter(best.values()))

    def counts(self) -> dict[int, int]:
        """Free GPUs -> how many machines have so many."""
        totals: dict[int, int] = {}
        for (free, _), group in self._groups.items():
            if group:
                totals[free] = totals.get(free, 0) + len(group)
        return totals
