"""Earliest start of a gang: when and where it fits, over what ends and comes; or where least has to end. Pure.

Used for reservations (`backfill`). The fleet is left as it is.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Sequence

from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.model.quantities import CPU, scarcity
from longboat.fitting.node_state import NodeState
from longboat.fitting.packing import Placement, place

UNKNOWN = math.inf
"""The start of a gang that waits for ends of which nobody knows when."""
COMING = "\0coming"
"""Namespace of what stands for a machine that boots: no pod of a cluster is called so."""

Key = tuple[str, str]
Release = tuple[float, list[Pod]]
"""From this moment on these pods hold nothing."""


class EarliestStart:
    """The earliest moment at which pods fit, over a list of releases; the fleet is left as it is."""

    def __init__(self, pods: tuple[Pod, ...], fleet: Fleet) -> None:
        self.pods, self.fleet = pods, fleet
        self.nodes: tuple[str, ...] = ()
        self.freed: dict[str, dict[str, int]] = {}  # node -> what is given back there until then

    def earliest(self, releases: list[Release]) -> float | None:
        """Gallops, then halves: the cost goes with what has to be released, not with all there is."""
        self._releases, self._done = releases, 0
        self._gone: list[list[tuple[Pod, NodeState]]] = []
        failed, fits = 0, 1
        while not self._fits_after(min(fits, len(releases))):
            if fits >= len(releases):
                self._advance_to(0)
                return None
            failed, fits = fits, fits * 2
        fits = min(fits, len(releases))
        while fits - failed > 1:
            middle = (failed + fits) // 2
            if self._fits_after(middle):
                fits = middle
            else:
                failed = middle
        self._settle(fits)
        return releases[fits - 1][0] if fits else 0.0

    def cheapest(self, planned: Container[Key]) -> float | None:
        """On the nodes where least has to end; None where it does not fit even on empty ones."""
        shapes = {pod.shape for pod in self.pods}
        if not self.fleet.topology.is_quiet or any(shape.near or shape.spread or shape.apart for shape in shapes):
            return self.earliest(_by_node(self.pods, self.fleet, planned))
        nodes = least_to_end(self.pods, self.fleet, planned)
        if nodes is None:
            return None
        self.nodes = nodes
        return UNKNOWN

    def _settle(self, count: int) -> None:
        self._advance_to(count)
        placement = place(self.pods, self.fleet, explain=False)
        assert isinstance(placement, Placement)
        self.nodes = placement.nodes
        self.freed = {}
        for pod, state in (pair for gone in self._gone for pair in gone):
            if pod.namespace != COMING:
                freed = self.freed.setdefault(state.name, {})
                for resource, amount in pod.shape.requests:
                    freed[resource] = freed.get(resource, 0) + amount
        self._advance_to(0)

    def _fits_after(self, count: int) -> bool:
        self._advance_to(count)
        return isinstance(place(self.pods, self.fleet, explain=False), Placement)

    def _advance_to(self, count: int) -> None:
        while self._done < count:
            gone = []
            for pod in self._releases[self._done][1]:
                state = self.fleet.where(pod)
                if state is not None:
                    self.fleet.remove(pod)
                    gone.append((pod, state))
            self._gone.append(gone)
            self._done += 1
        while self._done > count:
            for pod, state in self._gone.pop():
                self.fleet.add(pod, state)
            self._done -= 1


def _by_node(pods: Sequence[Pod], fleet: Fleet, planned: Container[Key]) -> list[Release]:
    """Nodes where the pods may be, emptied one after the other: that on which least has to end first."""
    shapes = {pod.shape for pod in pods}
    names = sorted({name for shape in shapes for name in fleet.eligible(shape.placing)})
    asked = {resource for shape in shapes for resource, _ in shape.requests}
    primary = min(asked, key=scarcity, default=CPU)

    def in_use(state: NodeState) -> int:
        return state.shape.has(primary) - state.free.get(primary, 0)

    states = sorted((fleet.states[name] for name in names), key=lambda state: (_is_here(state), in_use(state)))
    return [
        (UNKNOWN, [pod for key, pod in state.pods.items() if not pod.lasts and key not in planned]) for state in states
    ]


def least_to_end(pods: Sequence[Pod], fleet: Fleet, planned: Container[Key]) -> tuple[str, ...] | None:
    """A node for each pod, so that the least of the scarcest resource has to end.

    Each pod goes where it lacks least. What pods of one kind lack on a node grows with every one of them, so that no
    other choice is better; therefore what has to end for a gang never grows from one decision to the next.
    """
    primary = min({name for pod in pods for name, _ in pod.shape.requests}, key=scarcity, default=CPU)
    rooms: dict[str, _Room] = {}
    ending: dict[int, str] = {}
    order = sorted(range(len(pods)), key=lambda number: -pods[number].shape.asks(primary))
    heap: list[tuple[int, int, str]] = []
    last: PodShape | None = None
    for number in order:
        shape = pods[number].shape
        if shape != last:
            last, heap = shape, []
            for name in fleet.eligible(shape.placing):
                if name not in rooms:
                    rooms[name] = _Room(fleet.states[name], primary, planned)
                if rooms[name].holds(shape):
                    heap.append((rooms[name].lack(shape), rooms[name].in_use, name))
            heapq.heapify(heap)
        if not heap:
            return None
        name = heapq.heappop(heap)[2]
        ending[number] = name
        rooms[name].take(shape)
        if rooms[name].holds(shape):
            heapq.heappush(heap, (rooms[name].lack(shape), rooms[name].in_use, name))
    return tuple(ending[number] for number in range(len(pods)))


class _Room:
    """A node with nothing on it but what stays, and what is free there now."""

    def __init__(self, state: NodeState, primary: str, planned: Container[Key]) -> None:
        self.primary = primary
        self.empty = dict(state.free)
        for key, pod in state.pods.items():
            if not pod.lasts and key not in planned:
                for name, count in pod.shape.requests:
                    self.empty[name] = self.empty.get(name, 0) + count
        # Of a machine that comes nothing has to end.
        self.free = state.free.get(primary, 0) if _is_here(state) else self.empty.get(primary, 0)
        self.in_use = self.empty.get(primary, 0) - self.free

    def holds(self, shape: PodShape) -> bool:
        return all(self.empty.get(name, 0) >= count for name, count in shape.requests)

    def lack(self, shape: PodShape) -> int:
        """How much more has to end for such a pod."""
        asked = shape.asks(self.primary)
        return max(0, asked - self.free) - max(0, -self.free)

    def take(self, shape: PodShape) -> None:
        self.free -= shape.asks(self.primary)
        for name, count in shape.requests:
            self.empty[name] -= count


def _is_here(state: NodeState) -> bool:
    return not any(namespace == COMING for namespace, _ in state.pods)
