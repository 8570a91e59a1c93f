"""Exhaustive search for places of a small gang, up to a bound. Pure; nodes in the same state are tried once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod
from longboat.fitting.node_state import NodeState
from longboat.fitting.pod_affinity import AffinityView

MAX_PODS = 16  # beyond this a search tree is never finished within its steps
MAX_STEPS = 2_000  # bounds one decision; first fit has placed nearly all gangs before


def search(pods: Sequence[Pod], fleet: Fleet) -> list[tuple[Pod, NodeState]] | None:
    """Places for all of them, left in the fleet, or None and the fleet is as before."""
    if len(pods) > MAX_PODS or any(pod.shape.near or pod.shape.spread for pod in pods):
        return None
    choices = [[fleet.states[name] for name in fleet.eligible(pod.shape.placing)] for pod in pods]
    if sum(len(choice) for choice in choices) > MAX_STEPS * 10:
        return None
    return _Search(pods, choices, fleet).run()


class _Search:
    def __init__(self, pods: Sequence[Pod], choices: list[list[NodeState]], fleet: Fleet) -> None:
        self.pods = pods
        self.choices = choices
        self.fleet = fleet
        self.steps = 0
        self.pairs: list[tuple[Pod, NodeState]] = []
        self.classes = {state.name: names for names, state in self._node_classes()}

    def _node_classes(self) -> list[tuple[tuple[bool, ...], NodeState]]:
        """Which of the pods may be there at all: a part of what makes two nodes alike."""
        able = [{state.name for state in choice} for choice in self.choices]
        return [(tuple(name in names for names in able), state) for name, state in self.fleet.states.items()]

    def run(self) -> list[tuple[Pod, NodeState]] | None:
        return self.pairs if self._from(0) else None

    def _from(self, number: int) -> bool:
        if number == len(self.pods):
            return True
        pod = self.pods[number]
        affinity = AffinityView(pod, self.fleet)
        tried: set[Any] = set()
        for state in self.choices[number]:
            mark = self._mark(state)
            if mark in tried or not state.fits(pod.shape) or not affinity.allows(state):
                continue
            tried.add(mark)
            self.steps += 1
            if self.steps > MAX_STEPS:
                return False
            self.fleet.add(pod, state)
            self.pairs.append((pod, state))
            if self._from(number + 1):
                return True
            self.pairs.pop()
            self.fleet.remove(pod)
        return False

    def _mark(self, state: NodeState) -> Any:
        if not self.fleet.topology.is_quiet:
            return state.name
        return (self.classes[state.name], state.room, *sorted(state.free.items()), *sorted(state.ports))
