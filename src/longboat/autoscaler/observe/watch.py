"""Watches of a live cluster: the objects that `from_objects.snapshot_of` reads, kept up to date or listed once.

Kinds that a cluster need not serve (JobSet, Kueue, PodGroups, Volcano) are followed where it does. Not here: what the
objects mean, and what the provider says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from longboat.autoscaler.model.snapshot import ClusterSnapshot, Pool, ProviderFailure
from longboat.autoscaler.observe.from_objects import Body, snapshot_of
from longboat.autoscaler.observe.orders import DELETING, JoinedInstances, OrderBook, orders_of
from longboat.autoscaler.providers.provider import ProviderAnswer
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ObjectNotFound
from longboat.kubeapi.kinds import (
    DAEMON_SET,
    JOB,
    JOBSET,
    NAMESPACE,
    NODE,
    PDB,
    POD,
    PRIORITY_CLASS,
    PVC,
    VOLUME,
    WORKLOAD,
    Kind,
)
from longboat.kubeapi.watch import Change, Reflector

ALWAYS = (NODE, POD, JOB, PDB, DAEMON_SET, PVC, VOLUME, PRIORITY_CLASS, NAMESPACE)
WHERE_SERVED = (
    JOBSET,
    WORKLOAD,
    Kind("PodGroup", "scheduling.x-k8s.io/v1alpha1", "podgroups"),
    Kind("PodGroup", "scheduling.volcano.sh/v1beta1", "podgroups"),
    Kind("Job", "batch.volcano.sh/v1alpha1", "jobs"),
    Kind("PodGroup", "scheduling.k8s.io/v1alpha2", "podgroups"),
    Kind("Workload", "scheduling.k8s.io/v1alpha1", "workloads"),
)
LOOK_FOR_KINDS_S = 60.0  # JobSet or Kueue may be installed later; asking costs one request each
Objects = dict[str, list[Body]]


def served(client: Client) -> list[Kind]:
    """Those of the kinds that a cluster need not have, each in the version that this one serves."""
    groups = msgspec.json.decode(client.request("GET", "/apis")).get("groups") or ()
    versions = {one["name"]: [each["version"] for each in one.get("versions") or ()] for one in groups}
    kinds = []
    for kind in WHERE_SERVED:
        group, _, wanted = kind.api_version.partition("/")
        known = versions.get(group, [])
        for version in sorted(known, key=lambda one: one != wanted):
            if _has(client, f"{group}/{version}", kind.plural):
                kinds.append(kind._replace(api_version=f"{group}/{version}"))
                break
    return kinds


def _has(client: Client, version: str, plural: str) -> bool:
    try:
        answer = msgspec.json.decode(client.request("GET", f"/apis/{version}"))
    except ObjectNotFound:
        return False
    return any(one.get("name") == plural for one in answer.get("resources") or ())


def listed(client: Client) -> Objects:
    """Everything once: for a single look."""
    found: Objects = {}
    for kind in (*ALWAYS, *served(client)):
        found.setdefault(kind.kind, []).extend(_named(kind, client.list(kind, everywhere=True).items))
    return found


def _named(kind: Kind, bodies: Iterable[dict[str, Any]]) -> list[Body]:
    """Items of a list do not say what they are."""
    if kind is POD or kind is NODE:
        return list(bodies)
    return [{**body, "kind": kind.kind, "apiVersion": kind.api_version} for body in bodies]


class ClusterWatcher:
    """A copy of all that matters, kept up to date by watches."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changed = threading.Event()
        self._reflectors: dict[Kind, Reflector[dict[str, Any]]] = {}
        self._looked = 0.0
        for kind in ALWAYS:
            self._follow(kind)

    def _follow(self, kind: Kind) -> None:
        def heard(_: Change[dict[str, Any]]) -> None:
            self._changed.set()

        self._reflectors[kind] = Reflector(self._client, kind, everywhere=True, on_change=heard)

    def sync(self, timeout_s: float = 60.0) -> None:
        """Wait until everything was seen once; what may not be seen is raised."""
        self._look_for_kinds()
        for reflector in list(self._reflectors.values()):
            reflector.sync(timeout_s)

    def _look_for_kinds(self) -> None:
        if time.monotonic() - self._looked < LOOK_FOR_KINDS_S and self._looked:
            return
        self._looked = time.monotonic()
        now = served(self._client)
        for kind in now:
            if kind not in self._reflectors:
                self._follow(kind)
        for kind in [reflector for reflector in self._reflectors if reflector not in ALWAYS and reflector not in now]:
            self._reflectors.pop(kind).close()

    def wait(self, timeout_s: float) -> bool:
        """Until something has changed, or the time is over."""
        found = self._changed.wait(timeout_s)
        self._changed.clear()
        return found

    def wake(self) -> None:
        self._changed.set()

    def blind_spots(self) -> list[str]:
        """What cannot be seen at the moment. Deciding without it would be deciding on old news."""
        found = [reflector.blindness() for reflector in list(self._reflectors.values())]
        return [text for text in found if text]

    def objects(self) -> Objects:
        self._look_for_kinds()
        found: Objects = {}
        for kind, reflector in self._reflectors.items():
            found.setdefault(kind.kind, []).extend(_named(kind, reflector.items.values()))
        return found

    def close(self) -> None:
        for reflector in self._reflectors.values():
            reflector.close()


def joined_in(objects: Mapping[str, list[Body]]) -> JoinedInstances:
    nodes = objects.get("Node", ())
    return JoinedInstances((body["metadata"]["name"], (body.get("spec") or {}).get("providerID")) for body in nodes)


def snapshot_from(
    objects: Objects,
    pools: tuple[Pool, ...],
    book: OrderBook,
    seen: ProviderAnswer,
    now: float,
    blocked: Iterable[ProviderFailure] = (),
) -> ClusterSnapshot:
    """What `decide` reads: the objects, what was ordered, what was refused. `blocked`: refusals of this moment only."""
    going = {
        body["metadata"]["name"]
        for body in objects.get("Node", ())
        if DELETING in (body["metadata"].get("annotations") or {})
    }
    snapshot = snapshot_of(objects, pools)
    known = {pool.name for pool in pools}
    nodes = tuple(
        msgspec.structs.replace(node, is_going=True) if node.name in going else node for node in snapshot.nodes
    )
    return msgspec.structs.replace(
        snapshot,
        nodes=nodes,
        orders=tuple(order for order in orders_of(book, seen, joined_in(objects), now) if order.pool in known),
        failures=(*book.failures, *blocked),
    )
