"""The KWOK provider: simulated nodes on a real cluster, with the pool's shape. For tests and trying out.

The machines are in a ConfigMap, as a cloud keeps them in its books; each has a node object beside it. What goes wrong
on demand is in the same ConfigMap (`faults`), so that it can be changed while everything runs.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from longboat.autoscaler.model.provider_settings import KwokSettings
from longboat.autoscaler.model.snapshot import FailureKind, Pool
from longboat.autoscaler.providers.provider import (
    Description,
    Instance,
    MachineRequest,
    ProviderAnswer,
    ProviderError,
    Refusal,
)
from longboat.core.guards.decoding import decode
from longboat.core.jobs import Value
from longboat.core.resources import format_duration
from longboat.core.times import format_time
from longboat.fitting.model.nodes import HOSTNAME, ZONE
from longboat.fitting.model.quantities import CPU, is_gpu
from longboat.kubeapi.client import Client, Object
from longboat.kubeapi.errors import AlreadyExists, Conflict, ObjectNotFound
from longboat.kubeapi.kinds import CONFIG_MAP, LEASE, NODE

BOOKS = "longboat-kwok"
MANAGED = {"kwok.x-k8s.io/node": "fake"}
STAGES = "testbed.longboat.test/"
"""Annotations that the stages of the test cluster understand; KWOK's own stages take no notice of them."""
LEASES = "kube-node-lease"
ATTEMPTS = 20  # writers that collide on the one object; each turn one of them gets through
LISTED_S = 10.0
"""So old may the books be that a list is made from. Nobody else writes them but for a trial, and whoever changes them
by what he read before is told so by the API server: then they are read anew."""
MOST_KEPT = 200  # tokens and refusals are asked for within a few turns; the object stays far below 1 MiB


class SimulatedFault(Value, frozen=True):
    """What the simulated cloud answers to an order of this pool and zone (None: of every zone)."""

    pool: str
    kind: FailureKind
    zone: str | None = None
    after: int = 0  # machines of an order that are made before it fails
    joins: bool = True  # false: no error; the machines are made and never become nodes


class KwokState(Value, frozen=True):
    machines: tuple[Instance, ...] = ()
    tokens: tuple[str, ...] = ()  # orders that were served, newest last
    refusals: tuple[Refusal, ...] = ()


class KwokBooks(NamedTuple):
    """The ConfigMap and what it says, as it was read or written last."""

    read_at: float  # of `time.monotonic`
    config_map: Object | None  # None: there is none yet
    state: KwokState
    faults: tuple[SimulatedFault, ...]


