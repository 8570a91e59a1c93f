"""Relevant changes: which updates of an object can change a plan. The others wake nobody. Pure.

Heartbeats of nodes, progress of containers, counters of Jobs and the loop's own marks on nodes are most of what a
cluster tells. They are read with the next turn, which comes every few seconds anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longboat.autoscaler.model.snapshot import IDLE, UNDERUSED
from longboat.kubeapi.kinds import JOB, NODE, POD, Kind

Body = Mapping[str, Any]

OWN_MARKS = (IDLE, UNDERUSED)
"""Written by the loop about what it has just decided on."""


class RelevantChanges:
    """Remembers a mark of every object, to tell an update that matters from one that does not."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}

    def is_relevant(self, kind: Kind, body: Body, *, is_deleted: bool) -> bool:
        look = _LOOKS.get(kind.kind) if kind.api_version == _VERSIONS.get(kind.kind) else None
        if look is None:
            return True
        uid = str(body["metadata"].get("uid") or body["metadata"]["name"])
        if is_deleted:
            self._marks.pop(uid, None)
            return True
        mark = hash(repr((_common(body), look(body))))
        is_new = self._marks.get(uid) != mark
        self._marks[uid] = mark
        return is_new


def _common(body: Body) -> object:
    meta = body["metadata"]
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in OWN_MARKS}
    return (bool(meta.get("deletionTimestamp")), meta.get("labels"), annotations)


def _conditions(body: Body) -> dict[str, tuple[object, object]]:
    """Conditions with status and reason, without their times."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return {str(condition.get("type")): (condition.get("status"), condition.get("reason")) for condition in conditions}


def _node(body: Body) -> object:
    status = body.get("status") or {}
    return (body.get("spec"), status.get("allocatable"), status.get("capacity"), _conditions(body))


def _pod(body: Body) -> object:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    is_finished = status.get("phase") in ("Succeeded", "Failed")
    placed = _conditions(body).get("PodScheduled")
    wants = (spec.get("schedulingGates"), status.get("resourceClaimStatuses"))
    return (spec.get("nodeName"), is_finished, placed, status.get("nominatedNodeName"), wants)


def _job(body: Body) -> object:
    spec = body.get("spec") or {}
    return (spec.get("suspend"), spec.get("parallelism"), spec.get("completions"), _conditions(body))


_LOOKS = {"Node": _node, "Pod": _pod, "Job": _job}
_VERSIONS = {kind.kind: kind.api_version for kind in (NODE, POD, JOB)}
"""Volcano has a Job, too."""
