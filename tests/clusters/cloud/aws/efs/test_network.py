"""The network of nodes as data, and on moto, a server that plays AWS."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.clusters.cloud.aws.efs.network import (
    NodeMachine,
    find_network,
    machines_of,
    one_for_each_zone,
    region_of,
)
from longboat.core.errors import Refused
from tests.clouds.aws.moto_cluster import REGION, ZONES, MotoCluster

IDS = ["aws:///us-east-1a/i-0123456789abcdef0", "kwok://x", "", "aws:///us-gov-west-1b/i-01234567", "gce://a/b/c"]


def test_machines_by_their_provider_ids() -> None:
    first, second = machines_of(IDS)
    assert (first.region, first.id) == ("us-east-1", "i-0123456789abcdef0")
    assert second.region == "us-gov-west-1"


def test_the_region() -> None:
    here, there = NodeMachine(id="i-1", region="us-east-1"), NodeMachine(id="i-2", region="eu-west-1")
    assert region_of([here, here], None) == region_of([here], "us-east-1") == region_of([], "us-east-1")
    for machines, given, words in (
        ([], None, "no node of this cluster is a machine of AWS"),
        ([here, there], None, "several regions"),
        ([here], "eu-west-1", "--region eu-west-1: the nodes of this cluster are in us-east-1"),
    ):
        with pytest.raises(Refused, match=words):
            region_of(machines, given)


def test_one_subnet_for_each_zone() -> None:
    def subnet(id: str, zone: str, free: int) -> dict[str, Any]:
        return {"SubnetId": id, "AvailabilityZone": zone, "AvailableIpAddressCount": free}

    chosen = one_for_each_zone(
        [subnet("s1", "b", 5), subnet("s2", "a", 5), subnet("s3", "b", 200), subnet("s0", "a", 5)]
    )
    assert chosen == {"a": "s0", "b": "s3"}


def test_it_is_found_from_the_machines_and_from_eks(moto: MotoCluster) -> None:
    group, machine = moto.machine(ZONES[0], is_of_eks=True)
    network = find_network(moto.session, machines_of([f"aws:///{ZONES[0]}/{machine}"]))
    assert network.groups == (group,) and network.cluster == moto.name and network.region == REGION
    assert list(network.subnets) == list(ZONES), "EKS names the zones that have no node"
    _, alone = moto.machine(ZONES[1], is_of_eks=False)
    network = find_network(moto.session, machines_of([f"aws:///{ZONES[1]}/{alone}"]))
    assert list(network.subnets) == [ZONES[1]] and not network.cluster
    with pytest.raises(Refused, match="EKS has no cluster missing in us-east-1"):
        find_network(moto.session, [], "missing")
    with pytest.raises(Refused, match="no network that AWS knows"):
        find_network(moto.session, [NodeMachine(id="i-0123456789abcdef9", region=REGION)])
