"""Relocation: whether all pods of a node fit on other nodes that stay anyway. Pure; the fleet is left as it was."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from longboat.autoscaler.scale_up.placement import size_of
from longboat.autoscaler.scale_up.upcoming_demand import has_work
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod
from longboat.fitting.model.quantities import CPU, is_scarce, scarcity
from longboat.fitting.node_state import NodeState
from longboat.fitting.pod_affinity import AffinityView

Move = tuple[Pod, str]


def moves_off(
    node: str, pods: Iterable[Pod], fleet: Fleet, closed: Container[str] = (), *, rather_not: Container[str] = ()
) -> list[Move] | str:
    """A node for every pod, or which pod would find none. Empty and closed nodes are no places to move to.

    `rather_not`: nodes that are taken only where no other has room, because they may be emptied next.
    """
    mine = sorted(pods, key=lambda pod: (size_of(pod.shape), pod.namespace, pod.name))
    home = fleet.states.get(node)
    held = [pod for pod in mine if fleet.where(pod) is not None]
    for pod in held:
        fleet.remove(pod)
    moves: list[Move] = []
    stuck = ""
    for pod in mine:
        state = _place(pod, fleet, {node}, closed, rather_not)
        if state is None:
            stuck = f"{pod.namespace}/{pod.name}"
            break
        fleet.add(pod, state)
        moves.append((pod, state.name))
    for pod, _ in moves:
        fleet.remove(pod)
    if home is not None:
        for pod in held:
            fleet.add(pod, home)
    return stuck or moves


def move(moves: Sequence[Move], fleet: Fleet) -> None:
    """The places are taken: the next node cannot count on them."""
    for pod, name in moves:
        if fleet.where(pod) is not None:
            fleet.remove(pod)
        fleet.add(pod, fleet.states[name])


def _place(
    pod: Pod, fleet: Fleet, home: Container[str], closed: Container[str], rather_not: Container[str]
) -> NodeState | None:
    shape = pod.shape
    primary = min((name for name, _ in shape.requests if is_scarce(name)), key=scarcity, default="")
    affinity = AffinityView(pod, fleet)
    second: NodeState | None = None
    for state in fleet.best_fit(shape, primary).walk(shape.asks(primary), shape.asks(CPU)):
        if state.name in home or state.name in closed or not has_work(state):
            continue
        if (second is not None and state.name in rather_not) or not state.fits(shape) or not affinity.allows(state):
            continue
        if state.name not in rather_not:
            return state
        second = state
    return second
