"""Pod failures that are not the program's own: out of memory, evicted, preempted, node lost. Pure.

Pods and events as the API server prints them in, plain words out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longboat.core.resources import show_quantity
from longboat.core.runs import RankReport
from longboat.engines.kubernetes.explain.containers import StartTrouble, trouble_of
from longboat.engines.kubernetes.explain.pending import node_name
from longboat.engines.kubernetes.observe.node_health import PRESSURES
from longboat.fitting.model.quantities import MEMORY, amount

Object = Mapping[str, Any]

_LOW = re.compile(r"The node was low on resource: ([\w./-]*[\w-])")
_CONDITION = re.compile(r"The node had condition: \[?(\w+)\]?")
_USING = re.compile(r"Container (\S+) was using (\S+?), (?:request is (\S+?)|which exceeds its request of (\S+?))[,.]")
_EMPTY_DIR = re.compile(r'Usage of EmptyDir volume "([^"]+)" exceeds the limit "([^"]+)"')
_DISK_LIMIT = re.compile(r"ephemeral local storage usage exceeds the total limit of containers (\S+?)\.")
_PREEMPTOR = re.compile(r"Preempted by (?:a )?pod (\S+) on node (\S+)")
_FINAL = ("NodeLost", "NodeShutdown", "Terminated")


def pod_failures(
    pods: Iterable[Object],
    events: Sequence[Object],
    *,
    nodes: Mapping[str, Object] | None = None,
    owners: Mapping[str, str] | None = None,
    report: RankReport | None = None,
) -> list[StartTrouble]:
    """Every pod's fate, told once. `nodes`: those that are there; `owners`: uid -> pod, to name who preempted."""
    troubles: dict[str, StartTrouble] = {}
    for pod in pods:
        mine = events_about(pod, events)
        for trouble in _of_pod(pod, mine, nodes, owners or {}, report):
            troubles.setdefault(trouble.what, trouble)
    return list(troubles.values())


def events_about(pod: Object, events: Sequence[Object]) -> list[Object]:
    uid = (pod.get("metadata") or {}).get("uid")
    return [event for event in events if (event.get("involvedObject") or {}).get("uid") == uid]


def _of_pod(
    pod: Object,
    events: Sequence[Object],
    nodes: Mapping[str, Object] | None,
    owners: Mapping[str, str],
    report: RankReport | None,
) -> list[StartTrouble]:
    name = node_name(pod)
    troubles = [
        _out_of_memory(pod, report),
        _evicted(pod, events),
        _disrupted(pod, events, nodes, owners),
        trouble_of(pod, events),
        _lost(pod, nodes),
    ]
    return [
        StartTrouble(what=f"{name}: {trouble.what}", hint=trouble.hint, cause=trouble.cause, is_final=trouble.is_final)
        for trouble in troubles
        if trouble
    ]


def _containers(pod: Object) -> Iterable[Object]:
    return (pod.get("status") or {}).get("containerStatuses") or ()


def _out_of_memory(pod: Object, report: RankReport | None) -> StartTrouble | None:
    """OOMKilled: what the limit was, how much had been used, and how much of it may be /dev/shm."""
    killed = any(
        ((container.get("state") or {}).get("terminated") or {}).get("reason") == "OOMKilled"
        or ((container.get("lastState") or {}).get("terminated") or {}).get("reason") == "OOMKilled"
        for container in _containers(pod)
    )
    mine = report is not None and report.cause == "oom" and report.node == node_name(pod)
    if not killed and not mine:
        return None
    limit = memory_limit(pod)
    parts = [
        f"its memory limit is {show_quantity(limit)}" if limit else "it has no memory limit: the node itself ran out"
    ]
    if mine and report is not None and report.memory_peak:
        parts.append(f"rank {report.rank} used {show_quantity(report.memory_peak)} when it was last measured")
    shm = shm_size(pod)
    if shm:
        parts.append(f"/dev/shm counts in it (up to {show_quantity(shm)})")
    text = ("OOMKilled" if killed else "out of memory") + ": " + ", ".join(parts)
    return StartTrouble(
        what=text, hint="data loader workers and what lies in /dev/shm count in `memory` too", cause="oom"
    )


def memory_limit(pod: Object) -> int | None:
    for container in (pod.get("spec") or {}).get("containers") or ():
        text = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        if text is not None:
            return amount(MEMORY, text)
    return None


def shm_size(pod: Object) -> int | None:
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        folder = volume.get("emptyDir") or {}
        if volume.get("name") == "shm" and folder.get("sizeLimit"):
            return amount(MEMORY, folder["sizeLimit"])
    return None


