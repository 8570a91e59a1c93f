"""A file system with its mount targets on moto and ministack, servers that play AWS."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud.aws.efs import file_system
from longboat.clusters.cloud.aws.efs.file_system import (
    mount_targets,
    opens_nfs,
    prepare,
    server_of,
    token_of,
    unmount,
)
from longboat.clusters.cloud.aws.efs.network import NodeNetwork, find_network, machines_of
from longboat.clusters.cloud.aws.permissions import policy
from longboat.core.errors import EngineError, NotFound, Refused
from tests.clouds.aws.moto_cluster import REGION, ZONES, MotoCluster
from tests.clusters.cloud.conftest import Account

VOLUME = "research/data"


@pytest.fixture
def network(moto: MotoCluster) -> NodeNetwork:
    _, machine = moto.machine(ZONES[0], is_of_eks=True)
    return find_network(moto.session, machines_of([f"aws:///{ZONES[0]}/{machine}"]))


class Interrupted(Exception):
    pass


class Stopping(AwsSession):
    """Ends after so many requests that change something."""

    def __init__(self, changes: int) -> None:
        super().__init__(REGION)
        self.changes = changes

    def ask(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        if not operation.startswith("describe"):
            if not self.changes:
                raise Interrupted
            self.changes -= 1
        return super().ask(service, operation, **arguments)


def make(
    session: AwsSession, network: NodeNetwork, id: str | None = None, *, volume: str = VOLUME
) -> tuple[str, list[str]]:
    said: list[str] = []
    made = prepare(session, network, volume=volume, id=id, timeout_s=30.0, say=said.append)
    return made.id, said


@pytest.mark.parametrize("changes", range(5))  # file system, group, rule, two mount targets
def test_every_step_ended_and_resumed_makes_one(moto: MotoCluster, network: NodeNetwork, changes: int) -> None:
    with pytest.raises(Interrupted):
        make(Stopping(changes), network)
    id, said = make(moto.session, network)
    assert said[0] == f"{id}: {'was made before, and is used' if changes else 'made'}"
    assert [each["FileSystemId"] for each in systems(moto.session, token_of(network, VOLUME))] == [id]
    targets = mount_targets(moto.session, id)
    assert sorted(target.zone for target in targets) == list(ZONES)
    groups = moto.session.call("efs", "describe_mount_target_security_groups", MountTargetId=targets[0].id)
    (body,) = moto.session.call("ec2", "describe_security_groups", GroupIds=groups["SecurityGroups"])["SecurityGroups"]
    (rule,) = body["IpPermissions"]
    assert (rule["FromPort"], rule["ToPort"]) == (2049, 2049)
    assert [pair["GroupId"] for pair in rule["UserIdGroupPairs"]] == list(network.groups)
    assert make(Stopping(0), network)[0] == id, "whole: nothing is changed"
    assert make(moto.session, network, volume="research/more")[0] != id


def systems(session: AwsSession, token: str) -> list[dict[str, Any]]:
    return list(session.pages("efs", "describe_file_systems", "FileSystems", CreationToken=token))


def test_one_that_exists_gets_what_it_lacks(moto: MotoCluster, network: NodeNetwork) -> None:
    mine = moto.session.call("efs", "create_file_system", CreationToken=f"own-{moto.name}")["FileSystemId"]
    own, _ = moto.machine(ZONES[0], is_of_eks=False)
    first = network.subnets[ZONES[0]]
    moto.session.call("efs", "create_mount_target", FileSystemId=mine, SubnetId=first, SecurityGroups=[own])
    id, said = make(moto.session, network, mine)
    assert id == mine and f"{mine}: mount target in {ZONES[1]}" in said
    assert any(
        f"lets no NFS in from the nodes: allow TCP 2049 from {network.groups[0]} in {own}" in text for text in said
    ), "its own group is not changed"


def test_what_cannot_be_used(moto: MotoCluster, network: NodeNetwork) -> None:
    with pytest.raises(NotFound, match="EFS has no file system fs-0123456789abcdef0 in us-east-1"):
        make(moto.session, network, "fs-0123456789abcdef0")
    other = moto.session.call("ec2", "create_vpc", CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    where = {"VpcId": other, "CidrBlock": "10.7.0.0/24", "AvailabilityZone": ZONES[0]}
    subnet = moto.session.call("ec2", "create_subnet", **where)["Subnet"]["SubnetId"]
    mine = moto.session.call("efs", "create_file_system", CreationToken=f"else-{moto.name}")["FileSystemId"]
    moto.session.call("efs", "create_mount_target", FileSystemId=mine, SubnetId=subnet)
    with pytest.raises(Refused, match=f"{mine} is mounted in {other}, and the nodes are in {network.vpc}"):
        make(moto.session, network, mine)


def test_what_does_not_get_ready_in_time(
    moto: MotoCluster, network: NodeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "_state_of", lambda *_: "creating")
    with pytest.raises(EngineError, match="did not become available in time: creating") as caught:
        prepare(moto.session, network, volume=VOLUME, id=None, timeout_s=0.0, say=lambda _: None)
    assert caught.value.hint is not None and "the same command goes on" in caught.value.hint


def test_before_the_network_goes_the_mount_targets_go_and_the_data_stays(
    moto: MotoCluster, network: NodeNetwork
) -> None:
    id, _ = make(moto.session, network)
    unmount(moto.session, "another-cluster")
    assert len(mount_targets(moto.session, id)) == len(ZONES)
    unmount(moto.session, moto.name)
    unmount(moto.session, moto.name)
    assert mount_targets(moto.session, id) == []
    assert systems(moto.session, token_of(network, VOLUME))
    filters = [{"Name": "group-name", "Values": [f"longboat-{id}"]}]
    assert moto.session.call("ec2", "describe_security_groups", Filters=filters)["SecurityGroups"] == []


def test_with_the_rights_of_the_policy_and_without(account: Account) -> None:
    """ministack enforces policies."""
    admin = account.become({"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"})
    subnets = admin.call("ec2", "describe_subnets")["Subnets"][:2]
    vpc = subnets[0]["VpcId"]
    nodes = admin.call("ec2", "create_security_group", GroupName="efs-nodes", Description="d", VpcId=vpc)["GroupId"]
    zones = {each["AvailabilityZone"]: each["SubnetId"] for each in subnets}
    network = NodeNetwork(region=REGION, vpc=vpc, subnets=zones, groups=(nodes,), cluster="files")
    full = policy("files", REGION)
    without = [dict(each) for each in full["Statement"]]
    for statement in without:
        statement["Action"] = [each for each in statement["Action"] if each != "elasticfilesystem:CreateFileSystem"]
    account.user("efs-less", {**full, "Statement": without})
    with pytest.raises(EngineError, match="AWS does not let you efs:create_file_system") as caught:
        make(AwsSession(REGION), network)
    assert caught.value.hint is not None and "longboat cluster permissions" in caught.value.hint
    account.user("efs-enough", full)
    id, said = make(AwsSession(REGION), network)
    assert said[0] == f"{id}: made" and len(said) == 1 + len(zones)


def test_the_server_and_the_groups_as_data() -> None:
    assert server_of("fs-1", "eu-west-1") == "fs-1.efs.eu-west-1.amazonaws.com"
    assert server_of("fs-1", "cn-north-1") == "fs-1.efs.cn-north-1.amazonaws.com.cn"
    pair = {"UserIdGroupPairs": [{"GroupId": "sg-nodes"}]}
    nfs = {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049}
    for rule, is_open in (
        ({**nfs, **pair}, True),
        ({"IpProtocol": "-1", **pair}, True),
        ({**nfs, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}, True),
        ({**nfs, "UserIdGroupPairs": [{"GroupId": "sg-other"}]}, False),
        ({**nfs, "ToPort": 2048, "FromPort": 1, **pair}, False),
        ({**nfs, "IpProtocol": "udp", **pair}, False),
    ):
        assert opens_nfs({"IpPermissions": [rule]}, ["sg-nodes"]) is is_open, rule
