"""What models of other autoscalers share: pods that wait, and first fit on counts of free GPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from longboat.simulator.entities import SimulatedPod
from longboat.simulator.world import World


def pending(world: World) -> list[SimulatedPod]:
    """Pods without a node, in the order of their creation."""
    return [task for job in world.waiting for task in job.tasks if task.machine is None]


def first_fit(sizes: Iterable[int], places: list[int]) -> list[int]:
    """Put each size on the first place with room; returns those left over. `places` is changed."""
    left = []
    for size in sizes:
        for index, free in enumerate(places):
            if free >= size:
                places[index] -= size
                break
        else:
            left.append(size)
    return left


def machines_for(sizes: Iterable[int], gpus: int) -> tuple[int, list[int]]:
    """How many new machines of so many GPUs first fit needs, and what fits on none."""
    places: list[int] = []
    never = []
    for size in sizes:
        if size > gpus:
            never.append(size)
        elif first_fit([size], places):
            places.append(gpus - size)
    return len(places), never