class KwokProvider:
    def __init__(self, client: Client, home: str, settings: KwokSettings | None = None) -> None:
        self._client, self._home = client, home
        self.settings = settings or KwokSettings()
        self._known: KwokBooks | None = None

    def list(self, pools: Sequence[Pool]) -> ProviderAnswer:
        names = {pool.name for pool in pools}
        books = self._read(within_s=LISTED_S).state
        return ProviderAnswer(
            machines=tuple(machine for machine in books.machines if machine.pool in names),
            refusals=tuple(refusal for refusal in books.refusals if refusal.pool in names),
        )

    def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        def add(books: KwokState, faults: tuple[SimulatedFault, ...]) -> KwokState:
            if request.token in books.tokens:
                return books
            fault = next(
                (
                    simulated_fault
                    for simulated_fault in faults
                    if simulated_fault.pool == pool.name and simulated_fault.zone in (None, request.zone)
                ),
                None,
            )
            count, refusals = request.count, books.refusals
            if fault is not None and fault.joins:
                count = min(fault.after, count)
                where = f" in zone {request.zone}" if request.zone else ""
                message = f"simulated: {fault.kind}{where}"
                refused = Refusal(
                    pool=pool.name, kind=fault.kind, token=request.token, zone=request.zone, message=message
                )
                refusals = (*refusals, refused)[-MOST_KEPT:]
            made = tuple(self._new(pool, request, fault) for _ in range(count))
            tokens = (*books.tokens, request.token)[-MOST_KEPT:]
            return KwokState(machines=(*books.machines, *made), tokens=tokens, refusals=refusals)

        books = self._change(add)
        mine = tuple(instance for instance in books.machines if instance.token == request.token)
        for machine in mine:
            if machine.state == "running":
                self._join(pool, machine)
        for refusal in books.refusals:
            if refusal.token == request.token:
                raise ProviderError(refusal.message, kind=refusal.kind)
        return mine

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        gone = set(machines)

        def remove(books: KwokState, _: tuple[SimulatedFault, ...]) -> KwokState:
            # An order that is taken back must not be served by a request that is still on its way.
            known = tuple(token for token in books.tokens if token not in tokens)
            left = tuple(machine for machine in books.machines if machine.id not in gone)
            return KwokState(machines=left, tokens=(*known, *tokens)[-MOST_KEPT:], refusals=books.refusals)

        self._change(remove)
        for name in machines:
            self._client.delete(LEASE, name.rpartition("/")[2], namespace=LEASES)

    def describe(self, pool: Pool) -> Description:
        return Description(zones=pool.zones, spot=pool.spot, max=pool.max)

    def _new(self, pool: Pool, request: MachineRequest, fault: SimulatedFault | None) -> Instance:
        name = f"{pool.name}-{secrets.token_hex(4)}"
        return Instance(
            id=f"kwok://{name}",
            pool=pool.name,
            state="running" if fault is None or fault.joins else "pending",
            zone=request.zone,
            created=self._client.now(),
            token=request.token,
            node=name,
        )

    def _join(self, pool: Pool, machine: Instance) -> None:
        try:
            self._client.create(node_of(pool, machine, self.settings))
        except AlreadyExists:
            pass

    def _read(self, *, within_s: float = 0.0) -> KwokBooks:
        """The books as the cluster has them, or had them so short a time ago."""
        if self._known is not None and time.monotonic() - self._known.read_at < within_s:
            return self._known
        self._known, read_at = None, time.monotonic()
        config_map = self._client.find(CONFIG_MAP, BOOKS, namespace=self._home)
        data = (config_map or {}).get("data") or {}
        try:
            state = decode(data.get("machines", "{}"), KwokState)
            faults = decode(data.get("faults", "[]"), tuple[SimulatedFault, ...])
        except msgspec.DecodeError as bad:
            raise ProviderError(f"the ConfigMap {self._home}/{BOOKS} is not understood: {bad}") from None
        self._known = KwokBooks(read_at, config_map, state, faults)
        return self._known

    def _change(self, change: Callable[[KwokState, tuple[SimulatedFault, ...]], KwokState]) -> KwokState:
        """Change what was read last, replace it at that version; on a conflict it is read again."""
        for attempt in range(ATTEMPTS):
            known = self._read(within_s=0.0 if attempt else math.inf)
            wanted = change(known.state, known.faults)
            if known.config_map is not None and wanted == known.state:
                return wanted
            body: Object = known.config_map or {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": BOOKS, "namespace": self._home},
            }
            data = {**(body.get("data") or {}), "machines": msgspec.json.encode(wanted).decode()}
            write = self._client.replace if known.config_map else self._client.create
            self._known = None  # after any other error nothing is known
            try:
                written = write({**body, "data": data})
            except (Conflict, AlreadyExists, ObjectNotFound):
                time.sleep(0.01 * attempt)
            else:
                self._known = KwokBooks(time.monotonic(), written, wanted, known.faults)
                return wanted
        raise ProviderError(f"the ConfigMap {self._home}/{BOOKS} is changed by others all the time", kind="throttled")


def node_of(pool: Pool, machine: Instance, settings: KwokSettings) -> Object:
    """The node that the machine joins as."""
    name = machine.node or machine.id
    annotations = {**MANAGED, **settings.annotations}
    room = {resource: _quantity(resource, count) for resource, count in pool.machine.allocatable}
    if settings.ready_after_s:
        annotations[f"{STAGES}ready-after"] = format_duration(settings.ready_after_s)
    if settings.gpus_after_s:
        gpus = [resource for resource in room if resource == pool.gpu_resource or is_gpu(resource)]
        annotations[f"{STAGES}gpus-after"] = format_duration(settings.gpus_after_s)
        for gpu in gpus:
            annotations[f"{STAGES}gpus"] = room.pop(gpu)
    labels = {**pool.machine.labels, HOSTNAME: name, "type": "kwok"}
    if machine.zone:
        labels[ZONE] = machine.zone
    taints = [{"key": taint.key, "effect": taint.effect, "value": taint.value} for taint in pool.machine.taints]
    return {
        "apiVersion": NODE.api_version,
        "kind": NODE.kind,
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"providerID": machine.id, "taints": taints},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [_ready(not settings.ready_after_s)],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def _quantity(resource: str, count: int) -> str:
    return f"{count}m" if resource == CPU else str(min(count, 1 << 50))


def _ready(is_ready: bool) -> dict[str, str]:
    now = format_time(time.time())
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    if is_ready:
        return {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", **times}
    return {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "it boots", **times}
