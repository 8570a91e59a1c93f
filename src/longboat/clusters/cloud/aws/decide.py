"""What `up` and `down` do with the stack that they find, and what differs from the file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from longboat.clusters.cloud.aws.stack import ResourceEvent, StackView
from longboat.clusters.cloud.aws.templates.intrinsics import pool_id
from longboat.clusters.cloud.aws.templates.network_template import ZONES_PARAMETER
from longboat.clusters.cloud.aws.templates.pool_template import EFFECTS
from longboat.clusters.cloud.aws.templates.template import parameter_values
from longboat.clusters.cloud.labels import labels_of
from longboat.clusters.cloud.spec import CloudPool, CloudSpec
from longboat.core.errors import EngineError, LongboatError, Refused
from longboat.core.jobs import Value

Operation = Literal["create_stack", "update_stack", "follow"]

_FRESH = {"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE"}
_CANCELLED = "cancelled"


class NodeGroupView(Value, frozen=True):
    """A node group as it was seen."""

    name: str
    pool: str
    """Of its label; empty: it is not of the file."""
    status: str
    type: str = ""
    version: str = ""
    spot: bool = False
    min: int = 0
    max: int = 0
    desired: int = 0
    labels: dict[str, str] = {}
    taints: tuple[tuple[str, str, str], ...] = ()
    issues: tuple[str, ...] = ()


class ClusterView(Value, frozen=True):
    """A cluster on AWS as it was seen."""

    status: str
    version: str = ""
    endpoint: str = ""
    authority: str = ""
    access: tuple[str, ...] = ()
    groups: tuple[NodeGroupView, ...] = ()


def decide_up(stack: StackView | None, cluster: str) -> Operation:
    """What to do about the stack. Raises LongboatError where it cannot be changed."""
    if stack is None:
        return "create_stack"
    if stack.cluster != cluster:
        raise Refused(
            f"a stack of this name exists that is not of the cluster {cluster}: {stack.id}",
            hint="give the cluster another name",
        )
    if stack.status.startswith("DELETE_"):
        raise EngineError(
            f"{cluster} is being taken down: its stack is {stack.status}",
            hint=f"longboat cluster down {cluster}, then up",
        )
    if "ROLLBACK_IN_PROGRESS" in stack.status:
        raise EngineError(f"{cluster} goes back to what it was: {stack.status}", hint="up again when that has ended")
    if stack.is_busy:
        return "follow"
    if stack.status in _FRESH:
        return "update_stack"
    if stack.status == "UPDATE_ROLLBACK_FAILED":
        raise EngineError(
            f"the stack of {cluster} is stuck: {stack.status}: {stack.reason}",
            hint=f"aws cloudformation continue-update-rollback --stack-name {stack.id.split('/')[1]}, or down and up",
        )
    raise EngineError(
        f"the stack of {cluster} was not made: {stack.status}{f': {stack.reason}' if stack.reason else ''}",
        hint=f"longboat cluster down {cluster} --yes removes what is left of it, then up again",
    )


def parameters_of(
    spec: CloudSpec, stack: StackView | None, groups: Sequence[NodeGroupView], zones: tuple[str, ...]
) -> dict[str, str]:
    """Parameters for the stack: zones stay as they are, and a pool with a range keeps the machines that it has."""
    values = parameter_values(spec, zones)
    if (
        stack is not None
        and ZONES_PARAMETER in stack.parameters
        and ZONES_PARAMETER in values
        and not spec.network.zones
    ):
        values[ZONES_PARAMETER] = stack.parameters[ZONES_PARAMETER]
    sizes = {group.pool: group.desired for group in groups}
    for pool in spec.pools:
        if pool.min < pool.max and pool.name in sizes:
            values[f"{pool_id(pool.name)}Count"] = str(min(max(sizes[pool.name], pool.min), pool.max))
    return values


def failure_of(cluster: str, stack: StackView, events: Sequence[ResourceEvent]) -> LongboatError | None:
    """The error of a stack that did not become what was asked for, with the resource that failed. None: it did."""
    if stack.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE", "DELETE_COMPLETE"):
        return None
    failed = [event for event in events if event.state == "failed"]
    first = next((event for event in failed if _CANCELLED not in event.text.lower()), failed[0] if failed else None)
    reason = f"{first.resource} ({first.type}): {first.text}" if first else stack.reason or "no reason given"
    return EngineError(f"{cluster}: {stack.status}: {reason}", hint=_hint(reason, stack, cluster))


def _hint(reason: str, stack: StackView, cluster: str) -> str:
    lower = reason.lower()
    if stack.status.startswith("DELETE"):
        return "what still uses it must go first; the same command again tries what is left"
    if "vcpulimit" in lower or "limit" in lower or "quota" in lower:
        return "ask AWS for more under Service Quotas, or take fewer or smaller machines"
    if "insufficientinstancecapacity" in lower or "capacity" in lower:
        return "AWS has no such machines there now: other zones, another type, or a reservation"
    if "not authorized" in lower or "accessdenied" in lower:
        return "longboat cluster permissions prints the policy that is needed"
    if "already exists" in lower:
        return "something of this name is there already: give the cluster another name"
    if stack.status == "UPDATE_ROLLBACK_COMPLETE":
        return "the cluster is as it was before; mend what is named, then up again"
    return f"longboat cluster down {cluster} --yes removes what is left of it, then up again"


def drift(spec: CloudSpec, cluster: ClusterView, template: tuple[str, str]) -> list[str]:
    """What is not as the file says, as sentences. `template`: the one deployed and the file's."""
    lines = []
    if template[0] and template[0].strip() != template[1].strip():
        lines.append("the file has changed since the last `up`")
    if cluster.version != spec.version:
        lines.append(f"Kubernetes is {cluster.version}, the file has {spec.version}")
    if set(cluster.access) != set(spec.network.access):
        lines.append(
            f"the API server is reached from {', '.join(cluster.access)}, the file has {', '.join(spec.network.access)}"
        )
    groups: Mapping[str, NodeGroupView] = {group.pool: group for group in cluster.groups if group.pool}
    for pool in spec.pools:
        group = groups.get(pool.name)
        if group is not None and group.version not in ("", spec.version):
            lines.append(f"{pool.name}: Kubernetes is {group.version}, the file has {spec.version}")
        lines += [f"{pool.name}: there is no such node group"] if group is None else pool_drift(pool, group)
    names = {pool.name for pool in spec.pools}
    for group in cluster.groups:
        if group.pool not in names:
            lines.append(f"the node group {group.name} is not in the file")
    return lines


def pool_drift(pool: CloudPool, group: NodeGroupView) -> list[str]:
    lines = []
    if group.type != pool.type:
        lines.append(f"{pool.name}: machines are {group.type}, the file has {pool.type}")
    if group.spot != pool.spot:
        lines.append(f"{pool.name}: machines are {'spot' if group.spot else 'on demand'}, the file says otherwise")
    if (group.min, group.max) != (pool.min, pool.max):
        lines.append(f"{pool.name}: size is {group.min} to {group.max}, the file has {pool.min} to {pool.max}")
    elif pool.min == pool.max and group.desired != pool.count:
        lines.append(f"{pool.name}: {group.desired} machines are asked for, the file has {pool.count}")
    if group.labels != labels_of(pool):
        lines.append(f"{pool.name}: labels are {_shown(group.labels)}, the file has {_shown(labels_of(pool))}")
    wanted = {(taint.key, taint.value, EFFECTS[taint.effect]) for taint in pool.taints}
    if set(group.taints) != wanted:
        lines.append(f"{pool.name}: taints differ from the file's")
    lines += [f"{pool.name}: {issue}" for issue in group.issues]
    return lines


def _shown(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"
