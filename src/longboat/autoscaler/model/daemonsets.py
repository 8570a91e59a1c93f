"""DaemonSet overhead: what DaemonSets and static pods take from every new machine of a pool. Pure.

From the DaemonSets themselves; those that the snapshot does not hold are learnt from the pods on running nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from longboat.autoscaler.model.machines import Machine
from longboat.autoscaler.model.snapshot import ClusterSnapshot, Daemon, Pool, SeenPod
from longboat.fitting.eligibility import admits
from longboat.fitting.model.pods import NodeConstraints, Pod, PodShape
from longboat.fitting.model.selectors import NAME_FIELD

NAMESPACE = "longboat-daemons"


def daemons_by_pool(
    snapshot: ClusterSnapshot, machines: Sequence[Machine], pods: Mapping[str, list[SeenPod]]
) -> dict[str, tuple[Daemon, ...]]:
    """For every pool, what will be on each of its new machines before anybody else."""
    known = {daemon.name for daemon in snapshot.daemons}
    everywhere: dict[str, Daemon] = {}
    by_pool: dict[str, list[Machine]] = {}
    for machine in machines:
        if machine.condition != "ready" or machine.node is None:
            continue
        if machine.pool is not None:
            by_pool.setdefault(machine.pool.name, []).append(machine)
        for pod in pods.get(machine.name, ()):
            if pod.daemon and pod.daemon not in known and pod.daemon not in everywhere:
                everywhere[pod.daemon] = Daemon(name=pod.daemon, shape=unpinned(pod.pod.shape))
    daemons = {}
    for pool in snapshot.pools:
        ready = by_pool.get(pool.name, [])
        learnt = _on_most(ready, pods, known) if ready else _matching_daemons(everywhere.values(), pool)
        stated = _matching_daemons(snapshot.daemons, pool)
        daemons[pool.name] = tuple(sorted((*stated, *learnt), key=lambda daemon: daemon.name))
    return daemons


def _matching_daemons(daemons: Iterable[Daemon], pool: Pool) -> list[Daemon]:
    return [daemon for daemon in daemons if admits(daemon.shape.placing, pool.machine)]


def _on_most(ready: list[Machine], pods: Mapping[str, list[SeenPod]], known: set[str]) -> list[Daemon]:
    """DaemonSets with a pod on at least half of these nodes, and what is a part of every one of them."""
    seen: dict[str, tuple[int, PodShape]] = {}
    for machine in ready:
        parts = 0
        for pod in pods.get(machine.name, ()):
            if pod.daemon is None or pod.pod.is_finished or pod.daemon in known:
                continue
            name = pod.daemon
            if not name:  # the parts of a node have no name in common: the first, the second, ...
                name, parts = f"node/{parts}", parts + 1
            count = seen[name][0] if name in seen else 0
            seen[name] = (count + 1, pod.pod.shape)
    return [
        Daemon(name=name, shape=unpinned(shape))
        for name, (count, shape) in sorted(seen.items())
        if 2 * count >= len(ready) and (not name.startswith("node/") or count == len(ready))
    ]


def unpinned(shape: PodShape) -> PodShape:
    """The pod without the affinity that pins a DaemonSet's pod to its own node."""
    affinity = shape.placing.affinity
    if affinity is None:
        return shape
    pin = f"field:{NAME_FIELD}"
    terms = tuple(tuple(requirement for requirement in term if requirement[0] != pin) for term in affinity)
    placing = msgspec.structs.replace(shape.placing, affinity=terms if all(terms) else None)
    return PodShape(requests=shape.requests, ports=shape.ports, placing=placing)


def daemon_pods(daemons: Sequence[Daemon], node: str, present: set[str]) -> list[Pod]:
    """Pods of those that are not on this node yet. Where they may be was decided before."""
    return [
        Pod(
            name=f"{daemon.name}@{node}",
            namespace=NAMESPACE,
            shape=PodShape(requests=daemon.shape.requests, ports=daemon.shape.ports, placing=NodeConstraints()),
            node=node,
        )
        for daemon in daemons
        if daemon.name not in present
    ]