def _evicted(pod: Object, events: Sequence[Object]) -> StartTrouble | None:
    """The kubelet took it away: the node was short of something, or the pod used more than it may."""
    status = pod.get("status") or {}
    texts = [str(status.get("message") or "")] if status.get("reason") == "Evicted" else []
    texts += [str(event.get("message") or "") for event in events if event.get("reason") == "Evicted"]
    for text in texts:
        eviction = eviction_words(text)
        if eviction:
            host = (pod.get("spec") or {}).get("nodeName")
            return StartTrouble(what=f"evicted from node {host}: {eviction[0]}", hint=eviction[1], cause="preemption")
    return None


def eviction_words(text: str) -> tuple[str, str] | None:
    folder = _EMPTY_DIR.search(text)
    if folder:
        field = "shm" if folder[1] == "shm" else "disk"
        return f"it filled volume {folder[1]} beyond its limit of {folder[2]}", f"raise `{field}`"
    disk = _DISK_LIMIT.search(text)
    if disk:
        return f"it wrote more than {disk[1]} to local disk", "raise `disk`, or write to a volume"
    low = _LOW.search(text) or _CONDITION.search(text)
    if not low:
        return (" ".join(text.split())[:300], "run it again") if text.strip() else None
    short = PRESSURES.get(low[1], low[1])
    using = _USING.search(text)
    usage = f"; it was using {using[2]}, and had asked for {using[3] or using[4]}" if using else ""
    field = "disk" if "storage" in short or short in ("disk", "nodefs", "imagefs") else "memory"
    return (
        f"the node was short of {short}{usage}",
        f"state `{field}` as large as it needs, so that it is the last to go",
    )


def _disrupted(
    pod: Object, events: Sequence[Object], nodes: Mapping[str, Object] | None, owners: Mapping[str, str]
) -> StartTrouble | None:
    condition = _condition(pod, "DisruptionTarget")
    reason = str(condition.get("reason") or "")
    preempted = next((event for event in reversed(events) if event.get("reason") == "Preempted"), None)
    host = str((pod.get("spec") or {}).get("nodeName") or "")
    if reason == "PreemptionByScheduler" or preempted is not None:
        return _preempted(preempted, owners)
    if reason == "EvictionByEvictionAPI":
        drained = _is_cordoned((nodes or {}).get(host))
        why = f"node {host} is being drained" if drained else "somebody asked for it (a drain, or an autoscaler)"
        return StartTrouble(what=f"evicted through the API: {why}", hint=_RETRIES, cause="preemption")
    if reason == "DeletionByTaintManager":
        message = str(condition.get("message") or "").strip()
        text = f"taken off node {host}, which got a taint it does not tolerate (not ready, or unreachable): {message}"
        return StartTrouble(what=text.rstrip(": "), hint=_RETRIES, cause="lost")
    if reason == "TerminationByKubelet":
        text = f"ended by the kubelet of {host}: {condition.get('message') or 'the node shuts down'}"
        return StartTrouble(what=text, hint=_RETRIES, cause="preemption")
    if reason == "DeletionByPodGC":
        return StartTrouble(what=f"node {host} is gone, and the pod with it", hint=_RETRIES, cause="lost")
    return None


_RETRIES = "set `retries` to have the run taken up again from its newest checkpoint"


def _preempted(event: Object | None, owners: Mapping[str, str]) -> StartTrouble:
    match = _PREEMPTOR.search(str((event or {}).get("message") or ""))
    if not match:
        preemptors = "pods of higher priority"
    else:
        preemptors = f"pod {owners.get(match[1], match[1])} of higher priority on node {match[2]}"
    return StartTrouble(what=f"preempted by {preemptors}", hint=_RETRIES, cause="preemption")


def _condition(pod: Object, kind: str) -> Object:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next(
        (condition for condition in conditions if condition.get("type") == kind and condition.get("status") == "True"),
        {},
    )


def _is_cordoned(node: Object | None) -> bool:
    return bool(((node or {}).get("spec") or {}).get("unschedulable"))


def _ready(node: Object) -> Object:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == "Ready"), {})


def _lost(pod: Object, nodes: Mapping[str, Object] | None) -> StartTrouble | None:
    """The node does not answer, or is gone."""
    host = (pod.get("spec") or {}).get("nodeName")
    status = pod.get("status") or {}
    if not host or nodes is None:
        return None
    if host not in nodes:
        return StartTrouble(what=f"node {host} is gone", hint=_RETRIES, cause="lost")
    ready = _ready(nodes[host])
    if ready.get("status") == "True" and status.get("reason") not in _FINAL:
        return None
    if ready.get("status") != "True":
        said = str(ready.get("message") or ready.get("reason") or "").strip()
        return StartTrouble(
            what=f"node {host} is not ready: {said}", hint=f"kubectl describe node {host}", cause="lost"
        )
    return StartTrouble(
        what=f"node {host} went away while the pod ran ({status.get('reason')})", hint=_RETRIES, cause="lost"
    )
