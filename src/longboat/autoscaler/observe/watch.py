"""Watches of a live cluster: the objects that `from_objects.snapshot_of` reads, kept up to date or listed once.

Kinds that a cluster need not serve (JobSet, Kueue, PodGroups, Volcano) are followed where it does. Not here: what the
objects mean, and what the provider says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Iterable, Mapping
from typing import Any

import msgspec

from longboat.autoscaler.model.snapshot import ClusterSnapshot, Pool, ProviderFailure
from longboat.autoscaler.observe.from_objects import Body, snapshot_of
from longboat.autoscaler.observe.orders import DELETING, JoinedInstances, OrderBook, orders_of
from longboat.autoscaler.observe.relevant_changes import RelevantChanges
from longboat.autoscaler.providers.provider import ProviderAnswer
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden, ObjectNotFound
from longboat.kubeapi.kinds import (
    CLAIM,
    CLAIM_TEMPLATE,
    DAEMON_SET,
    DEVICE_CLASS,
    JOB,
    JOBSET,
    NAMESPACE,
    NODE,
    PDB,
    POD,
    PRIORITY_CLASS,
    PVC,
    RESOURCE_SLICE,
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
WHERE_ALLOWED = (DEVICE_CLASS, CLAIM_TEMPLATE, CLAIM, RESOURCE_SLICE)
"""Followed where they are served and may be seen; else it is said of pods with claims that these cannot be judged."""
LOOK_FOR_KINDS_S = 60.0  # JobSet or Kueue may be installed later; asking costs one request each
Objects = dict[str, list[Body]]


def served(client: Client, followed: Container[Kind] = ()) -> list[Kind]:
    """Optional kinds that this cluster serves, in the served version."""
    groups = msgspec.json.decode(client.request("GET", "/apis")).get("groups") or ()
    versions = {group["name"]: [each["version"] for each in group.get("versions") or ()] for group in groups}
    plurals: dict[str, set[str]] = {}
    kinds = []
    for kind in (*WHERE_SERVED, *WHERE_ALLOWED):
        group, _, wanted = kind.api_version.partition("/")
        for version in sorted(versions.get(group, []), key=lambda version: version != wanted):
            api_version = f"{group}/{version}"
            if api_version not in plurals:
                plurals[api_version] = _plurals(client, api_version)
            if kind.plural in plurals[api_version]:
                here = kind._replace(api_version=api_version)
                if kind not in WHERE_ALLOWED or here in followed or _may_list(client, here):
                    kinds.append(here)
                break
    return kinds


def _plurals(client: Client, api_version: str) -> set[str]:
    try:
        answer = msgspec.json.decode(client.request("GET", f"/apis/{api_version}"))
    except ObjectNotFound:
        return set()
    return {str(resource.get("name")) for resource in answer.get("resources") or ()}


def _may_list(client: Client, kind: Kind) -> bool:
    """An autoscaler that was installed before this kind was looked at has no right to it, and works without."""
    try:
        client.request("GET", kind.path(), query={"limit": "1"})
    except Forbidden:
        return False
    return True


def listed(client: Client) -> Objects:
    """Everything once: for a single look."""
    objects: Objects = {}
    for kind in (*ALWAYS, *served(client)):
        objects.setdefault(kind.kind, []).extend(_named(kind, client.list(kind, everywhere=True).items))
    return objects


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
        # One for each kind: a reflector tells its changes one after the other.
        changes = RelevantChanges()

        def heard(change: Change[dict[str, Any]]) -> None:
            if changes.is_relevant(kind, change.object, is_deleted=change.type == "DELETED"):
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
        now = served(self._client, self._reflectors)
        for kind in now:
            if kind not in self._reflectors:
                self._follow(kind)
        for kind in [reflector for reflector in self._reflectors if reflector not in ALWAYS and reflector not in now]:
            self._reflectors.pop(kind).close()

    def wait(self, timeout_s: float) -> bool:
        """Wait until something has changed; whether it has before the timeout."""
        is_changed = self._changed.wait(timeout_s)
        self._changed.clear()
        return is_changed

    def gather(self, quiet_s: float, most_s: float) -> None:
        """After a change: wait until no other has come for `quiet_s`, but no longer than `most_s`."""
        until = time.monotonic() + most_s
        while (left_s := until - time.monotonic()) > 0 and self.wait(min(quiet_s, left_s)):
            pass

    def wake(self) -> None:
        self._changed.set()

    def blind_spots(self) -> list[str]:
        """What cannot be seen at the moment. Deciding without it would be deciding on old news."""
        texts = [reflector.why_stale() for reflector in list(self._reflectors.values())]
        return [text for text in texts if text]

    def objects(self) -> Objects:
        self._look_for_kinds()
        by_kind: Objects = {}
        for kind, reflector in self._reflectors.items():
            by_kind.setdefault(kind.kind, []).extend(_named(kind, reflector.items.values()))
        return by_kind

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
    # Machines that the provider ends, or takes back by a spot notice: nobody is placed there any more.
    ending = {machine.id for machine in seen.machines if machine.state == "stopping"}
    kept = {name: machine.kept for machine in seen.machines if machine.kept for name in (machine.id, machine.node)}
    snapshot = snapshot_of(objects, pools)
    known = {pool.name for pool in pools}
    nodes = tuple(
        msgspec.structs.replace(node, is_going=True)
        if node.name in going or (node.machine or node.name) in ending
        else msgspec.structs.replace(node, kept=reason, kept_until=None)
        if (reason := kept.get(node.machine or node.name) or kept.get(node.name))
        else node
        for node in snapshot.nodes
    )
    return msgspec.structs.replace(
        snapshot,
        nodes=nodes,
        orders=tuple(order for order in orders_of(book, seen, joined_in(objects), now) if order.pool in known),
        failures=(*book.failures, *blocked),
    )
