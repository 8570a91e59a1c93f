"""Spare nodes of a gang: who takes whose place, and which pod plays which node then. Pure.

A pod is called after its index for as long as it lives, a node after its place in the layout. They differ once a spare
has taken the place of a lost member: the two have exchanged their names (`places`: pod -> node, where they differ), so
that whoever comes in the lost pod's stead is the next spare.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping

MOST_PLACES = 128
"""Pods that play another node than their own: a new launcher is told all of them in one message of few kilobytes."""


def role_of(name: str) -> str:
    return name.rpartition("-")[0]


def chosen(lost: Iterable[str], ready: Iterable[str]) -> dict[str, str]:
    """Lost node -> the spare that takes its place: one of its own role, whose pods are alike. First come, first
    served."""
    left, taken = list(ready), {}
    for node in lost:
        spare = next((name for name in left if role_of(name) == role_of(node)), None)
        if spare is not None:
            left.remove(spare)
            taken[node] = spare
    return taken


def pod_of(node: str, places: Mapping[str, str]) -> str:
    """The pod that plays a node."""
    return next((pod for pod, played in places.items() if played == node), node)


def exchanged(places: Mapping[str, str], taken: Mapping[str, str]) -> dict[str, str]:
    """Which pod plays which node after these spares have taken these places."""
    after = dict(places)
    for node, spare in taken.items():
        lost, coming = pod_of(node, after), pod_of(spare, after)
        after[coming], after[lost] = node, spare
    return {pod: node for pod, node in after.items() if pod != node}
