"""Kubernetes objects to a Snapshot: what `kubectl get nodes,pods,jobs,poddisruptionbudgets -o json` prints.

Honoured where the List holds them: DaemonSets, PersistentVolumes and claims, JobSets, PodGroups, Kueue's Workloads,
PriorityClasses, Namespaces. Other kinds are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from longboat.autoscaler.model.estimated_pools import corrected
from longboat.autoscaler.model.snapshot import (
    CORDONED,
    IDLE,
    UNDERUSED,
    ClusterSnapshot,
    Daemon,
    ElasticGang,
    NodeMemory,
    Pool,
    SeenNode,
    SeenPod,
)
from longboat.autoscaler.observe.device_claims import DeviceClaims
from longboat.autoscaler.observe.do_not_disrupt import FREE, daemon_of, keep_of_node, keep_of_pod
from longboat.autoscaler.observe.gang_marks import OUR_GATES, Key, is_over, mark_of, range_of
from longboat.autoscaler.observe.gangs import GangIndex, GangPod, gangs_of
from longboat.autoscaler.observe.odd_objects import OddObjects, fault, name_of
from longboat.autoscaler.observe.pdbs import budgets_of
from longboat.core.errors import LongboatError, NotFound, UsageError
from longboat.core.times import parse_time
from longboat.fitting.model.nodes import node_of
from longboat.fitting.model.pods import Claims, Pod, pod_of, shape_of
from longboat.fitting.model.quantities import amounts, is_scarce
from longboat.fitting.model.volumes import claims_of

Body = Mapping[str, Any]
MOST_GROWTH = 1000
"""Pods that an elastic run could have besides those it has; as many machines are not bought at once."""
MAX_BYTES = 1 << 30  # a cluster of 10,000 nodes and their pods is well below
HINT = "kubectl get nodes,pods,jobs,poddisruptionbudgets -A -o json prints such a file"


def read_objects(path: str | Path) -> dict[str, list[Body]]:
    """The objects of a file by kind. Raises NotFound or UsageError with the place."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file", hint=HINT) from None
    except (OSError, ValueError) as bad:
        raise UsageError(
            f"{path}: cannot be read: {getattr(bad, 'strerror', None) or 'the name is not valid'}"
        ) from None
    try:
        root = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as bad:
        problem = "the file is empty" if not data.strip() else f"not valid JSON: {_place(str(bad), data)}"
        raise UsageError(f"{path}: {problem}", hint=HINT) from None
    return by_kind(root, str(path))


def _place(message: str, data: bytes) -> str:
    """msgspec tells the byte; people look for the line."""
    head, separator, number = message.partition("(byte ")
    if not separator or not number.rstrip(")").isdecimal():
        return message
    before = data[: int(number.rstrip(")"))]
    line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
    return f"{head.strip()} at line {line}, column {column}"


def by_kind(root: Any, path: str = "") -> dict[str, list[Body]]:
    """Kind -> objects. Takes a List, a list of objects, or one object."""
    bodies: dict[str, list[Body]] = {}
    seen: set[tuple[str, str, str, str]] = set()
    for place, body in _items(root, path, None):
        meta = body.get("metadata")
        if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
            raise UsageError(f"{place}: an object without metadata.name", hint=HINT)
        version, kind = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
        mark = (version.partition("/")[0], kind, str(meta.get("namespace") or ""), meta["name"])
        if mark not in seen:  # two Lists put together may name an object twice
            seen.add(mark)
            bodies.setdefault(kind, []).append(body)
    return bodies


