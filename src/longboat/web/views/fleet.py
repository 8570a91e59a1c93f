"""Nodes with every GPU as a cell, who waits for them, and services: what `top`, `explain` and `serve ls` know."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longboat.autoscaler.model.snapshot import POOL_LABEL
from longboat.core.errors import LongboatError
from longboat.core.runs import RunStatus
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.engines.kubernetes.gate.decide import ClusterUsage
from longboat.engines.kubernetes.gate.node_usage import observe_room
from longboat.engines.kubernetes.submit.facts.gpu_inventory import GPU_LABELS, is_gpu_resource
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod
from longboat.metrics.values import Activity, GpuUse
from longboat.sdk.records import plain
from longboat.sdk.services import services_of
from longboat.web.places import LOCAL, ShownPlace
from longboat.web.rows import row_of
from longboat.workbench.jobs import KIND_LABEL
from longboat.workbench.sessions import read_session

IDLE_PERCENT = 1.0
"""A GPU below it computes nothing; with less use than this it only holds memory."""
REOPENED = ("notebook", "shell")
"""Benches that their command opens again."""
MOST_EXPLAINED = 12
"""Waiting runs that are explained: each costs a cluster a few requests; of the others the list's reason is shown."""
EXPLAINED_S = 15.0
"""How long an explanation holds: the page asks every few seconds, and what lets a run in changes within minutes."""
MOST_CELLS = 256
"""GPUs of one node that are shown: eight, as seven slices each, are 56. What a pod asks for is anybody's word, and on a
node whose kubelet is gone nobody refuses it.
"""
LOST_TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
POOL_LABELS = (
    POOL_LABEL,
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)


def nodes(places: Sequence[ShownPlace]) -> dict[str, Any]:
    """Every place; one that does not answer says so, and the others are shown."""
    shown = []
    for place in places:
        try:
            shown.append({"name": place.name, "ok": True, "error": None, "nodes": nodes_of(place)})
        except LongboatError as error:
            shown.append({"name": place.name, "ok": False, "error": error.message, "nodes": []})
    return {"clusters": shown}


def nodes_of(place: ShownPlace) -> list[dict[str, Any]]:
    activity = place.engine.activity()
    engine = place.engine
    if isinstance(engine, KubernetesEngine):
        room = observe_room(engine.client, with_claims=False)
        if room is not None:
            return cluster_nodes(place.name, room, activity, engine.client.namespace)
    return plain_nodes(place.name, activity)


def plain_nodes(cluster: str, activity: Activity) -> list[dict[str, Any]]:
    """Nodes as far as GPUs tell of them: this machine, or where nodes may not be listed. Pure."""
    is_here = cluster == "local"
    by_node: dict[str, list[GpuUse]] = defaultdict(list)
    for gpu in activity.gpus:
        by_node["this machine" if is_here else gpu.node.partition(" ")[0]].append(gpu)
    if is_here:
        by_node.setdefault("this machine", [])
    return [
        _node(
            name, "ready", [cell(cluster, gpu) for gpu in sorted(gpus, key=lambda gpu: (len(gpu.number), gpu.number))]
        )
        for name, gpus in sorted(by_node.items())
    ]


