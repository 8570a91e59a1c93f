"""Scheduling predicates with reasons: why a pod does not fit on a node, for users. Pure.

The same rules as the scheduler's filters; `eligibility` and `NodeState.fits` are the fast forms without words.
"""

from __future__ import annotations

from longboat.fitting.model.nodes import UNSCHEDULABLE, NodeShape, untolerated
from longboat.fitting.model.pods import NodeConstraints, Pod
from longboat.fitting.model.quantities import show, show_number
from longboat.fitting.model.requests import clashes
from longboat.fitting.model.selectors import (
    Terms,
    holds,
    matches_node,
    show_requirement,
    show_term,
    value_on_node,
)
from longboat.fitting.node_state import NodeState


def placing_refusals(placing: NodeConstraints, node: NodeShape) -> list[str]:
    """What about the node itself is against it."""
    refusals = []
    for requirement in placing.selector:
        value = value_on_node(requirement[0], node.labels, node.name)
        if not holds(requirement, value):
            has = f"has {requirement[0]}={value}" if value is not None else f"has no label {requirement[0]}"
            refusals.append(f"nodeSelector wants {show_requirement(requirement)}, the node {has}")
    if placing.affinity is not None and not _any_matches(placing.affinity, node):
        refusals.append(f"node affinity wants {_show_terms(placing.affinity)}")
    if node.is_unschedulable and untolerated((UNSCHEDULABLE,), placing.tolerations):
        refusals.append("the node is cordoned")
    taint = untolerated(node.taints, placing.tolerations)
    # A cordon comes with a taint of its own.
    if taint is not None and not (taint.key == UNSCHEDULABLE.key and node.is_unschedulable):
        refusals.append(f"taint {taint} is not tolerated")
    for claim, terms in placing.volumes:
        if not _any_matches(terms, node):
            refusals.append(f"the volume of claim {claim} can only be reached where {_show_terms(terms)}")
    return refusals


def amount_refusals(pod: Pod, state: NodeState) -> list[str]:
    """What there is too little of now."""
    refusals = []
    if state.room <= 0:
        refusals.append(f"the node has no room for another pod ({len(state.pods)} are there)")
    for resource, wanted in pod.shape.requests:
        free = state.free.get(resource, 0)
        if wanted > 0 and wanted > free:
            has = f"{show_number(resource, max(0, free))} free" if state.shape.has(resource) else "the node has none"
            refusals.append(f"needs {show(resource, wanted)}, {has}")
    port = clashes(pod.shape.ports, state.ports)
    if port is not None:
        refusals.append(f"port {port[2]}/{port[0]} of the node is taken")
    return refusals


def _any_matches(terms: Terms, node: NodeShape) -> bool:
    return any(matches_node(term, node.labels, node.name) for term in terms)


def _show_terms(terms: Terms) -> str:
    return ", or ".join(show_term(term) for term in terms) or "nothing at all"
