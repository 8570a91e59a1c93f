"""The AWS provider on moto's server: discovery, zones, errors in AWS's words, how often AWS is asked."""

from __future__ import annotations

import time

import msgspec
import pytest

from longboat.autoscaler.model.config import AutoscalerConfig
from longboat.autoscaler.observe.instances import list_instances
from longboat.autoscaler.observe.orders import OrderBook
from longboat.autoscaler.providers.provider import MachineRequest, ProviderError
from longboat.autoscaler.providers.registry import discover
from longboat.fitting.model.nodes import Taint
from tests.clouds.aws.moto_cluster import ZONES, MotoCluster

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}


def test_pools_are_discovered_from_the_cloud(moto: MotoCluster) -> None:
    moto.node_group("gpu", most=4, labels={"team": "vision"}, taints=[TAINT])
    moto.node_group("spot", "g5.xlarge", capacityType="SPOT", zones=ZONES[:1])
    moto.node_group(None, "m5.large")
    there = moto.provider().discover()
    gpu, spot = there.pools
    assert (gpu.name, gpu.provider, gpu.min, gpu.max, gpu.zones, gpu.spot) == ("gpu", "aws", 0, 4, ZONES, False)
    assert gpu.machine.has("nvidia.com/gpu") == 8 and 190_000 < gpu.machine.has("cpu") < 192_000
    assert gpu.machine.labels["team"] == "vision" and gpu.price == 55.04
    assert gpu.machine.labels["node.kubernetes.io/instance-type"] == "p5.48xlarge"
    assert gpu.machine.taints == (Taint(key="nvidia.com/gpu", effect="NoSchedule", value="present"),)
    assert spot.spot and spot.zones == ZONES[:1] and 0 < spot.price < 0.01  # moto's spot price
    (note,) = there.notes
    assert "is left alone: its nodes have no label longboat.dev/pool" in note


def test_a_pool_of_the_file_stands_for_that_of_the_cloud(moto: MotoCluster) -> None:
    moto.node_group("gpu")
    moto.node_group("cpu", "m5.large")
    provider = moto.provider()
    mine = msgspec.structs.replace(provider.discover().pools[1], max=2, is_estimated=False)
    pools, _ = discover((mine,), {"aws": provider.settings})
    assert [(pool.name, pool.max) for pool in pools] == [("cpu", 10), ("gpu", 2)]


def test_a_cluster_without_pools_is_told(moto: MotoCluster) -> None:
    with pytest.raises(ProviderError, match="the clouds show no pool"):
        discover((), {"aws": moto.provider().settings})


def test_machines_come_in_their_zone_and_stay_there(moto: MotoCluster) -> None:
    name = moto.node_group("gpu")
    provider = moto.provider()
    (pool,) = provider.discover().pools
    made = provider.grow(pool, MachineRequest(token="t", count=4, zone=ZONES[1]))
    assert [machine.id.rpartition("/")[0] for machine in made] == [f"aws:///{ZONES[1]}"] * 4
    body = moto.session.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[name])
    (group,) = body["AutoScalingGroups"]
    assert group["DesiredCapacity"] == 4  # AWS would end some of them to have two in each zone
    assert [each["ProcessName"] for each in group["SuspendedProcesses"]] == ["AZRebalance"]
    provider.shrink(pool, [machine.id for machine in made[:3]])
    body = moto.session.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[name])
    assert body["AutoScalingGroups"][0]["DesiredCapacity"] == 1


def test_an_order_of_which_some_machines_are_made(moto: MotoCluster) -> None:
    group = moto.node_group("gpu")
    provider = moto.provider()
    (pool,) = provider.discover().pools
    moto.refuse(group, "stockout", ZONES[0], after=1)
    with pytest.raises(ProviderError) as caught:
        provider.grow(pool, MachineRequest(token="t", count=3, zone=ZONES[0]))
    assert caught.value.kind == "stockout" and "InsufficientInstanceCapacity: We currently" in caught.value.message
    assert f"in {ZONES[0]}" in caught.value.message
    (machine,) = provider.list([pool]).machines
    assert machine.token == "t"


def test_a_spot_notice_is_seen(moto: MotoCluster) -> None:
    moto.node_group("spot", "g5.xlarge", capacityType="SPOT")
    provider = moto.provider()
    (pool,) = provider.discover().pools
    first, _ = provider.grow(pool, MachineRequest(token="t", count=2, zone=ZONES[0]))
    moto.control("notices", [first.id.rpartition("/")[2]])
    states = {machine.id: machine.state for machine in provider.list([pool]).machines}
    assert states.pop(first.id) == "stopping" and [*states.values()] == ["running"]


def test_more_machines_than_one_request_makes(moto: MotoCluster) -> None:
    moto.node_group("cpu", "m5.large", most=200)
    provider = moto.provider()
    (pool,) = provider.discover().pools
    for _ in range(2):
        assert len(provider.grow(pool, MachineRequest(token="t", count=101, zone=ZONES[0]))) == 101
    assert len(provider.list([pool]).machines) == 101


def test_a_group_that_is_gone_is_not_found(moto: MotoCluster) -> None:
    moto.node_group("gpu")
    (pool,) = moto.provider().discover().pools
    other = msgspec.structs.replace(pool, name="other")
    with pytest.raises(ProviderError) as caught:
        moto.provider().grow(other, MachineRequest(token="t", count=1, zone=ZONES[0]))
    assert caught.value.kind == "not-found"


def test_without_credentials_pools_are_off_and_the_reason_is_plain(
    moto: MotoCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    moto.node_group("gpu")
    (pool,) = moto.provider().discover().pools
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ProviderError) as caught:
        moto.provider().list([pool])
    assert caught.value.kind == "auth" and "Unable to locate credentials" in caught.value.message


def test_a_loop_with_three_pools_and_many_machines_asks_ten_times_at_most(moto: MotoCluster) -> None:
    """AWS is asked by pages of 1,000 machines, so 60 cost as many requests as 500: moto is slow with more."""
    moto.node_group("gpu", most=50)
    moto.node_group("cpu", "m5.large", most=500)
    moto.node_group("spot", "g5.xlarge", capacityType="SPOT", most=50)
    provider = moto.provider()
    pools = provider.discover().pools
    provider.grow(pools[0], MachineRequest(token="many", count=60, zone=ZONES[0]))
    config = AutoscalerConfig(pools=pools)
    moto.requests()
    seen = list_instances({"aws": provider}, config, OrderBook(), time.time())
    assert len(seen.seen.machines) == 60 and not seen.blind
    assert moto.requests() == ["DescribeAutoScalingGroups", "DescribeSpotInstanceRequests", "DescribeInstances"]
    for pool in pools:
        provider.grow(pool, MachineRequest(token=f"more-{pool.name}", count=2, zone=ZONES[1]))
    # A group in several zones is told once that AWS must not move its machines.
    orders = [name for name in moto.requests() if name != "SuspendProcesses"]
    assert orders == ["LaunchInstances", "CreateTags"] * 3
