"""A node's free resources, ports and pods at one moment. Mutable: `Fleet` adds and removes pods."""

from __future__ import annotations

from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.model.quantities import PODS, is_scarce
from longboat.fitting.model.requests import Port, clashes

DEFAULT_PODS = 110
"""What a kubelet allows unless told otherwise."""


class NodeState:
    """One node and what is on it. `free` may be negative where a node shrank under its pods."""

    __slots__ = ("shape", "name", "free", "room", "pods", "ports", "devices", "scarce")

    def __init__(self, shape: NodeShape) -> None:
        self.shape = shape
        self.name = shape.name
        self.free: dict[str, int] = dict(shape.allocatable)
        self.room = self.free.pop(PODS, DEFAULT_PODS)
        self.pods: dict[tuple[str, str], Pod] = {}
        self.ports: dict[Port, int] = {}
        self.scarce = tuple(name for name in self.free if is_scarce(name))
        self.devices = shape.devices

    def fits(self, shape: PodShape) -> int:
        """How many pods of this shape there is room for, as far as amounts and ports go."""
        count = self.room
        free = self.free
        for name, wanted in shape.requests:
            if wanted > 0:
                fitting = free.get(name, 0) // wanted
                if fitting < count:
                    count = fitting
            if count <= 0:
                return 0
        if shape.ports and count > 0:
            return 0 if clashes(shape.ports, self.ports) else 1
        return max(count, 0)

    def devices_free(self) -> int:
        return sum(self.free[name] for name in self.scarce)

    def copy(self) -> NodeState:
        node_state = NodeState.__new__(NodeState)
        node_state.shape, node_state.name = self.shape, self.name
        node_state.free, node_state.room = dict(self.free), self.room
        node_state.pods, node_state.ports = dict(self.pods), dict(self.ports)
        node_state.devices, node_state.scarce = self.devices, self.scarce
        return node_state
