"""The Google provider: machines of the managed instance groups of GKE's node pools.

An order names its machines, with its token in the names: the group makes each name once. What could not be made is told
by the group's list, where a machine stays until it is deleted. Deleting machines by name lowers the group's size.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from longboat.autoscaler.model.provider_settings import CloudSettings
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.providers.gcp.errors import kind_of
from longboat.autoscaler.providers.gcp.groups import (
    MACHINE_ID,
    GroupMachine,
    InstanceGroup,
    NodePool,
    cancelled_of,
    machine_names,
    read_machine,
    read_pool,
    with_cancelled,
)
from longboat.autoscaler.providers.gcp.machines import GoogleMachineType, pool_of, read_type
from longboat.autoscaler.providers.gcp.resize_requests import ResizeRequest, ResizeRequests, waiting_machines
from longboat.autoscaler.providers.provider import (
    Description,
    DiscoveredPools,
    Instance,
    MachineRequest,
    ProviderAnswer,
    ProviderError,
    Refusal,
    describe_pool,
)
from longboat.clouds.gcp.session import GoogleSession
from longboat.clouds.machine_types import shipped_table
from longboat.clouds.rest import Body, RestFault, fault_of

ATTEMPTS = 4  # of a note that meets somebody else's
AT_ONCE = 1000  # machines that Google makes or deletes by one request
LOOKS_S = (0.0, 1.0)
"""When machines are looked at right after they were ordered: what fails later is told by the next list."""
KNOWN_S = 600.0  # so long what GKE says about its node pools is believed
_TOKEN = re.compile(r"[a-z0-9]{1,24}")


class GoogleProvider:
    def __init__(self, name: str, settings: CloudSettings) -> None:
        self.name, self.settings = name, settings
        self._session = GoogleSession()
        self._project = settings.project
        self._pools: tuple[float, tuple[NodePool, ...]] | None = None
        self._bases: dict[InstanceGroup, str] = {}
        self._told: dict[InstanceGroup, frozenset[str]] = {}  # requests that had ended when the last list was given

    def list(self, pools: Sequence[Pool]) -> ProviderAnswer:
        wanted = {pool.name for pool in pools}
        machines: list[Instance] = []
        refusals: list[Refusal] = []
        ended: dict[InstanceGroup, frozenset[str]] = {}
        for node_pool in self._node_pools():
            if node_pool.pool not in wanted or node_pool.pool is None or node_pool.is_managed:
                continue
            there = [machine for group in node_pool.groups for machine in self._machines(group)]
            if node_pool.flex_start:
                for group in node_pool.groups:
                    with self._errors(group.zone):
                        requests = self._resizes(group).list()
                    ended[group] = frozenset(each.token for each in requests if not each.is_waiting)
                    there += waiting_machines(requests, group.zone, there)
                    refusals += [self._refusal(node_pool.pool, each, group.zone) for each in requests if each.is_failed]
            alive = sum(machine.state != "stopping" for machine in there)
            kept = f"its node pool is at its min of {node_pool.min}" if 0 < node_pool.min >= alive else ""
            machines += [self._instance(machine, node_pool.pool, kept) for machine in there]
            for machine in there:
                if machine.state == "failed" and machine.token:
                    refusals.append(self._refusal(node_pool.pool, machine, machine.zone))
        self._told = ended
        return ProviderAnswer(machines=tuple(machines), refusals=tuple(refusals))

    def _refusal(self, pool: str, failed: GroupMachine | ResizeRequest, zone: str) -> Refusal:
        error = self._error(RestFault(200, failed.code, failed.message), zone)
        return Refusal(pool=pool, kind=error.kind, token=failed.token, zone=zone, message=error.message)

    def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        if not _TOKEN.fullmatch(request.token):
            raise ProviderError(f"provider {self.name}: the token {request.token!r} is no part of a name")
        group = self._group_for(pool, request.zone)
        if request.token in cancelled_of(self._ports(group).get("namedPorts") or ()):
            return ()
        if self._node_pool(pool).flex_start:
            return self._order_at_once(group, pool, request)
        there = {machine.name for machine in self._machines(group)}
        names = [name for name in self._names(group, request) if name not in there]
        for start in range(0, len(names), AT_ONCE):
            self._create(group, names[start : start + AT_ONCE])
        return self._follow(group, pool, request)

    def _order_at_once(self, group: InstanceGroup, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        """All machines or none: Google waits until it has room for all of them."""
        resizes = self._resizes(group)
        with self._errors(group.zone):
            ordered = resizes.find(request.token)
            if ordered is None:
                resizes.order(request.token, self._names(group, request), self._told.get(group, ()))
        for pause in LOOKS_S:
            time.sleep(pause)
            with suppress(RestFault):
                ordered = resizes.find(request.token) or ordered
            if ordered is not None and ordered.is_failed:
                raise self._error(RestFault(200, ordered.code, ordered.message), group.zone)
            if ordered is not None and ordered.state == "SUCCEEDED":
                break
        if ordered is None or ordered.state == "CANCELLED":
            return ()
        with suppress(ProviderError):
            there = self._machines(group)
            mine = [*(each for each in there if each.token == request.token)]
            mine += waiting_machines([ordered], group.zone, there)
            return tuple(self._instance(machine, pool.name, "") for machine in mine)
        return ()

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        if tokens:
            self._cancel(pool, tokens)
        ids = [match for machine in machines if (match := MACHINE_ID.fullmatch(machine))]
        wanted = {(match["zone"], match["name"]) for match in ids if match["project"] == self._need_project()}
        if not wanted:
            return
        node_pool = self._node_pool(pool)
        there = {group: self._machines(group) for group in node_pool.groups}
        alive = sum(machine.state != "stopping" for mine in there.values() for machine in mine)
        room = max(alive - node_pool.min, 0)
        kept = 0
        for group, mine in there.items():
            going = [machine for machine in mine if (machine.zone, machine.name) in wanted]
            going = [machine for machine in going if machine.state != "stopping"]
            kept += max(len(going) - room, 0)
            self._delete(group, going[:room])
            if node_pool.flex_start:
                self._cancel_waiting(group, {name for zone, name in wanted if zone == group.zone})
            room -= len(going[:room])
        if kept:
            message = f"provider {self.name}: min-size: the node pool {node_pool.name} is at its min of {node_pool.min}"
            raise ProviderError(message, kind="min-size")

    def describe(self, pool: Pool) -> Description:
        return describe_pool(pool, self.discover())

    def discover(self) -> DiscoveredPools:
        self._pools = None
        pools: dict[str, Pool] = {}
        notes: list[str] = []
        table = shipped_table("gcp")
        region = "-".join(self.settings.region.split("-")[:2])
        for node_pool in self._node_pools():
            problem = _problem(node_pool, pools)
            if problem:
                notes.append(f"node pool {node_pool.name} is left alone: {problem}")
                continue
            if node_pool.type not in table.machines:
                unknown = f"the table of prices has no {node_pool.type}"
                notes.append(f"pool {node_pool.pool}: {unknown}: it counts as the dearest there is")
            kind = self._type(node_pool.groups[0].zone, node_pool.type)
            pools[str(node_pool.pool)] = pool_of(self.name, region, node_pool, kind, table)
        return DiscoveredPools(pools=tuple(pools[name] for name in sorted(pools)), notes=tuple(notes))

    # node pools and their groups

    def _node_pools(self) -> tuple[NodePool, ...]:
        if self._pools is None or time.monotonic() - self._pools[0] >= KNOWN_S:
            path = f"projects/{self._need_project()}/locations/{self.settings.region}/clusters/{self.settings.cluster}"
            with self._errors():
                body = self._session.container("GET", path)
            pools = sorted((read_pool(each) for each in body.get("nodePools") or ()), key=lambda each: each.name)
            self._pools = time.monotonic(), tuple(pools)
        return self._pools[1]

    def _node_pool(self, pool: Pool) -> NodePool:
        for each in self._node_pools():
            if each.pool == pool.name and not each.is_managed:
                return each
        raise ProviderError(f"provider {self.name}: GKE has no node pool of the pool {pool.name}", kind="not-found")

    def _group_for(self, pool: Pool, zone: str | None) -> InstanceGroup:
        groups = self._node_pool(pool).groups
        group = next((each for each in groups if zone in (None, each.zone)), None)
        if group is None:
            message = f"provider {self.name}: no group of the pool {pool.name} has the zone {zone}"
            raise ProviderError(message, kind="stockout")
        return group

    def _names(self, group: InstanceGroup, request: MachineRequest) -> tuple[str, ...]:
        if group not in self._bases:
            with self._errors():
                body = self._session.compute("GET", self._manager(group))
            self._bases[group] = body.get("baseInstanceName") or group.name
        return machine_names(self._bases[group], request.token, request.count)

    def _cancel(self, pool: Pool, tokens: Sequence[str]) -> None:
        """Write down, on all groups of the pool, that nothing is to be made of these orders.

        Raises ProviderError if a group does not have the note in the end: a late order would be carried out.
        """
        refusal: ProviderError | None = None
        node_pool = self._node_pool(pool)
        for group in node_pool.groups:
            for _ in range(ATTEMPTS):
                there = self._ports(group)
                ports = with_cancelled(there.get("namedPorts") or (), tokens)
                body = {"namedPorts": ports, "fingerprint": there.get("fingerprint") or ""}
                try:
                    self._session.compute("POST", f"{self._path(group, 'instanceGroups')}/setNamedPorts", body)
                    break
                except RestFault as fault:
                    if fault.status != 412:  # somebody has changed them meanwhile
                        raise self._error(fault, group.zone) from None
            else:  # the other groups get their note all the same
                message = f"provider {self.name}: throttled: the group {group.name} is changed by others all the time"
                refusal = ProviderError(message, kind="throttled")
        if refusal is not None:
            raise refusal
        for group in node_pool.groups if node_pool.flex_start else ():
            with self._errors(group.zone):
                for token in tokens:
                    self._resizes(group).cancel(token)

    def _cancel_waiting(self, group: InstanceGroup, names: set[str]) -> None:
        """An order of which a machine is not wanted any more, while it waits for room: it is made as a whole or not."""
        with self._errors(group.zone):
            for each in self._resizes(group).list():
                if each.is_waiting and names & {*each.names}:
                    self._resizes(group).cancel(each.token)

    def _resizes(self, group: InstanceGroup) -> ResizeRequests:
        return ResizeRequests(self._session, self._manager(group))

    def _ports(self, group: InstanceGroup) -> Body:
        with self._errors():
            return self._session.compute("GET", self._path(group, "instanceGroups"))

    def _path(self, group: InstanceGroup, kind: str) -> str:
        return f"projects/{self._need_project()}/zones/{group.zone}/{kind}/{group.name}"

    def _manager(self, group: InstanceGroup) -> str:
        return self._path(group, "instanceGroupManagers")

    # machines

    def _machines(self, group: InstanceGroup) -> tuple[GroupMachine, ...]:
        path = f"{self._manager(group)}/listManagedInstances"
        with self._errors(group.zone):
            bodies = [*self._session.items("POST", path, "managedInstances", {"maxResults": "500"})]
        return tuple(read_machine(body, group.zone) for body in bodies)

    def _create(self, group: InstanceGroup, names: Sequence[str]) -> None:
        body = {"instances": [{"name": name} for name in names]}
        with self._errors(group.zone):
            operation = self._session.compute("POST", f"{self._manager(group)}/createInstances", body)
        if operation.get("error"):
            raise self._error(fault_of(200, operation["error"]), group.zone)

    def _follow(self, group: InstanceGroup, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        """What is known of an order that was taken: it stays so whatever cannot be asked now."""
        mine: list[GroupMachine] = []
        for pause in LOOKS_S:
            time.sleep(pause)
            with suppress(ProviderError):
                mine = [machine for machine in self._machines(group) if machine.token == request.token]
            failed = [machine for machine in mine if machine.state == "failed"]
            if failed:
                # The group would go on trying, and make them by surprise when there is room.
                with suppress(ProviderError):
                    self._delete(group, failed)
                raise self._error(RestFault(200, failed[0].code, failed[0].message), group.zone)
            if len(mine) >= request.count and all(machine.state == "running" for machine in mine):
                break
        return tuple(self._instance(machine, pool.name, "") for machine in mine)

    def _delete(self, group: InstanceGroup, machines: Sequence[GroupMachine]) -> None:
        for start in range(0, len(machines), AT_ONCE):
            paths = [machine.path for machine in machines[start : start + AT_ONCE]]
            body = {"instances": paths, "skipInstancesOnValidationError": True}
            with self._errors(group.zone):
                self._session.compute("POST", f"{self._manager(group)}/deleteInstances", body)

    def _type(self, zone: str, name: str) -> GoogleMachineType:
        with self._errors(zone):
            return read_type(
                self._session.compute("GET", f"projects/{self._need_project()}/zones/{zone}/machineTypes/{name}")
            )

    def _instance(self, machine: GroupMachine, pool: str, kept: str) -> Instance:
        return Instance(
            id=f"gce://{self._need_project()}/{machine.zone}/{machine.name}",
            pool=pool,
            state=machine.state,
            zone=machine.zone,
            token=machine.token,
            node=machine.name,
            message=f"{machine.code}: {machine.message}" if machine.code else machine.message,
            kept=kept,
        )

    # errors

    def _need_project(self) -> str:
        if not self._project:
            with self._errors():
                self._project = self._session.project()
        if not self._project:
            hint = "write `project` into the pools file, or set GOOGLE_CLOUD_PROJECT"
            raise ProviderError(f"provider {self.name}: no project of Google Cloud is named", kind="auth", hint=hint)
        return self._project

    @contextmanager
    def _errors(self, zone: str | None = None) -> Iterator[None]:
        try:
            yield
        except RestFault as fault:
            raise self._error(fault, zone) from None

    def _error(self, fault: RestFault, zone: str | None = None) -> ProviderError:
        kind = kind_of(fault.status, fault.code, fault.reasons)
        where = f" in {zone}" if zone else ""
        cause = next((reason for reason in fault.reasons if not reason.isdecimal()), fault.code)
        return ProviderError(
            f"provider {self.name}: {kind}{where}: {cause}: {fault.message[:600]}",
            kind=kind,
            hint="docs/autoscaler.md, gcp, lists the rights that it needs" if kind == "auth" else None,
            is_unsettled=kind == "throttled" and fault.is_unsettled,
        )


def _problem(node_pool: NodePool, known: dict[str, Pool]) -> str:
    """Why a node pool cannot be a pool."""
    if node_pool.pool is None:
        return "its nodes have no label longboat.dev/pool"
    if node_pool.is_managed:
        return "GKE's own autoscaler changes its size; gcloud container clusters update --no-enable-autoscaling ends it"
    if node_pool.max is None:
        return "its resources have no label longboat-max: how many machines it may have"
    if not node_pool.groups:
        return "it has no instance groups"
    return f"another one is the pool {node_pool.pool} already" if node_pool.pool in known else ""