def _items(root: Any, place: str, kind: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(root, list):
        for number, item in enumerate(root):
            yield from _items(item, f"{place}: items[{number}]", kind)
        return
    if not isinstance(root, dict):
        type_name = "null" if root is None else type(root).__name__
        raise UsageError(f"{place}: found {type_name}, expected a List of Kubernetes objects", hint=HINT)
    own = str(root.get("kind") or kind or "")
    if "items" in root and (own.endswith("List") or not own):
        yield from _items(root["items"] or [], place, own.removesuffix("List") or None)
        return
    if not own:
        raise UsageError(f"{place}: an object without kind", hint=HINT)
    yield place, root if root.get("kind") else {**root, "kind": own}


def snapshot_of(objects: Mapping[str, list[Body]], pools: tuple[Pool, ...] = ()) -> ClusterSnapshot:
    """What these objects say. The order in which they come makes no difference.

    What tenants write and cannot be read is held or passed over, and said in `odd`. Raises UsageError for the rest.
    """
    try:
        return _snapshot(objects, pools)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as bad:
        problem = f"an object is not as Kubernetes writes it: {fault(bad)}"
        raise UsageError(problem, hint=HINT) from None


def _snapshot(objects: Mapping[str, list[Body]], pools: tuple[Pool, ...]) -> ClusterSnapshot:
    odd = OddObjects()
    bound = odd.readable(objects.get("PersistentVolumeClaim", ()), _volume_claim)
    claims = claims_of(bound, objects.get("PersistentVolume", ()))
    devices = _device_claims(objects)
    groups = GangIndex(objects, claims, devices, odd)
    nodes = [_named(body, partial(_node, devices=devices)) for body in objects.get("Node", ())]
    pods, members = _pods(objects.get("Pod", ()), groups, claims)
    gangs, alone = gangs_of(groups, members)
    if alone:
        waiting = {gang.name for gang in gangs}
        pods = [_without_gang(pod, waiting) if pod.name in alone else pod for pod in pods]
    zones = {node.name: node.shape.zone for node, _ in nodes if node.shape.zone}
    waits = {gang.name for gang in gangs}
    jobs = [body for _, body in sorted(groups.jobs.items(), key=lambda pair: pair[0])]
    grows = any(pool.growth_s > 0 for pool in pools)
    elastic = odd.readable(jobs, partial(_elastic, groups=groups, members=members, zones=zones, grows=grows))
    return ClusterSnapshot(
        nodes=tuple(sorted((node for node, _ in nodes), key=lambda node: node.name)),
        pods=tuple(sorted(pods, key=lambda pod: pod.name)),
        gangs=tuple(gangs),
        elastic=tuple(gang for gang in elastic if gang is not None and gang.name not in waits),
        daemons=tuple(sorted(_daemons(objects.get("DaemonSet", ()), claims, odd), key=lambda daemon: daemon.name)),
        pools=tuple(devices.of_pool(corrected(pool, [node for node, _ in nodes])) for pool in pools),
        memory=tuple(sorted((memory for _, memory in nodes), key=lambda node_memory: node_memory.node)),
        budgets=tuple(budgets_of(objects.get("PodDisruptionBudget", ()), [seen.pod for seen in pods], odd)),
        namespaces={
            body["metadata"]["name"]: body["metadata"].get("labels") or {} for body in objects.get("Namespace", ())
        },
        odd=odd.reasons(),
    )


def _volume_claim(body: Body) -> Body:
    claims_of((body,), ())
    return body


def _device_claims(objects: Mapping[str, list[Body]]) -> DeviceClaims:
    try:
        return DeviceClaims(objects)
    except (TypeError, ValueError, KeyError, AttributeError) as bad:
        raise UsageError(f"a device class, slice or claim is not as Kubernetes writes it: {fault(bad)}") from None


def _without_gang(pod: SeenPod, waiting: set[str]) -> SeenPod:
    """A pod more than its gang needs: served by itself, but not before a gang that still waits."""
    return msgspec.structs.replace(pod, gang=None, beyond=pod.gang if pod.gang in waiting else None)


def _named(body: Body, read: Any) -> Any:
    """A malformed object is named in the error."""
    try:
        return read(body)
    except LongboatError as bad:
        raise UsageError(f"{name_of(body)}: {bad.message}", hint=bad.hint) from None
    except (TypeError, ValueError, KeyError, AttributeError) as bad:
        raise UsageError(f"{name_of(body)}: not as Kubernetes writes it: {fault(bad)}", hint=HINT) from None


def _node(body: Body, devices: DeviceClaims) -> tuple[SeenNode, NodeMemory]:
    meta, status = body["metadata"], body.get("status") or {}
    annotations = meta.get("annotations") or {}
    conditions = status.get("conditions") or ()
    ready = next((condition for condition in conditions if condition.get("type") == "Ready"), None)
    kept = keep_of_node(meta)
    shape = devices.on_node(node_of(body))
    node = SeenNode(
        shape=shape,
        created=parse_time(meta.get("creationTimestamp")) or 0.0,
        # A node that reports amounts and no condition at all was written by hand; a kubelet reports both.
        is_ready=ready.get("status") == "True" if ready is not None else bool(shape.allocatable) and not conditions,
        ready_since=parse_time((ready or {}).get("lastTransitionTime")),
        kept=kept.reason,
        kept_until=kept.until,
        is_going=bool(meta.get("deletionTimestamp")),
        machine=(body.get("spec") or {}).get("providerID"),
        lost=tuple(name for name, _ in amounts(status.get("capacity")) if is_scarce(name) and not shape.has(name)),
    )
    memory = NodeMemory(
        node=shape.name,
        idle_since=parse_time(annotations.get(IDLE)),
        cordoned_at=parse_time(annotations.get(CORDONED)),
        underused_since=parse_time(annotations.get(UNDERUSED)),
    )
    return node, memory


def _pods(bodies: Iterable[Body], groups: GangIndex, claims: Claims) -> tuple[list[SeenPod], dict[Key, list[GangPod]]]:
    pods: list[SeenPod] = []
    members: dict[Key, list[GangPod]] = {}
    for body in bodies:
        try:
            seen, key, member = _pod(body, groups, claims)
        except Exception as bad:  # what a stranger wrote into a pod may fail anywhere
            pods.append(_held_pod(body, groups.odd.note(body, bad)))
            continue
        pods.append(seen)
        if key is not None:
            members.setdefault(key, []).append(member)
    return pods, members


def _pod(body: Body, groups: GangIndex, claims: Claims) -> tuple[SeenPod, Key | None, GangPod]:
    key = groups.key_of_pod(body)
    pod = pod_of(body, claims=claims)
    spec = body.get("spec") or {}
    if "priority" not in spec and spec.get("priorityClassName"):
        pod = msgspec.structs.replace(pod, priority=groups.priority_of(spec))
    pod, hold = groups.devices.with_claims(pod, body)
    if hold:
        groups.holds[pod.namespace, pod.name] = hold
    gang = f"{key[0]}/{key[2].rstrip('/')}" if key is not None else None
    return _seen(body, pod=pod, gang=gang, hold=hold), key, GangPod(pod, body)


def _held_pod(body: Body, reason: str) -> SeenPod:
    """A pod that cannot be read: nothing is bought for it, and its node is not drained."""
    meta: Body = body["metadata"]
    spec: Body = body["spec"] if isinstance(body.get("spec"), dict) else {}
    status: Body = body["status"] if isinstance(body.get("status"), dict) else {}
    pod = Pod(
        name=str(meta["name"]),
        namespace=str(meta.get("namespace") or "default"),
        node=str(spec["nodeName"]) if spec.get("nodeName") else None,
        is_finished=status.get("phase") in ("Succeeded", "Failed"),
    )
    is_running = pod.node is not None and not pod.is_finished
    return SeenPod(pod=pod, kept=f"it is {reason}" if is_running else "", hold=f"it is {reason}")


def _seen(body: Body, pod: Pod, gang: str | None, hold: str) -> SeenPod:
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    daemon = daemon_of(meta)
    bound = pod.node is not None and not pod.is_finished and daemon is None
    kept = keep_of_pod(body, in_gang=gang is not None) if bound else FREE
    gates = [str(gate.get("name", "")) for gate in spec.get("schedulingGates") or () if isinstance(gate, dict)]
    foreign = [name for name in gates if not name.startswith(OUR_GATES)]
    conditions = status.get("conditions") or ()
    return SeenPod(
        pod=pod,
        created=parse_time(meta.get("creationTimestamp")) or 0.0,
        ended=_ended(status) if pod.is_finished else None,
        kept=kept.reason,
        kept_until=kept.until,
        daemon=daemon,
        nominated=status.get("nominatedNodeName") or None,
        gang=gang,
        hold=f"the scheduling gate {foreign[0]} holds it back" if foreign else hold,
        is_unready=any(
            condition.get("type") == "Ready" and condition.get("status") != "True" for condition in conditions
        ),
    )


def _ended(status: Body) -> float | None:
    """When the last of its containers ended."""
    finished = []
    for container in status.get("containerStatuses") or ():
        ended = parse_time(((container.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        if ended is not None:
            finished.append(ended)
    if not finished:
        conditions = status.get("conditions") or ()
        times = (
            parse_time(condition.get("lastTransitionTime"))
            for condition in conditions
            if condition.get("type") in ("Ready", "ContainersReady")
        )
        finished = [moment for moment in times if moment is not None]
    return max(finished, default=None)


def _elastic(
    body: Body, groups: GangIndex, members: Mapping[Key, list[GangPod]], zones: Mapping[str, str], grows: bool
) -> ElasticGang | None:
    """A run's Job that could have more pods than it has, all of which run. The range is its submitter's. `grows`:
    machines may be bought for these pods; where none are, they are not made.
    """
    bounds, key, spec = range_of(body), mark_of(body["metadata"], {}), body.get("spec") or {}
    size = int(spec.get("parallelism") or 0)
    if bounds is None or key is None or key[1] != "run" or is_over(body) or spec.get("suspend"):
        return None
    largest = min(bounds[1], size + MOST_GROWTH)
    name = body["metadata"]["name"]
    mine = [member.pod for member in members.get(key, ()) if member.job == name]
    here = [pod.node for pod in mine if pod.node is not None and not pod.is_finished and not pod.is_terminating]
    if not bounds[0] <= size < largest or len(here) < size:
        return None
    first, end = (size, largest) if grows else (0, 1)  # one tells the priority
    pods = groups.placeholder_pods(body, {**spec, "parallelism": end, "completions": None}, name)[first:]
    if not pods or (pods[0].namespace, name) in groups.holds:
        return None
    status = body.get("status") or {}
    return ElasticGang(
        name=f"{key[0]}/{key[2]}",
        pods=tuple(pods) if grows else (),
        size=size,
        largest=largest,
        since=parse_time(status.get("startTime")) or parse_time(body["metadata"].get("creationTimestamp")) or 0.0,
        priority=pods[0].priority,
        zones=tuple(sorted({zones[node] for node in here if node in zones})),
    )


def _daemons(bodies: Iterable[Body], claims: Claims, odd: OddObjects) -> Iterator[Daemon]:
    daemons = odd.readable(bodies, partial(_daemon, claims=claims))
    return (daemon for daemon in daemons if daemon is not None)


def _daemon(body: Body, claims: Claims) -> Daemon | None:
    meta, template = body["metadata"], (body.get("spec") or {}).get("template") or {}
    if meta.get("deletionTimestamp"):
        return None
    namespace = meta.get("namespace") or "default"
    inner = {**(template.get("metadata") or {}), "namespace": namespace}
    shape = shape_of({"metadata": inner, "spec": template.get("spec") or {}}, claims)
    return Daemon(name=f"{namespace}/{meta['name']}", shape=shape)
