"""Node affinity of volumes: from PersistentVolumes and claims to node selectors. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from longboat.fitting.model.nodes import ZONE
from longboat.fitting.model.selectors import Requirement, Terms, terms_of_nodes

Body = Mapping[str, Any]
_REGION = "topology.kubernetes.io/region"
_LABELS = {
    ZONE: ZONE,
    _REGION: _REGION,
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
}
"""Labels of a volume that bind it, and the label of nodes that each is about."""


def claims_of(claims: Iterable[Body], volumes: Iterable[Body]) -> dict[tuple[str, str], tuple[Terms, ...]]:
    """For every bound claim: the node selectors of its volume, its zone labels among them."""
    reached = {volume["metadata"]["name"]: _selectors(volume) for volume in volumes}
    terms = {}
    for claim in claims:
        bound = (claim.get("spec") or {}).get("volumeName")
        if bound and reached.get(bound):
            meta = claim["metadata"]
            terms[(meta.get("namespace") or "default", meta["name"])] = reached[bound]
    return terms


def _selectors(volume: Body) -> tuple[Terms, ...]:
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    terms = terms_of_nodes(required)
    selectors = [_with_zones(terms)] if terms is not None else []
    labels = volume["metadata"].get("labels") or {}
    for key, of_nodes in _LABELS.items():
        if key in labels:
            # Several zones in one label are joined by two underscores; a node that has no zone at all is taken.
            zones = tuple(sorted(labels[key].split("__")))
            selectors.append((((of_nodes, "In", zones),), ((of_nodes, "DoesNotExist", ()),)))
    return tuple(selectors)


def _with_zones(terms: Terms) -> Terms:
    """Each term also in the words of the label that every node with a zone has.

    Drivers name the zone by a label of their own, which they put on nodes that are there: a new machine lacks it.
    """
    renamed = tuple(tuple(_in_zones(requirement) for requirement in term) for term in terms)
    return (*terms, *(term for term in renamed if term not in terms))


def _in_zones(requirement: Requirement) -> Requirement:
    key, operator, values = requirement
    if key == ZONE or not key.endswith("/zone") or not key.startswith(("topology.", "failure-domain.")):
        return requirement
    # Where there are no zones, a driver may write an empty one.
    return (ZONE, "DoesNotExist", ()) if operator == "In" and values == ("",) else (ZONE, operator, values)
