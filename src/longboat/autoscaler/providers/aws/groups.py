"""Auto Scaling groups of a cluster as values, out of AWS's answers: sizes, zones, machines, which pool they are. Pure.

A group belongs to the cluster by the tag `kubernetes.io/cluster/NAME`, and to a pool by the label `longboat.dev/pool`
of its nodes: in the managed node group, or in a tag as the cluster-autoscaler reads them. Several groups may be one
pool, one in each zone for instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from longboat.autoscaler.model.snapshot import POOL_LABEL
from longboat.clouds.aws.tags import CANCELLED_TAG
from longboat.core.jobs import Value
from longboat.fitting.model.nodes import Taint

NODE_GROUP = "eks:nodegroup-name"
CLUSTER_TAG = "kubernetes.io/cluster/"
TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
"""Begins tags of a group of one's own that tell labels, taints and resources of its nodes."""
REBALANCE = "AZRebalance"
LONGEST_TAG = 256  # AWS takes no longer value
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


class ScalingGroup(Value, frozen=True):
    """One Auto Scaling group, as it is now."""

    name: str
    min: int
    max: int
    zones: tuple[str, ...]
    created: float
    tags: dict[str, str]
    machines: tuple[tuple[str, str, str], ...]  # id, zone, state in its life
    types: tuple[str, ...] = ()  # of a group of one's own, where it names them
    template: tuple[str, str] | None = None  # launch template and version
    spot: bool = False  # of a group of one's own
    rebalances: bool = True  # AWS ends machines in one zone to make others elsewhere
    desired: int = 0

    @property
    def is_at_min(self) -> bool:
        """AWS refuses to make it smaller, whatever other groups of its pool have."""
        return self.min > 0 and self.desired <= self.min

    @property
    def node_group(self) -> str | None:
        return self.tags.get(NODE_GROUP)

    @property
    def cancelled(self) -> tuple[str, ...]:
        return tuple(self.tags.get(CANCELLED_TAG, "").split())


class GroupFacts(Value, frozen=True):
    """What the nodes of a group will be."""

    pool: str | None
    types: tuple[str, ...]
    spot: bool
    labels: dict[str, str]
    taints: tuple[Taint, ...] = ()
    has_gpus: bool = True  # its image has the driver
    resources: dict[str, str] = {}


def read_group(body: Mapping[str, Any]) -> ScalingGroup:
    mixed = body.get("MixedInstancesPolicy") or {}
    wanted = mixed.get("LaunchTemplate") or {}
    template = body.get("LaunchTemplate") or wanted.get("LaunchTemplateSpecification") or {}
    on_demand = (mixed.get("InstancesDistribution") or {}).get("OnDemandPercentageAboveBaseCapacity", 100)
    created = body.get("CreatedTime")
    return ScalingGroup(
        name=body["AutoScalingGroupName"],
        min=body["MinSize"],
        max=body["MaxSize"],
        zones=tuple(sorted(body.get("AvailabilityZones") or ())),
        created=created.timestamp() if isinstance(created, datetime) else 0.0,
        tags={tag["Key"]: tag.get("Value") or "" for tag in body.get("Tags") or ()},
        machines=tuple(
            (machine["InstanceId"], machine["AvailabilityZone"], machine["LifecycleState"])
            for machine in body.get("Instances") or ()
        ),
        types=tuple(each["InstanceType"] for each in wanted.get("Overrides") or () if each.get("InstanceType")),
        template=(template["LaunchTemplateId"], template.get("Version") or "$Default") if template else None,
        spot=bool(mixed) and int(on_demand) == 0,
        rebalances=all(each["ProcessName"] != REBALANCE for each in body.get("SuspendedProcesses") or ()),
        desired=body.get("DesiredCapacity", len(body.get("Instances") or ())),
    )


def facts_of_node_group(body: Mapping[str, Any]) -> GroupFacts:
    """Of a managed node group, as EKS describes it."""
    labels = dict(body.get("labels") or {})
    image = body.get("amiType") or "CUSTOM"
    spot = body.get("capacityType") == "SPOT"
    known = {
        "eks.amazonaws.com/nodegroup": body["nodegroupName"],
        "eks.amazonaws.com/capacityType": "SPOT" if spot else "ON_DEMAND",
    }
    return GroupFacts(
        pool=labels.get(POOL_LABEL),
        types=tuple(body.get("instanceTypes") or ()),
        spot=spot,
        labels={**known, **labels},
        taints=tuple(
            Taint(key=each["key"], effect=_EFFECTS.get(each["effect"], each["effect"]), value=each.get("value") or "")
            for each in body.get("taints") or ()
        ),
        has_gpus=image == "CUSTOM" or "GPU" in image or "NVIDIA" in image,
    )


def facts_of_tags(group: ScalingGroup, template: Mapping[str, Any]) -> GroupFacts:
    """Of a group of one's own: its tags, and its launch template's data."""
    labels, resources, taints = {}, {}, []
    for key, value in group.tags.items():
        kind, _, name = key.removeprefix(TEMPLATE).partition("/") if key.startswith(TEMPLATE) else ("", "", "")
        if kind == "label":
            labels[name] = value
        elif kind == "resources":
            resources[name] = value
        elif kind == "taint":
            taint, _, effect = value.rpartition(":")
            taints.append(Taint(key=name, effect=effect, value=taint))
    named = template.get("InstanceType")
    market = (template.get("InstanceMarketOptions") or {}).get("MarketType")
    return GroupFacts(
        pool=labels.get(POOL_LABEL) or group.tags.get(POOL_LABEL),
        types=group.types or ((named,) if named else ()),
        spot=group.spot or market == "spot",
        labels=labels,
        taints=tuple(taints),
        resources=resources,
    )


def serving(groups: Iterable[ScalingGroup]) -> dict[str, ScalingGroup]:
    """Zone -> the group of a pool that makes machines there: the newest, while an older one is replaced by it."""
    chosen: dict[str, ScalingGroup] = {}
    for group in sorted(groups, key=lambda group: (group.created, group.name)):
        chosen |= dict.fromkeys(group.zones, group)
    return chosen


def with_cancelled(before: tuple[str, ...], tokens: Iterable[str]) -> str:
    """The value of the tag that names orders of which nothing is to be made: the newest that have room in it."""
    text = " ".join(dict.fromkeys((*(token for token in before if token not in set(tokens)), *tokens)))
    while len(text) > LONGEST_TAG:
        text = text.partition(" ")[2]
    return text
