"""Auto Scaling groups out of AWS's answers: sizes, pools, labels, taints, orders that were taken back."""

from __future__ import annotations

from typing import Any

from longboat.autoscaler.providers.aws.groups import (
    facts_of_node_group,
    facts_of_tags,
    read_group,
    serving,
    with_cancelled,
)
from longboat.fitting.model.nodes import Taint

TEMPLATE = "k8s.io/cluster-autoscaler/node-template"


def group(name: str = "g", zones: tuple[str, ...] = ("a",), **more: Any) -> dict[str, Any]:
    return {
        "AutoScalingGroupName": name, "MinSize": 0, "MaxSize": 3, "AvailabilityZones": [*zones], "Instances": [], **more
    }  # fmt: skip


def test_a_group_of_ones_own_tells_its_nodes_by_tags() -> None:
    tags = {
        f"{TEMPLATE}/label/longboat.dev/pool": "train",
        f"{TEMPLATE}/taint/nvidia.com/gpu": "present:NoSchedule",
        f"{TEMPLATE}/resources/vpc.amazonaws.com/efa": "4",
        "Name": "x",
    }
    mine = read_group(group(Tags=[{"Key": key, "Value": value} for key, value in tags.items()]))
    market = {"MarketType": "spot"}
    facts = facts_of_tags(mine, {"InstanceType": "g5.xlarge", "InstanceMarketOptions": market})
    assert (facts.pool, facts.types, facts.spot) == ("train", ("g5.xlarge",), True)
    assert facts.labels == {"longboat.dev/pool": "train"} and facts.resources == {"vpc.amazonaws.com/efa": "4"}
    assert facts.taints == (Taint(key="nvidia.com/gpu", effect="NoSchedule", value="present"),)


def test_types_and_spot_of_a_mixed_group() -> None:
    policy = {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "3"},
            "Overrides": [{"InstanceType": "g5.xlarge"}, {"InstanceType": "g6.xlarge"}],
        },
        "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 0},
    }
    mine = read_group(group(MixedInstancesPolicy=policy))
    assert (mine.types, mine.spot, mine.template) == (("g5.xlarge", "g6.xlarge"), True, ("lt-1", "3"))


def test_an_image_without_driver_has_no_gpus() -> None:
    body = {"nodegroupName": "n", "instanceTypes": ["g5.xlarge"], "labels": {"longboat.dev/pool": "p"}}
    assert not facts_of_node_group({**body, "amiType": "AL2023_x86_64_STANDARD"}).has_gpus
    assert facts_of_node_group({**body, "amiType": "BOTTLEROCKET_x86_64_NVIDIA"}).has_gpus
    spot = facts_of_node_group({**body, "capacityType": "SPOT"})
    assert spot.spot and spot.labels["eks.amazonaws.com/capacityType"] == "SPOT"


def test_the_newest_group_of_a_zone_makes_its_machines() -> None:
    from datetime import datetime, timezone

    days = [datetime(2026, 11, day, tzinfo=timezone.utc) for day in (1, 2)]
    old = read_group(group("old", ("a", "b"), CreatedTime=days[0]))
    new = read_group(group("new", ("b", "c"), CreatedTime=days[1]))
    for groups in ((old, new), (new, old)):
        assert {zone: each.name for zone, each in serving(groups).items()} == {"a": "old", "b": "new", "c": "new"}


def test_the_newest_orders_that_were_taken_back_are_remembered() -> None:
    text = ""
    for number in range(40):
        text = with_cancelled(tuple(text.split()), [f"{number:016x}"])
        assert len(text) <= 256
    assert text.split() == [f"{number:016x}" for number in range(25, 40)]
    assert with_cancelled(("a", "b"), ["a"]) == "b a"


def test_whether_aws_moves_machines_between_zones() -> None:
    assert read_group(group()).rebalances
    assert not read_group(group(SuspendedProcesses=[{"ProcessName": "AZRebalance"}])).rebalances
