"""Where claims bind a pod to: from PersistentVolumes and claims to node selectors. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from longboat.fitting.nodes import ZONE
from longboat.fitting.selectors import Terms, terms_of_nodes

Body = Mapping[str, Any]
_ZONE_LABELS = (ZONE, "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone")


def claims_of(claims: Iterable[Body], volumes: Iterable[Body]) -> dict[tuple[str, str], tuple[Terms, ...]]:
    """For every bound claim: the node selectors of its volume, its zone labels among them."""
    reached = {volume["metadata"]["name"]: _selectors(volume) for volume in volumes}
    found = {}
    for claim in claims:
        bound = (claim.get("spec") or {}).get("volumeName")
        if bound and reached.get(bound):
            meta = claim["metadata"]
            found[(meta.get("namespace") or "default", meta["name"])] = reached[bound]
    return found


def _selectors(volume: Body) -> tuple[Terms, ...]:
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    terms = terms_of_nodes(required)
    found = [terms] if terms is not None else []
    labels = volume["metadata"].get("labels") or {}
    for key in _ZONE_LABELS:
        if key in labels:
            # Several zones in one label are joined by two underscores; a node that has no zone at all is taken.
            zones = tuple(sorted(labels[key].split("__")))
            found.append((((key, "In", zones),), ((key, "DoesNotExist", ()),)))
    return tuple(found)
