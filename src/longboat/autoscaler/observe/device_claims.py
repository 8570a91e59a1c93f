"""Device claims (dynamic resource allocation): devices of nodes and pools, and what pods claim of them, by class. Pure.

Devices of a class count like any resource, under the name `deviceclass/NAME`: on a node those of its ResourceSlices, on
a new machine what the pools file states or what nodes of its pool show. A class that another one is a part of counts
along. What cannot be judged is said, and nothing is bought for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from longboat.autoscaler.model.snapshot import DEVICES, POOL_LABEL, Pool
from longboat.autoscaler.observe.device_selectors import (
    ConditionIndex,
    Conditions,
    Device,
    DeviceRequest,
    conditions_of,
    device_of,
    matches,
    requests_of,
)
from longboat.autoscaler.observe.odd_objects import fault
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.model.quantities import Amounts, total

Body = Mapping[str, Any]
Named = tuple[str, str]
"""Namespace and name."""
DeviceKey = tuple[str, str, str]
"""Driver, pool of the driver, name."""


class DeviceClaims:
    def __init__(self, objects: Mapping[str, list[Body]]) -> None:
        self.claims = {_key(body): body for body in objects.get("ResourceClaim", ())}
        self.templates = {_key(body): body for body in objects.get("ResourceClaimTemplate", ())}
        # Of a kind that is followed there is a list, if an empty one. Without nodes there is nothing to be seen.
        self.is_blind = "ResourceSlice" not in objects and bool(objects.get("Node"))
        self._classes = {
            body["metadata"]["name"]: conditions_of((body.get("spec") or {}).get("selectors"))
            for body in objects.get("DeviceClass", ())
        }
        self._users = _users(objects.get("Pod", ()))
        self._shared: set[Conditions] = set()  # of devices that are not on one node
        self._on_nodes: dict[str, dict[DeviceKey, Device]] = {}
        for body in _newest(objects.get("ResourceSlice", ())):
            self._add(body["spec"])
        on_nodes = (device for devices in self._on_nodes.values() for device in devices.values())
        self._partitions = [device for device in on_nodes if device.is_partition]
        self._names = self._all_names()
        self._index = ConditionIndex(self._names)
        self._amounts: dict[str, Amounts] = {
            name: self._count(devices.values()) for name, devices in self._on_nodes.items()
        }
        self._learnt: dict[str, dict[str, int]] = {}
        self._shapes: dict[tuple[PodShape, Amounts], PodShape] = {}

    def _add(self, spec: Body) -> None:
        driver = str(spec.get("driver", ""))
        pool = str((spec.get("pool") or {}).get("name", ""))
        for body in spec.get("devices") or ():
            device = device_of(body, driver)
            if device is None:
                continue
            node = spec.get("nodeName")
            if node:
                self._on_nodes.setdefault(node, {})[driver, pool, str(body.get("name", ""))] = device
            else:
                known = (conditions for conditions in self._classes.values() if conditions is not None)
                self._shared |= {conditions for conditions in known if matches(device, conditions)}

    def _all_names(self) -> dict[Conditions, str]:
        """A resource for everything that classes and claims ask for; classes that ask for the same are one."""
        names: dict[Conditions, str] = {}
        for name, conditions in sorted(self._classes.items()):
            if conditions is not None:
                names.setdefault(conditions, DEVICES + name)
        used = set(names.values())
        for request in sorted(self._all_requests(), key=repr):
            of_class = self._classes.get(request.device_class)
            wanted = (of_class or frozenset()) | request.conditions
            if of_class is not None and request.conditions and wanted not in names:
                name = f"{DEVICES}{request.device_class} with {_where(request.conditions)}"
                # Two of one name would count a device twice; a value may be any text.
                names[wanted] = name if name not in used else f"{name} ({len(names)})"
                used.add(names[wanted])
        return names

    def _all_requests(self) -> set[DeviceRequest]:
        requests_named: set[DeviceRequest] = set()
        for body in (*self.templates.values(), *self.claims.values()):
            with contextlib.suppress(Exception):  # pods that use it are held and say why
                requests = requests_of(_spec(body))
                requests_named.update(requests if not isinstance(requests, str) else ())
        return requests_named

    def _count(self, devices: Iterable[Device]) -> Amounts:
        counts: dict[str, int] = {}
        for device in devices:
            for name in self._index.of_device(device):
                counts[name] = counts.get(name, 0) + 1
        return tuple(sorted(counts.items()))

    # nodes and pools

    def on_node(self, shape: NodeShape) -> NodeShape:
        """The node with its devices."""
        devices = self._amounts.get(shape.name, ())
        if not devices:
            return shape
        pool = shape.labels.get(POOL_LABEL)
        if pool is not None:
            most = self._learnt.setdefault(pool, {})
            most.update({name: max(count, most.get(name, 0)) for name, count in devices})
        return _with(shape, devices)

    def of_pool(self, pool: Pool) -> Pool:
        """The pool with the devices of a machine: stated in the pools file, or as its nodes show. After all nodes."""
        if self.is_blind:
            return pool
        has = dict(self._learnt.get(pool.name, {}))
        for name, count in pool.devices.items():
            conditions = self._classes.get(name)
            has[DEVICES + name] = count
            for wider, resource in self._names.items() if conditions is not None else ():
                if conditions is not None and wider <= conditions:
                    has[resource] = max(count, has.get(resource, 0))
        return msgspec.structs.replace(pool, machine=_with(pool.machine, has.items())) if has else pool

    # pods

    def with_claims(self, pod: Pod, body: Body) -> tuple[Pod, str]:
        """The pod with the devices it claims or holds; and why what it claims cannot be judged, if so."""
        try:
            return self._with_claims(pod, body)
        except Exception as bad:  # what a stranger wrote into a claim may fail anywhere: this pod is held, no other
            return pod, f"its device claims cannot be judged: they are not as Kubernetes writes them: {fault(bad)}"

    def _with_claims(self, pod: Pod, body: Body) -> tuple[Pod, str]:
        entries = (body.get("spec") or {}).get("resourceClaims")
        if not entries or pod.is_finished:
            return pod, ""
        held = self._held(pod, body) if pod.node is not None else None
        if held is not None:
            return self._asking(pod, held), ""
        parts: list[Amounts] = []
        for entry in entries:
            amounts = self._wanted(pod, entry)
            if isinstance(amounts, str):
                return pod, f"its device claim {entry.get('name', '')} cannot be judged: {amounts}"
            parts.append(amounts)
        return self._asking(pod, total(parts)), ""

    def _asking(self, pod: Pod, devices: Amounts) -> Pod:
        if not devices:
            return pod
        key = (pod.shape, devices)
        if key not in self._shapes:  # equal shapes are one object, which makes comparing them cheap
            requests = tuple(sorted((*pod.shape.requests, *devices)))
            self._shapes[key] = msgspec.structs.replace(pod.shape, requests=requests)
        return msgspec.structs.replace(pod, shape=self._shapes[key])

    def _held(self, pod: Pod, body: Body) -> Amounts | None:
        """What was allocated to a pod that has a node; a claim of several pods counts for the first of them."""
        devices: list[Device] = []
        here = self._on_nodes.get(pod.node or "", {})
        for name in _claim_names(body):
            key = (pod.namespace, name)
            allocation = ((self.claims.get(key) or {}).get("status") or {}).get("allocation")
            if allocation is None:
                return None
            if min((user for user, node in self._users.get(key, {}).items() if node), default=pod.name) == pod.name:
                results = (allocation.get("devices") or {}).get("results") or ()
                keys = [_device_key(result) for result in results if not result.get("adminAccess")]
                devices += [here[key] for key in keys if key in here]
        return self._count(devices)

    def _wanted(self, pod: Pod, entry: Body) -> Amounts | str:
        if self.is_blind:
            return "ResourceSlices are not among what is seen"
        template, name = entry.get("resourceClaimTemplateName"), entry.get("resourceClaimName")
        kind, known = ("ResourceClaimTemplate", self.templates) if template else ("ResourceClaim", self.claims)
        key = (pod.namespace, str(template or name or ""))
        body = known.get(key)
        if body is None:
            return f"there is no {kind} {key[0]}/{key[1]}"
        if not template and (body.get("status") or {}).get("allocation"):
            return f"{key[1]} has its devices already, and only beside them can it run"
        if not template and len(self._users.get(key, ())) > 1:
            return f"{key[1]} is shared by {len(self._users[key])} pods"
        requests = requests_of(_spec(body))
        if isinstance(requests, str):
            return requests
        parts: list[Amounts] = []
        for request in requests:
            amounts = self._amount(request)
            if isinstance(amounts, str):
                return amounts
            parts.append(amounts)
        return total(parts)

    def _amount(self, request: DeviceRequest) -> Amounts | str:
        """The resource of the request, and of everything that it is a part of."""
        if request.device_class not in self._classes:
            return f"there is no DeviceClass {request.device_class}"
        of_class = self._classes[request.device_class]
        if of_class is None:
            return f"DeviceClass {request.device_class} selects devices by an expression that is more than a comparison"
        wanted = of_class | request.conditions
        if of_class in self._shared:
            return f"devices of class {request.device_class} are not on nodes (a ResourceSlice without nodeName)"
        if any(matches(device, wanted) for device in self._partitions):
            return f"devices of class {request.device_class} are partitions that share counters"
        return tuple(sorted((name, request.count) for name in self._index.within(wanted)))


def _key(body: Body) -> Named:
    return body["metadata"].get("namespace") or "default", body["metadata"]["name"]


def _device_key(result: Body) -> DeviceKey:
    return str(result.get("driver", "")), str(result.get("pool", "")), str(result.get("device", ""))


def _spec(body: Body) -> Body:
    """The spec of a ResourceClaim, or of the claims that a template makes."""
    spec: Body = body.get("spec") or {}
    return (spec.get("spec") or {}) if body.get("kind") == "ResourceClaimTemplate" else spec


def _newest(slices: Iterable[Body]) -> list[Body]:
    """Slices of the newest generation of each driver's pool; older ones are about to be removed."""
    newest: dict[Named, int] = {}
    bodies = list(slices)
    for body in bodies:
        key, generation = _generation(body)
        newest[key] = max(generation, newest.get(key, 0))
    return [body for body in bodies if newest[_generation(body)[0]] == _generation(body)[1]]


