"""Notices of termination: taints by which a cloud or an autoscaler says that a node is about to go, and a copy of the
nodes that bear one, as a watch tells of them. What a run does about it is decided in `gate.departure`.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

from longboat.core.jobs import Value
from longboat.fitting.model.nodes import HOSTNAME, LEAVING, REFUSING, taints_of

LEAST_S = 30.0
"""Between notice and end of spot machines, because Google and Azure promise no more."""
AWS_LEAST_S = 120.0
"""The same for AWS, because it tells two minutes before."""
NOTICES: dict[str, float | None] = {
    "aws-node-termination-handler/rebalance-recommendation": None,  # the machine may as well stay
    "aws-node-termination-handler/": AWS_LEAST_S,
    "karpenter.sh/disrupt": AWS_LEAST_S,
    "cloud.google.com/impending-node-termination": LEAST_S,
    "remediator.kubernetes.azure.com/unschedulable": LEAST_S,
    "remediator.aks.microsoft.com/unschedulable": LEAST_S,
    "ToBeDeletedByClusterAutoscaler": LEAST_S,
    LEAVING: LEAST_S,
}
"""Beginnings of taints, and the least seconds between the notice and the end; None: no end is told. The first that
fits counts."""


LABEL_MAX = 63
"""Characters of a label's value. A node's name may have 253, and an API server refuses the whole selector for it."""


class TerminationNotice(Value, frozen=True):
    taint: str
    least_s: float | None  # until the machine goes; None: it may stay


def notice_of(node: Mapping[str, Any]) -> TerminationNotice | None:
    """Of a node as the API prints it. A taint that only prefers other nodes is no notice."""
    for taint in taints_of((node.get("spec") or {}).get("taints")):
        least = next((least for beginning, least in NOTICES.items() if taint.key.startswith(beginning)), -1.0)
        if least != -1.0 and taint.effect in REFUSING:
            return TerminationNotice(taint=taint.key, least_s=least)
    return None


def selector_of(names: Collection[str]) -> str:
    """A label selector for these nodes: their names are those of their hosts, with next to all kubelets. Empty: none
    of them can be named in one."""
    named = [name for name in names if len(name) <= LABEL_MAX]
    return f"{HOSTNAME} in ({','.join(named)})" if named else ""


class LeavingNodes:
    """Nodes that bear a notice, by name. Told by a watch of nodes in its thread, read by others."""

    def __init__(self) -> None:
        self._notices: dict[str, TerminationNotice] = {}
        self._lock = threading.Lock()

    def note(self, node: Mapping[str, Any], *, is_gone: bool = False) -> bool:
        """Whether this is news: a notice that was not there, or one that was taken back."""
        name = str(node["metadata"]["name"])
        notice = None if is_gone else notice_of(node)
        with self._lock:
            before = self._notices.pop(name, None)
            if notice is not None:
                self._notices[name] = notice
        return notice != before

    def of(self, names: Collection[str | None]) -> dict[str, TerminationNotice]:
        """The notices of these nodes."""
        with self._lock:
            return {name: notice for name, notice in self._notices.items() if name in names}
