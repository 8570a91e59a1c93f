"""Makes a cluster on AWS, or changes it to what its file says: look, check, deploy the stack, follow it to its end.

Everything is read from AWS: after an interruption the same call goes on. Add-ons inside the cluster are not its task.
"""

from __future__ import annotations

from collections.abc import Callable

from longboat.clouds.aws.session import AwsSession, NoSuchResource
from longboat.clouds.machine_types import MachineTable
from longboat.clusters.cloud.aws.decide import ClusterView, Operation, decide_up, failure_of, parameters_of
from longboat.clusters.cloud.aws.observe import see_cluster, see_quotas, see_region, see_use
from longboat.clusters.cloud.aws.preflight import check_version, choose_zones, quota_of, quota_problems
from longboat.clusters.cloud.aws.stack import ClusterStack, Listen, ResourceEvent, StackView
from longboat.clusters.cloud.aws.templates.template import template_text
from longboat.clusters.cloud.spec import CloudSpec
from longboat.core.errors import EngineError, Refused
from longboat.core.jobs import Value

Warn = Callable[[str], None]
_LARGEST_TEMPLATE = 51_200  # bytes that CloudFormation takes in a request


class UpPlan(Value, frozen=True):
    """What `up` would do: printable, and all that it needs."""

    operation: Operation
    template: str
    parameters: dict[str, str]
    stack: str | None = None
    """Id of the stack that exists."""


class AwsUp:
    """`up` of one cluster."""

    def __init__(self, name: str, spec: CloudSpec, session: AwsSession) -> None:
        self.name, self.spec, self.session = name, spec, session
        self.stack = ClusterStack(session, name)

    def plan(self, table: MachineTable, warn: Warn) -> UpPlan:
        """Look and decide; nothing is changed. Raises LongboatError for what can be known beforehand."""
        view = self.stack.look()
        operation = decide_up(view, self.name)
        cluster = see_cluster(self.session, self.name)
        zones: tuple[str, ...] = ()
        if operation == "create_stack":
            if cluster is not None:
                raise Refused(
                    f"EKS has a cluster {self.name} in {self.spec.region} already, which Longboat did not make",
                    hint="give the cluster another name, or take it as it is: kind: existing",
                )
            zones = self._check_region(table, warn)
        groups = cluster.groups if cluster else ()
        template = template_text(self.name, self.spec)
        if len(template) > _LARGEST_TEMPLATE:
            raise Refused(
                f"the template has {len(template):,} bytes, and CloudFormation takes {_LARGEST_TEMPLATE:,}",
                hint="fewer pools or labels; or longboat cluster render, and deploy it from a bucket",
            )
        return UpPlan(
            operation=operation,
            template=template,
            parameters=parameters_of(self.spec, view, groups, zones),
            stack=view.id if view else None,
        )

    def _check_region(self, table: MachineTable, warn: Warn) -> tuple[str, ...]:
        region = see_region(self.session, self.spec)
        check_version(self.spec, region)
        zones = choose_zones(self.spec, region)
        if not self.spec.network.is_new:
            self._check_subnets()
        known = [quota_of(pool.type, spot=pool.spot) for pool in self.spec.pools]
        quotas = see_quotas(self.session, sorted({quota[0] for quota in known if quota is not None}))
        now, later = quota_problems(self.spec, table, quotas, see_use(self.session, table) if quotas else {})
        for text in later:
            warn(f"with every pool at its largest: {text}")
        if now:
            raise Refused(f"the account may not have so many machines: {'; '.join(now)}", hint="Service Quotas of EC2")
        return zones

    def _check_subnets(self) -> None:
        network = self.spec.network
        ids = [subnet for _, subnet in network.subnets]
        try:
            answer = self.session.call("ec2", "describe_subnets", SubnetIds=ids)
        except NoSuchResource as missing:
            raise Refused(
                f"network.subnets: {missing}", hint=f"subnets of {network.vpc} in {self.spec.region}"
            ) from None
        places = {each["SubnetId"]: (each["VpcId"], each["AvailabilityZone"]) for each in answer["Subnets"]}
        for zone, subnet in network.subnets:
            if places.get(subnet) != (network.vpc, zone):
                vpc, other = places.get(subnet, ("no network", "no zone"))
                raise Refused(f"{subnet} is of {vpc} in {other}, and the file has {network.vpc} in {zone}")

    def apply(self, plan: UpPlan, listen: Listen) -> bool:
        """Deploy and follow. False: there was nothing to change. Raises EngineError with what failed first."""
        is_own = plan.operation != "follow"
        if is_own:
            outcome = self.stack.deploy(plan.operation, plan.template, plan.parameters, dict(self.spec.tags))
            if outcome == "nothing":
                return False
            is_own = outcome == "begun"
        view = self._follow(listen)
        # What was in progress may be of another file: now this one's turn.
        return is_own or self.apply(self.again(view, plan), listen) or True

    def again(self, view: StackView, plan: UpPlan) -> UpPlan:
        cluster = see_cluster(self.session, self.name)
        parameters = parameters_of(self.spec, view, cluster.groups if cluster else (), ())
        return UpPlan(operation="update_stack", template=plan.template, parameters=parameters, stack=view.id)

    def _follow(self, listen: Listen) -> StackView:
        view = self.stack.look()
        if view is None:
            raise EngineError(
                f"the stack of {self.name} is gone", hint="was it taken down meanwhile? up again makes it"
            )
        events: list[ResourceEvent] = []

        def hear(event: ResourceEvent) -> None:
            events.append(event)
            listen(event)

        view = self.stack.follow(view.id, hear)
        if failure := failure_of(self.name, view, events):
            raise failure
        return view

    def result(self) -> tuple[StackView, ClusterView]:
        """The stack and the cluster as they are in the end."""
        view, cluster = self.stack.look(), see_cluster(self.session, self.name)
        if view is None or cluster is None:
            raise EngineError(f"{self.name} is gone", hint="was it taken down meanwhile?")
        return view, cluster