def _generation(body: Body) -> tuple[Named, int]:
    spec = body.get("spec") or {}
    pool = spec.get("pool") or {}
    return (str(spec.get("driver", "")), str(pool.get("name", ""))), int(pool.get("generation") or 0)


def _users(pods: Iterable[Body]) -> dict[Named, dict[str, str | None]]:
    """Claims -> those pods that have not ended and name them, or had them made from a template; with their nodes."""
    users: dict[Named, dict[str, str | None]] = {}
    for body in pods:
        with contextlib.suppress(Exception):  # such a pod is held and says why
            spec, status = body.get("spec") or {}, body.get("status") or {}
            if not spec.get("resourceClaims") or status.get("phase") in ("Succeeded", "Failed"):
                continue
            for name in filter(None, _claim_names(body)):
                users.setdefault((_key(body)[0], name), {})[body["metadata"]["name"]] = spec.get("nodeName")
    return users


def _claim_names(body: Body) -> list[str]:
    """ResourceClaims of a pod, one per entry: named, or made from a template; empty: not made yet."""
    statuses = (body.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {entry.get("name"): entry.get("resourceClaimName") for entry in statuses}
    entries = body["spec"]["resourceClaims"]
    return [str(entry.get("resourceClaimName") or made.get(entry.get("name")) or "") for entry in entries]


def _where(conditions: Conditions) -> str:
    """Attributes with their domains: two domains may use the same name."""
    return ", ".join(f"{domain}/{name} {value}".removeprefix("/") for domain, name, value in sorted(conditions))


def _with(shape: NodeShape, devices: Iterable[tuple[str, int]]) -> NodeShape:
    allocatable = tuple(sorted({**dict(shape.allocatable), **dict(devices)}.items()))
    return msgspec.structs.replace(shape, allocatable=allocatable)
