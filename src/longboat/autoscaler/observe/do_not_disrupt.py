"""Do-not-disrupt rules: which pods and nodes must not be moved, and why. Pure.

A pod that may be moved is one that somebody makes again elsewhere without loss. Everything else stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from longboat.core.resources import parse_duration
from longboat.core.times import parse_time

Body = Mapping[str, Any]

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DAEMON_POD = "cluster-autoscaler.kubernetes.io/daemonset-pod"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
OLD_DO_NOT_EVICT = "karpenter.sh/do-not-evict"
MIRROR = "kubernetes.io/config.mirror"

MOST_KEPT_S = 100 * 365 * 86400.0
"""What is kept for longer is kept for good."""
REPLICATED = ("ReplicaSet", "ReplicationController", "StatefulSet", "Deployment")
"""Kinds of controllers that start a pod again elsewhere, and whose pods lose nothing by it."""


class DoNotDisrupt(NamedTuple):
    reason: str = ""
    until: float | None = None  # None: for good


FREE = DoNotDisrupt()


def controller_of(meta: Body) -> Body:
    return next((owner for owner in meta.get("ownerReferences") or () if owner.get("controller")), {})


def daemon_of(meta: Body) -> str | None:
    """namespace/name of the DaemonSet; empty for what is a part of its node; None for every other pod."""
    annotations = meta.get("annotations") or {}
    owner = controller_of(meta)
    if owner.get("kind") == "DaemonSet":
        return f"{meta.get('namespace') or 'default'}/{owner.get('name', '')}"
    if MIRROR in annotations or owner.get("kind") == "Node" or annotations.get(DAEMON_POD) == "true":
        return ""
    return None


def keep_of_pod(body: Body, *, in_gang: bool) -> DoNotDisrupt:
    """Why the pod must not be moved; an empty reason: it may."""
    meta = body["metadata"]
    annotations = meta.get("annotations") or {}
    owner = controller_of(meta)
    kind = owner.get("kind", "")
    safe = str(annotations.get(SAFE_TO_EVICT, "")).lower()
    if safe not in ("", "true"):
        return DoNotDisrupt(f"the annotation {SAFE_TO_EVICT} is {safe}")
    if in_gang or kind in ("Job", "JobSet"):
        whose = f" of {kind} {owner.get('name', '')}" if kind else ""
        return DoNotDisrupt(f"it is a training pod{whose}, which would lose its work")
    kept = _undisrupted(annotations, parse_time((body.get("status") or {}).get("startTime")), meta)
    if kept.reason and kept.until is None:
        return kept
    if safe != "true":
        if kind not in REPLICATED:
            controller = f"its controller is a {kind}" if kind else "it has no controller"
            return DoNotDisrupt(f"{controller}: nobody would start it again elsewhere")
        volume = _local_volume(body.get("spec") or {}, annotations)
        if volume:
            return DoNotDisrupt(f"it has local storage (volume {volume})")
    return kept


def _undisrupted(annotations: Body, since: float | None, meta: Body) -> DoNotDisrupt:
    for name in (DO_NOT_DISRUPT, OLD_DO_NOT_EVICT):
        text = str(annotations.get(name, "")).strip().lower()
        if text in ("", "false"):
            continue
        reason = f"the annotation {name} is {text[:40]}"
        begun = since if since is not None else parse_time(meta.get("creationTimestamp"))
        if text == "true":
            return DoNotDisrupt(reason)
        try:
            # A number without a unit is no duration in Kubernetes: nobody knows whether seconds or minutes were meant.
            lasts = parse_duration(text) if not text[-1].isdecimal() or text == "0" else None
            if lasts is not None and lasts > MOST_KEPT_S:
                return DoNotDisrupt(reason)  # no calendar has the day on which it ends
        except ValueError:
            lasts = None
        if lasts is None or begun is None:  # it was meant to protect something
            return DoNotDisrupt(f"{reason}, which is neither true nor a duration such as 30m: it counts for good")
        return DoNotDisrupt(reason, begun + lasts)
    return FREE


def _local_volume(spec: Body, annotations: Body) -> str | None:
    safe = {name.strip() for name in str(annotations.get(SAFE_VOLUMES, "")).split(",")}
    for volume in spec.get("volumes") or ():
        on_disk = "emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory"
        if (on_disk or "hostPath" in volume) and volume.get("name") not in safe:
            return str(volume.get("name", ""))
    return None


def keep_of_node(meta: Body) -> DoNotDisrupt:
    """Which annotation forbids the removal of a node."""
    annotations = meta.get("annotations") or {}
    if str(annotations.get(SCALE_DOWN_DISABLED, "")).lower() == "true":
        return DoNotDisrupt(f"the annotation {SCALE_DOWN_DISABLED} is true")
    return _undisrupted(annotations, None, meta)
