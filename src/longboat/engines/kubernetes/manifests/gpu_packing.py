"""GPU packing: pods with GPUs prefer the node whose GPUs are most in use already. Pure: what a pod carries for that.

kube-scheduler by itself spreads pods, so that hardly a machine runs empty: a gang that needs whole ones waits, and none
can be given back. A preference for neighbours, each weighing as much as it has GPUs, makes it fill one machine before
the next. It is no more than a preference: it holds nobody up, and it needs no rights and no scheduler of its own.
"""

from __future__ import annotations

from typing import Any

from longboat.engines.kubernetes import names

LABEL = f"{names.DOMAIN}/gpus"
SIZES = (8, 4, 2, 1)
"""Classes of GPUs of one pod; what lies between counts as the next larger."""
MOST = 100
"""The largest weight there is."""

Object = dict[str, Any]


def size_label(gpus: int) -> dict[str, str]:
    """The label by which pods with GPUs prefer each other's nodes."""
    if not gpus:
        return {}
    return {LABEL: str(next((size for size in reversed(SIZES) if gpus <= size), SIZES[0]))}


def preference(gpus: int) -> Object:
    """The `affinity` of a pod with so many GPUs."""
    if not gpus:
        return {}
    terms = [
        {
            "weight": MOST * size // SIZES[0],
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {LABEL: str(size)}},
                "namespaceSelector": {},
            },
        }
        for size in SIZES
    ]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
