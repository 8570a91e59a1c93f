"""Health of the cluster's nodes that a run's pods are on: what speaks against one, since when, and what follows. Pure.

Conditions and taints are shown in the words of whoever set them: node-problem-detector, a GPU operator or a cloud tell
of an Xid, a link that is down or a coming maintenance there. Devices that their plugin has given up are counted. When a
node counts as lost is decided in `node_loss`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from longboat.core.runs import NodeTrouble
from longboat.core.times import parse_time
from longboat.core.words import listing
from longboat.engines.kubernetes.observe.node_loss import limit_of
from longboat.engines.kubernetes.observe.node_notices import NOTICES
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot
from longboat.engines.kubernetes.records import ranks_of
from longboat.fitting.model.nodes import taints_of, tolerations_of, untolerated
from longboat.fitting.model.quantities import amounts

Object = Mapping[str, Any]

MOST_WORDS = 200
"""Characters of what others wrote about a node."""
PRESSURES = {"MemoryPressure": "memory", "DiskPressure": "disk", "PIDPressure": "process ids"}
GOOD_ENDINGS = ("Ready", "Healthy", "OK", "Ok", "Voter", "Available", "Enabled")
"""Conditions so called say that all is well when they are True; the others, that it is not."""
DRAINS = (*NOTICES, "node.cloudprovider.kubernetes.io/shutdown", "node.kubernetes.io/out-of-service")
"""Beginnings of taints that say that the node is about to go, or has gone."""
TOLD_OTHERWISE = "node.kubernetes.io/"
"""Taints that Kubernetes makes of conditions and of a cordon."""
CORDON = "node.kubernetes.io/unschedulable"


class _Sign(NamedTuple):
    what: str
    since: float | None
    follows: str


def node_troubles(snapshot: RunSnapshot, nodes: Mapping[str, Object | None]) -> tuple[NodeTrouble, ...]:
    """Problems of the nodes of the current attempt; `nodes`: as observed, None for one that is gone."""
    troubles: list[NodeTrouble] = []
    for name, body in nodes.items():
        pods = [pod for pod in snapshot.pods_of(snapshot.state.attempt) if pod.host == name and pod.end is None]
        for sign in _signs(body, pods, snapshot) if pods else ():
            troubles.append(
                NodeTrouble(
                    node=name,
                    members=tuple(pod.node for pod in pods),
                    ranks=tuple(rank for pod in pods for rank in ranks_of(snapshot.record, pod.role, pod.index)),
                    what=sign.what,
                    since=sign.since,
                    follows=sign.follows,
                )
            )
    return tuple(troubles)


def _signs(body: Object | None, pods: Sequence[PodView], snapshot: RunSnapshot) -> Iterator[_Sign]:
    state, retries = snapshot.state, snapshot.record.job.retries.last_attempt
    then = "then the next attempt" if state.attempt < retries else "then the run fails: it has no retries left"
    if body is None:
        yield _Sign("is gone from the cluster", None, then)
        return
    deleted = parse_time((body.get("metadata") or {}).get("deletionTimestamp"))
    if deleted is not None:
        yield _Sign("is being deleted", deleted, f"its pods end with it, {then}")
    for condition in (body.get("status") or {}).get("conditions") or ():
        sign = _condition(condition, limit_of(snapshot), then)
        if sign is not None:
            yield sign
    yield from _devices(body, pods, then)
    yield from _closed(body, pods, then)


def _condition(condition: Object, lost_s: float, then: str) -> _Sign | None:
    kind, value = str(condition.get("type") or ""), condition.get("status")
    is_good = kind.endswith(GOOD_ENDINGS)
    if kind != "Ready" and value != ("False" if is_good else "True"):
        return None
    since = parse_time(condition.get("lastTransitionTime"))
    said = " ".join(str(condition.get("message") or condition.get("reason") or "").split())[:MOST_WORDS]
    if kind == "Ready":
        if value == "True":
            return None
        text = "is silent" if value == "Unknown" else f"is not ready: {said}"
        return _Sign(text, since, f"given up after {lost_s:g} s, {then}")
    if kind in PRESSURES:
        return _Sign(f"is short of {PRESSURES[kind]}", since, f"its kubelet may evict pods of the run, {then}")
    return _Sign(f"reports {kind}{': ' if said else ''}{said}", since, f"if a rank fails of it, {then}")


def _devices(body: Object, pods: Sequence[PodView], then: str) -> Iterator[_Sign]:
    """A kubelet counts every device as its capacity, and as allocatable those that their plugin calls healthy."""
    status = body.get("status") or {}
    healthy = dict(amounts(status.get("allocatable")))
    ours = [device for pod in pods for device in pod.unhealthy_devices or ()]
    is_elsewhere = not ours and all(pod.unhealthy_devices is not None for pod in pods)
    follows = "not those of the run: it goes on" if is_elsewhere else f"if a rank fails of it, {then}"
    for resource, count in amounts(status.get("capacity")):
        lost = count - healthy.get(resource, 0)
        if "/" in resource and lost > 0:  # a domain before the name: handed out by a device plugin
            whose = f", of the run: {listing(ours, 4)}" if ours else ""
            yield _Sign(f"reports {lost} of {count} {resource} unhealthy{whose}", None, follows)


def _closed(body: Object, pods: Sequence[PodView], then: str) -> Iterator[_Sign]:
    """A cordon, and taints that came after the pods: those that they do not tolerate."""
    spec = body.get("spec") or {}
    bodies: Iterable[Object] = spec.get("taints") or ()
    since = {str(taint.get("key")): parse_time(taint.get("timeAdded")) for taint in bodies}
    tolerations = tolerations_of([toleration for pod in pods for toleration in pod.tolerations])
    goes_on = "the run goes on; its next attempt goes elsewhere"
    if spec.get("unschedulable"):
        drain = "a drain waits for its end (PodDisruptionBudget)"
        yield _Sign("is cordoned", since.get(CORDON), f"{goes_on}; {drain}")
    for taint in taints_of(bodies):
        is_drain = taint.key.startswith(DRAINS)
        if untolerated((taint,), tolerations) is None or (taint.key.startswith(TOLD_OTHERWISE) and not is_drain):
            continue
        if is_drain:
            yield _Sign(f"is about to go (taint {taint.key})", since.get(taint.key), f"its pods end with it, {then}")
        else:
            is_evicting = taint.effect == "NoExecute"
            follows = f"pods of the run are evicted, {then}" if is_evicting else goes_on
            yield _Sign(f"has the taint {taint}", since.get(taint.key), follows)