def _node(name: str, state: str, cells: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    model = next((each["model"] for each in cells if each["model"]), None)
    facts = {"reason": None, "cpu": None, "memory": None, "pool": None, "model": model}
    return {"name": name, "state": state, **facts, **more, "gpus": cells}


def cell(cluster: str, gpu: GpuUse) -> dict[str, Any]:
    """One GPU. Pure."""
    is_idle = gpu.use is not None and gpu.use < IDLE_PERCENT
    return {
        "number": gpu.number or None,
        "state": "free" if not gpu.run else "idle" if is_idle else "used",
        "model": gpu.model or None,
        "cluster": cluster,
        "id": gpu.run or None,
        "owner": gpu.user or None,
        "ranks": list(gpu.ranks),
        "use": gpu.use,
        "memory": gpu.memory,
        "memory_total": gpu.memory_total,
        "power": gpu.power,
        "temperature": gpu.temperature,
        "throttle": gpu.throttle,
    }


def cluster_nodes(cluster: str, room: ClusterUsage, activity: Activity, namespace: str) -> list[dict[str, Any]]:
    """All nodes of a cluster: GPUs that launchers sample, GPUs that other pods hold, and free ones. Pure."""
    users = {run.name: run.user for run in activity.runs}
    sampled: dict[tuple[str, str], list[GpuUse]] = defaultdict(list)
    for gpu in activity.gpus:
        sampled[gpu.node.partition(" ")[0], gpu.run].append(gpu)
    by_node: dict[str, list[Pod]] = defaultdict(list)
    for pod in room.pods:
        if pod.node is not None and not pod.is_finished:
            by_node[pod.node].append(pod)
    return [_cluster_node(cluster, node, by_node[node.name], sampled, (namespace, users)) for node in room.nodes]


def _cluster_node(
    cluster: str,
    node: NodeShape,
    pods: Iterable[Pod],
    sampled: Mapping[tuple[str, str], list[GpuUse]],
    known: tuple[str, Mapping[str, str]],
) -> dict[str, Any]:
    namespace, users = known
    total = sum(count for name, count in node.allocatable if is_gpu_resource(name))
    model = next((node.labels[label] for label in GPU_LABELS if node.labels.get(label)), "")
    cells: list[dict[str, Any]] = []
    for pod in pods:
        held = sum(count for name, count in pod.shape.requests if is_gpu_resource(name))
        run = pod.run if pod.run and pod.namespace == namespace else None
        uses = sampled.get((node.name, run or ""), []) if run else []
        who = run or ("another namespace" if pod.namespace != namespace else pod.name)
        for number in range(min(held, MOST_CELLS - len(cells))):
            use = uses[number] if number < len(uses) else GpuUse(node=node.name, run=who, user=users.get(who, ""))
            cells.append({**cell(cluster, use), "id": run, "holder": None if run else who, "model": use.model or model})
    cells += [cell(cluster, GpuUse(node=node.name, model=model)) for _ in range(min(total, MOST_CELLS) - len(cells))]
    for number, each in enumerate(cells):
        each["number"] = each["number"] or str(number)
    return _node(node.name, node_state(node), cells, **_node_facts(node, model))


def _node_facts(node: NodeShape, model: str) -> dict[str, Any]:
    taints = ", ".join(f"{taint.key}={taint.value}" if taint.value else taint.key for taint in node.taints)
    pool = next((node.labels[label] for label in POOL_LABELS if node.labels.get(label)), None)
    amounts = {"cpu": node.has("cpu") / 1000, "memory": node.has("memory")}
    return {"reason": taints or None, "pool": pool, "model": model or None, **amounts}


def node_state(node: NodeShape) -> str:
    if any(taint.key in LOST_TAINTS for taint in node.taints):
        return "lost"
    return "cordoned" if node.is_unschedulable else "ready"


# who waits


class Queue:
    """Who waits and what would let them in. Explanations are kept for a moment, for all who look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, str, str], tuple[float, dict[str, Any]]] = {}

    def answer(self, listed: Sequence[tuple[ShownPlace, Sequence[RunStatus]]]) -> dict[str, Any]:
        """Waiting runs in the order in which they are looked at, with what would let each in."""
        items = []
        for place, runs in listed:
            for position, run in enumerate(in_turn(runs), 1):
                item = waiting_item(place.name, run, position)
                if position <= MOST_EXPLAINED:
                    item.update(self._explained(place, run))
                items.append(item)
        return {"waiting": items}

    def _explained(self, place: ShownPlace, run: RunStatus) -> dict[str, Any]:
        key, now = (place.name, place.user, run.uid, run.reason), time.monotonic()
        with self._lock:
            asked, known = self._known.get(key, (-EXPLAINED_S, {}))
        if now - asked < EXPLAINED_S:
            return known
        known = explained(place, run)
        with self._lock:
            fresh = {each: entry for each, entry in self._known.items() if now - entry[0] < EXPLAINED_S}
            self._known = {**fresh, key: (now, known)}
        return known


def in_turn(runs: Iterable[RunStatus]) -> list[RunStatus]:
    """A higher priority first, then who was submitted earlier. Pure."""
    waiting = [run for run in runs if run.phase == "pending"]
    return sorted(waiting, key=lambda run: (-run.priority, run.created, run.name))


def waiting_item(cluster: str, run: RunStatus, position: int) -> dict[str, Any]:
    row = row_of(run, cluster)
    kept = {
        name: row.get(name) for name in ("cluster", "id", "owner", "gpus", "nodes", "priority", "created", "reason")
    }
    return {**kept, "position": position, "facts": [], "lets_in": []}


def explained(place: ShownPlace, run: RunStatus) -> dict[str, Any]:
    try:
        explanation = place.engine.explain(run.name)
    except LongboatError:
        return {}
    return {
        "reason": run.reason or explanation.headline,
        "facts": list(explanation.facts),
        "lets_in": list(explanation.next_steps),
    }


# services and the workbench


def services(listed: Sequence[tuple[ShownPlace, Sequence[RunStatus]]], *, may_open: bool = False) -> dict[str, Any]:
    """What is served, and the benches that people work at. `may_open`: also the way into those of this machine."""
    shown: list[dict[str, Any]] = []
    problems: list[str] = []
    for place, _ in listed:
        notices: list[str] = []  # of services whose records cannot be read
        try:
            known = services_of(place.engine, notices.append).list()
            shown += [{"cluster": place.name, **plain(service)} for service in known]
        except LongboatError as error:
            notices.append(error.message)
        problems += [f"{place.title}: {text}" for text in notices]
    benches = [
        {**row_of(run, place.name), **way_in(place, run, may_open=may_open)}
        for place, runs in listed
        for run in runs
        if KIND_LABEL in run.labels and not run.is_final
    ]
    return {"services": shown, "benches": benches, "problems": problems}


def way_in(place: ShownPlace, run: RunStatus, *, may_open: bool) -> dict[str, str]:
    """The address of a notebook or board of this machine, with its token; of others the command that leads there."""
    kind = run.labels[KIND_LABEL]
    command = {"open": place.command(kind)} if kind in REOPENED else {}
    if not may_open or place.kind != LOCAL or run.phase != "running":
        return command
    try:
        session = read_session(place.engine, run)
    except LongboatError:  # of another user
        return {}
    return command if session is None or not session.port else {"url": session.url(session.port)}
