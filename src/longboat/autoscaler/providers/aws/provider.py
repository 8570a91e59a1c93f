"""The AWS provider: machines of Auto Scaling groups, found by the cluster's tag.

An order is LaunchInstances with the order's token: it answers at once with machines or with errors of the zone, and
AWS makes nothing twice for a token. A machine goes by TerminateInstanceInAutoScalingGroup, which lowers the group's
size. A look is two requests, three where there are spot machines, however many machines there are.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from longboat.autoscaler.model.provider_settings import CloudSettings
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.providers.aws.errors import UNSETTLED, kind_of
from longboat.autoscaler.providers.aws.groups import (
    CLUSTER_TAG,
    REBALANCE,
    GroupFacts,
    ScalingGroup,
    facts_of_node_group,
    facts_of_tags,
    read_group,
    serving,
    with_cancelled,
)
from longboat.autoscaler.providers.aws.machines import Offers, pool_of, read_type
from longboat.autoscaler.providers.provider import (
    Description,
    DiscoveredPools,
    Instance,
    MachineRequest,
    MachineState,
    ProviderAnswer,
    ProviderError,
    describe_pool,
)
from longboat.clouds.aws.session import AwsFault, AwsSession
from longboat.clouds.aws.tags import CANCELLED_TAG, ORDER_TAG
from longboat.clouds.machine_types import shipped_table

ATTEMPTS = 2  # one more for a connection that broke; who is throttled pauses by itself
LAUNCHED_AT_ONCE = 100  # AWS launches no more by one request
FRESH_S = 10.0
"""So long the groups of the last look are believed when an order is sent: that of the same loop."""
UNLABELLED_S = 60.0
"""So long a group counts as one of no pool: a label that it gets is seen about as soon as pools are discovered."""
SPOT_GOING = ["marked-for-termination", "marked-for-stop", "marked-for-hibernation"]
"""Of a spot request: AWS takes the machine back within two minutes."""
_STATES: dict[str, MachineState] = {"pending": "pending", "running": "running"}
_ID = re.compile(r"i-[0-9a-f]{8,17}")
Machine = dict[str, Any]


class AwsProvider:
    def __init__(self, name: str, settings: CloudSettings) -> None:
        self.name, self.settings = name, settings
        self._session = AwsSession(settings.region, attempts=ATTEMPTS)
        self._facts: dict[str, GroupFacts] = {}
        self._unlabelled: dict[str, float] = {}  # groups of no pool -> when they were asked about
        self._groups: tuple[float, tuple[ScalingGroup, ...]] = (-FRESH_S, ())

    def list(self, pools: Sequence[Pool]) -> ProviderAnswer:
        groups = {group.name: self._facts_of(group).pool for group in self._read_groups()}
        wanted = {pool.name for pool in pools}
        mine = {name: pool for name, pool in groups.items() if pool in wanted and pool is not None}
        going = self._spot_notices() if any(pool.spot for pool in pools) else set()
        full = {group.name: f"its group is at its min of {group.min}" for group in self._groups[1] if group.is_at_min}
        machines = []
        for machine in self._machines(sorted(mine)):
            name = _tags(machine)["aws:autoscaling:groupName"]
            machines.append(_instance(machine, mine[name], going, full.get(name, "")))
        known = {machine.id.rpartition("/")[2] for machine in machines}
        for group in self._groups[1]:  # those that EC2's list, which comes later, does not have yet
            for id, zone, life in group.machines if group.name in mine else ():
                if id not in known and not life.startswith("Terminat"):
                    provider_id = f"aws:///{zone}/{id}"
                    machines.append(Instance(id=provider_id, pool=mine[group.name], state="pending", zone=zone))
        return ProviderAnswer(machines=tuple(machines))

    def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        group = self._group_for(pool, request.zone)
        if request.token in group.cancelled:
            return ()
        zone = request.zone or group.zones[0]
        if group.rebalances and len(group.zones) > 1:
            # Else AWS would end machines of a gang to have as many in every zone.
            self._ask("autoscaling", "suspend_processes", AutoScalingGroupName=group.name, ScalingProcesses=[REBALANCE])
        made: list[Instance] = []
        refusal: ProviderError | None = None
        for start in range(0, request.count, LAUNCHED_AT_ONCE):
            try:
                answer = self._ask(
                    "autoscaling",
                    "launch_instances",
                    AutoScalingGroupName=group.name,
                    RequestedCapacity=min(LAUNCHED_AT_ONCE, request.count - start),
                    ClientToken=f"{request.token}-{start}",
                    AvailabilityZones=[zone],
                    RetryStrategy="none",
                )
            except ProviderError as error:
                # Machines of this order exist already: put off, it is finished under its token and not dropped.
                error.is_unsettled = error.is_unsettled or (bool(made) and error.kind == "throttled")
                refusal = error
                break
            made += _launched(answer, pool.name, request.token)
            faults: Sequence[Mapping[str, Any]] = answer.get("Errors") or ()
            if faults:
                refusal = self._error(AwsFault(faults[0].get("ErrorCode", ""), faults[0].get("ErrorMessage", "")), zone)
                break
        if made:
            self._mark(made, request.token)
        if refusal is not None:
            raise refusal
        return tuple(made)

    def _mark(self, made: Sequence[Instance], token: str) -> None:
        """Write the order on its machines. They exist, whatever the answer is: the same token has to be sent again."""
        ids = [machine.id.rpartition("/")[2] for machine in made]
        try:
            self._session.ask("ec2", "create_tags", Resources=ids, Tags=[{"Key": ORDER_TAG, "Value": token}])
        except AwsFault as fault:
            error = self._error(fault)
            error.message += f" (marking the {len(ids)} machines of the order, which are made)"
            if error.kind != "auth":  # nothing is short: EC2 may not know the machines yet
                error.kind = "throttled"
            error.is_unsettled = True
            raise error from None

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        if tokens:
            self._cancel(pool, tokens)
        refusal: ProviderError | None = None
        for machine in machines:
            id = machine.rpartition("/")[2]
            if not _ID.fullmatch(id):
                continue
            try:
                self._ask(
                    "autoscaling",
                    "terminate_instance_in_auto_scaling_group",
                    InstanceId=id,
                    ShouldDecrementDesiredCapacity=True,
                )
            except ProviderError as error:
                if error.kind not in ("not-found", "min-size"):
                    raise
                refusal = error if error.kind == "min-size" else refusal  # the other machines go all the same
        if refusal is not None:
            raise refusal

    def describe(self, pool: Pool) -> Description:
        return describe_pool(pool, self.discover())

    def discover(self) -> DiscoveredPools:
        groups = [(group, self._facts_of(group)) for group in self._read_groups()]
        wanted = sorted({each for _, facts in groups if facts.pool for each in facts.types})
        offers = self._offers(wanted, any(facts.spot for _, facts in groups))
        by_pool: dict[str, list[tuple[ScalingGroup, GroupFacts]]] = {}
        notes = []
        for group, facts in groups:
            title = f"node group {group.node_group}" if group.node_group else f"Auto Scaling group {group.name}"
            unknown = [each for each in facts.types if each not in offers.types]
            if facts.pool is None:
                notes.append(f"{title} is left alone: its nodes have no label longboat.dev/pool")
            elif not facts.types or unknown:
                problem = f"AWS does not know its type {unknown[0]}" if unknown else "it names no machine type"
                notes.append(f"{title} is left alone: {problem}")
            else:
                by_pool.setdefault(facts.pool, []).append((group, facts))
                notes += [
                    f"pool {facts.pool}: the table of prices has no {each}: it counts as the dearest there is"
                    for each in facts.types
                    if each not in offers.table.machines
                ]
        region = self.settings.region
        pools = tuple(pool_of(name, self.name, region, mine, offers) for name, mine in sorted(by_pool.items()))
        return DiscoveredPools(pools=pools, notes=tuple(notes))

    def _offers(self, types: Sequence[str], has_spot: bool) -> Offers:
        bodies = self._pages("ec2", "describe_instance_types", "InstanceTypes", Filters=_filter("instance-type", types))
        spot: dict[tuple[str, str], float] = {}
        if has_spot and types:
            for price in self._pages(
                "ec2",
                "describe_spot_price_history",
                "SpotPriceHistory",
                InstanceTypes=[*types],
                ProductDescriptions=["Linux/UNIX"],
                StartTime=int(time.time()),  # those of now
            ):
                spot.setdefault((price["InstanceType"], price["AvailabilityZone"]), float(price["SpotPrice"]))
        known = [read_type(body) for body in bodies] if types else []
        return Offers(types={each.name: each for each in known}, table=shipped_table("aws"), spot=spot)

    # groups

    def _read_groups(self) -> tuple[ScalingGroup, ...]:
        tag = [{"Name": "tag-key", "Values": [CLUSTER_TAG + self.settings.cluster]}]
        bodies = self._pages("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", Filters=tag)
        groups = tuple(read_group(body) for body in bodies if body.get("Status") != "Delete in progress")
        self._groups = time.monotonic(), groups
        return groups

    def _facts_of(self, group: ScalingGroup) -> GroupFacts:
        """Asked once for each group of a pool: what its nodes are does not change with its size."""
        facts = self._facts.get(group.name)
        if facts is None or time.monotonic() - self._unlabelled.get(group.name, math.inf) >= UNLABELLED_S:
            facts = self._facts[group.name] = self._read_facts(group)
            self._unlabelled.pop(group.name, None)
            if facts.pool is None:
                self._unlabelled[group.name] = time.monotonic()
        return facts

    def _read_facts(self, group: ScalingGroup) -> GroupFacts:
        if group.node_group:
            names = {"clusterName": self.settings.cluster, "nodegroupName": group.node_group}
            return facts_of_node_group(self._ask("eks", "describe_nodegroup", **names)["nodegroup"])
        template: Mapping[str, Any] = {}
        if group.template is not None and not group.types:
            id, version = group.template
            versions = self._ask(
                "ec2", "describe_launch_template_versions", LaunchTemplateId=id, Versions=[version]
            ).get("LaunchTemplateVersions")
            template = versions[0]["LaunchTemplateData"] if versions else {}
        return facts_of_tags(group, template)

    def _groups_of(self, pool: Pool) -> tuple[ScalingGroup, ...]:
        read_at, groups = self._groups
        if time.monotonic() - read_at >= FRESH_S:
            groups = self._read_groups()
        mine = tuple(group for group in groups if self._facts_of(group).pool == pool.name)
        if not mine:
            raise ProviderError(f"provider {self.name}: AWS has no group of the pool {pool.name}", kind="not-found")
        return mine

    def _group_for(self, pool: Pool, zone: str | None) -> ScalingGroup:
        by_zone = serving(self._groups_of(pool))
        group = by_zone.get(zone) if zone else next(iter(by_zone.values()), None)
        if group is None:
            message = f"provider {self.name}: no group of the pool {pool.name} has the zone {zone}"
            raise ProviderError(message, kind="stockout")
        return group

    def _cancel(self, pool: Pool, tokens: Sequence[str]) -> None:
        """Write down, on all groups of the pool, that nothing is to be made of these orders."""
        tags = [
            {
                "ResourceId": group.name,
                "ResourceType": "auto-scaling-group",
                "Key": CANCELLED_TAG,
                "Value": with_cancelled(group.cancelled, tokens),
                "PropagateAtLaunch": False,
            }
            for group in self._groups_of(pool)
        ]
        self._ask("autoscaling", "create_or_update_tags", Tags=tags)
        self._groups = -FRESH_S, ()

    # machines

    def _machines(self, groups: Sequence[str]) -> Iterator[Machine]:
        if not groups:
            return
        filters = _filter("tag:aws:autoscaling:groupName", groups)
        filters += _filter("instance-state-name", ("pending", "running", "shutting-down", "stopping", "stopped"))
        reservations = self._pages("ec2", "describe_instances", "Reservations", Filters=filters, MaxResults=1000)
        for reservation in reservations:
            yield from reservation.get("Instances") or ()

    def _spot_notices(self) -> set[str]:
        requests = self._pages(
            "ec2",
            "describe_spot_instance_requests",
            "SpotInstanceRequests",
            Filters=_filter("status-code", SPOT_GOING),
        )
        return {request["InstanceId"] for request in requests if request.get("InstanceId")}

    # requests

    def _ask(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._session.ask(service, operation, **arguments)
        except AwsFault as fault:
            raise self._error(fault) from None

    def _pages(self, service: str, operation: str, key: str, **arguments: Any) -> Iterable[Any]:
        try:
            return [*self._session.pages(service, operation, key, raw=True, **arguments)]
        except AwsFault as fault:
            raise self._error(fault) from None

    def _error(self, fault: AwsFault, zone: str | None = None) -> ProviderError:
        kind = kind_of(fault.code, fault.message)
        where = f" in {zone}" if zone else ""
        words = " ".join(fault.message.split())[:600]
        hint = "longboat cluster permissions --autoscaler prints the policy that is needed" if kind == "auth" else None
        return ProviderError(
            f"provider {self.name}: {kind}{where}: {fault.code}: {words}",
            kind=kind,
            hint=hint,
            is_unsettled=fault.code in UNSETTLED,
        )


def _filter(name: str, values: Iterable[str]) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": [*values]}]


def _tags(machine: Machine) -> dict[str, str]:
    return {tag["Key"]: tag.get("Value") or "" for tag in machine.get("Tags") or ()}


def _instance(machine: Machine, pool: str, going: set[str], kept: str) -> Instance:
    zone, id = machine["Placement"]["AvailabilityZone"], machine["InstanceId"]
    is_going = id in going
    launched = machine.get("LaunchTime")
    return Instance(
        id=f"aws:///{zone}/{id}",
        pool=pool,
        state="stopping" if is_going else _STATES.get(machine["State"]["Name"], "stopping"),
        zone=zone,
        created=launched.timestamp() if launched is not None else None,
        token=_tags(machine).get(ORDER_TAG),
        node=machine.get("PrivateDnsName") or None,
        message="AWS takes this spot machine back within two minutes" if is_going else "",
        kept=kept,
    )


def _launched(answer: Mapping[str, Any], pool: str, token: str) -> Iterator[Instance]:
    for launched in answer.get("Instances") or ():
        zone = launched["AvailabilityZone"]
        for id in launched.get("InstanceIds") or ():
            yield Instance(id=f"aws:///{zone}/{id}", pool=pool, state="pending", zone=zone, token=token)
