"""The fleet: nodes with what is on them now. Pods are added and removed; a copy is cheap. Pure, but mutable.

Deciding code copies it or puts back what it took; `packing` does so by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from longboat.core.errors import InternalError
from longboat.fitting.best_fit_index import BestFitIndex
from longboat.fitting.eligibility import Eligibility
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import NodeConstraints, Pod, PodShape
from longboat.fitting.node_state import NodeState
from longboat.fitting.topology import Topology

_MAX_CHANGES = 200_000  # in a process that lives for months; the indexes are then built anew


class Fleet:
    def __init__(
        self,
        nodes: Iterable[NodeShape],
        pods: Iterable[Pod] = (),
        *,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Pods bound to a node of the fleet are put there; the others are not the fleet's concern."""
        self.states: dict[str, NodeState] = {
            node.name: NodeState(node) for node in sorted(nodes, key=lambda node: node.name)
        }
        self.topology = Topology(self.states, namespaces or {})
        self._where: dict[tuple[str, str], NodeState] = {}
        self._forget()
        for pod in pods:
            if pod.node is not None and not pod.is_finished:
                state = self.states.get(pod.node)
                if state is not None:
                    self.add(pod, state)

    def _forget(self) -> None:
        """The set of nodes is new: what was found out about it does not hold any more."""
        self._eligibility = Eligibility({name: state.shape for name, state in self.states.items()})
        self._indexes: dict[tuple[int, str], BestFitIndex] = {}
        self._changed: list[NodeState] = []
        self._totals: dict[str, int] | None = None

    def totals(self) -> dict[str, int]:
        """What all nodes together can be asked for."""
        if self._totals is None:
            self._totals = {}
            for state in self.states.values():
                for name, count in state.shape.allocatable:
                    self._totals[name] = self._totals.get(name, 0) + count
        return self._totals

    def add(self, pod: Pod, state: NodeState) -> None:
        key = (pod.namespace, pod.name)
        if key in self._where:
            raise InternalError(f"pod {pod.namespace}/{pod.name} is on a node already")
        self._where[key] = state
        state.pods[key] = pod
        state.room -= 1
        free = state.free
        for name, count in pod.shape.requests:
            free[name] = free.get(name, 0) - count
        for port in pod.shape.ports:
            state.ports[port] = state.ports.get(port, 0) + 1
        self.topology.count(pod, state, 1)
        self._note(state)

    def remove(self, pod: Pod) -> None:
        key = (pod.namespace, pod.name)
        state = self._where.pop(key)
        held = state.pods.pop(key)
        state.room += 1
        for name, count in held.shape.requests:
            state.free[name] += count
        for port in held.shape.ports:
            state.ports[port] -= 1
            if not state.ports[port]:
                del state.ports[port]
        self.topology.count(held, state, -1)
        self._note(state)

    def _note(self, state: NodeState) -> None:
        if self._indexes:
            self._changed.append(state)
            if len(self._changed) > _MAX_CHANGES:
                self._indexes.clear()
                self._changed.clear()

    def where(self, pod: Pod) -> NodeState | None:
        return self._where.get((pod.namespace, pod.name))

    def add_node(self, node: NodeShape) -> None:
        self.add_nodes((node,))

    def add_nodes(self, nodes: Iterable[NodeShape]) -> None:
        for node in nodes:
            if node.name in self.states:
                raise InternalError(f"node {node.name} is in the fleet already")
            self.states[node.name] = NodeState(node)
        self._forget()

    def remove_node(self, name: str) -> None:
        """Remove a node with its pods."""
        state = self.states[name]
        for pod in list(state.pods.values()):
            self.remove(pod)
        del self.states[name]
        self._forget()

    def eligible(self, placing: NodeConstraints) -> tuple[str, ...]:
        """Names of the nodes where such a pod may be, whatever is on them; sorted."""
        return self._eligibility.select(placing)

    def best_fit(self, shape: PodShape, primary: str) -> BestFitIndex:
        """The eligible nodes in the order of best fit for pods that ask for `primary` (empty: for no device)."""
        names = self.eligible(shape.placing)
        key = (id(names), primary)
        index = self._indexes.get(key)
        if index is None:
            states = [self.states[name] for name in names]
            index = self._indexes[key] = BestFitIndex(states, primary, len(self._changed))
        else:
            index.refresh(self._changed)
        return index

    def copy(self) -> Fleet:
        fleet = Fleet.__new__(Fleet)
        fleet.states = {name: state.copy() for name, state in self.states.items()}
        fleet.topology = self.topology.copy(fleet.states)
        fleet._where = {key: fleet.states[state.name] for key, state in self._where.items()}
        fleet._indexes = {}
        fleet._changed = []
        fleet._totals = None
        # Both see the same nodes until one of them forgets.
        fleet._eligibility = self._eligibility
        return fleet
