"""Placement of pods on machines that are there or on their way. Pure; fleets are changed in place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import HOSTNAME
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.model.quantities import CPU, MEMORY, is_scarce, scarcity
from longboat.fitting.node_state import NodeState
from longboat.fitting.packing import take_each

Pairs = list[tuple[Pod, NodeState]]


def is_plain(pod: Pod, fleet: Fleet) -> bool:
    """Whether nothing but the node itself and what is on it decides: no zone, no pods elsewhere."""
    shape = pod.shape
    if shape.near or shape.spread or any(term.key != HOSTNAME for term in shape.apart):
        return False
    return fleet.topology.is_quiet or all(term.key == HOSTNAME for term, _ in fleet.topology.repelling_terms(pod))


def settle(pods: Sequence[Pod], fleet: Fleet) -> list[Pod]:
    """Put each where it fits best; returns those that found no place."""
    if not fleet.states or not pods:
        return list(pods)
    left: list[Pod] = []
    for shape, alike in by_shape(pods):
        if shape.apart or not fleet.topology.is_quiet:
            left += take_each(alike, fleet)
        else:
            left += _settle_alike(shape, alike, fleet)
    return left


def by_shape(pods: Iterable[Pod]) -> list[tuple[PodShape, list[Pod]]]:
    """Classes of alike pods, what is hardest to place first: many devices, then much memory and CPU."""
    groups: dict[PodShape, list[Pod]] = {}
    for pod in pods:
        groups.setdefault(pod.shape, []).append(pod)
    return sorted(groups.items(), key=lambda item: size_of(item[0]))


def size_of(shape: PodShape) -> tuple[tuple[tuple[int, int, str], ...], int, int, str]:
    """Sorts the hardest first."""
    devices = sorted((scarcity(name)[0], -count, name) for name, count in shape.requests if is_scarce(name))
    return tuple(devices) or ((9, 0, ""),), -shape.asks(MEMORY), -shape.asks(CPU), repr(shape.placing)


def _settle_alike(shape: PodShape, pods: list[Pod], fleet: Fleet) -> list[Pod]:
    """Alike pods that do not look at their neighbours."""
    primary = min((name for name, _ in shape.requests if is_scarce(name)), key=scarcity, default="")
    left = list(reversed(pods))
    for state in fleet.best_fit(shape, primary).walk(shape.asks(primary), shape.asks(CPU)):
        for _ in range(min(state.fits(shape), len(left))):
            fleet.add(left.pop(), state)
        if not left:
            break
    left.reverse()
    return left


def withdraw(pods: Iterable[Pod], fleets: Iterable[Fleet]) -> None:
    """Take pods off whichever of these fleets they were put on."""
    fleets = list(fleets)
    for pod in pods:
        for fleet in fleets:
            if fleet.where(pod) is not None:
                fleet.remove(pod)
                break


def where(pod: Pod, fleets: Iterable[Fleet]) -> NodeState | None:
    return next((state for state in (fleet.where(pod) for fleet in fleets) if state is not None), None)
