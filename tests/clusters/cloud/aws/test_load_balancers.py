"""What Kubernetes made in the network of a cluster goes with it, and what is of others stays. ministack plays AWS.

It has no balancers of the classic kind: for these see the end.
"""

from __future__ import annotations

import pytest

from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud.aws import load_balancers
from longboat.clusters.cloud.aws.load_balancers import ClusterBalancers
from longboat.clusters.cloud.aws.permissions import policy
from longboat.clusters.cloud.aws.stack import ResourceEvent
from tests.clouds.aws.moto_cluster import ZONES, MotoCluster
from tests.clusters.cloud import servers
from tests.clusters.cloud.aws.test_up_down import LISTED, say, write
from tests.clusters.cloud.conftest import Account

CONTROLLER = "elbv2.k8s.aws/cluster"
NO_FILES = ("storage: efs\n", "")


def tags(**pairs: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in pairs.items()]


def own(cluster: str) -> list[dict[str, str]]:
    return tags(**{f"kubernetes.io/cluster/{cluster}": "owned"})


def vpc_of(aws: AwsSession, cluster: str) -> str:
    """That of its stack; for EKS the server names another one, which does not exist."""
    vpc = next(iter(ClusterBalancers(aws, cluster).networks() - {"vpc-00000000"}))
    assert aws.call("ec2", "describe_vpcs", VpcIds=[vpc])["Vpcs"][0]["CidrBlock"]
    return vpc


def subnets_of(aws: AwsSession, vpc: str) -> list[str]:
    filters = [{"Name": "vpc-id", "Values": [vpc]}]
    return sorted(each["SubnetId"] for each in aws.call("ec2", "describe_subnets", Filters=filters)["Subnets"])


def group(aws: AwsSession, name: str, vpc: str, marks: list[dict[str, str]], *sources: str) -> str:
    """A security group that lets these groups in."""
    made = {"ResourceType": "security-group", "Tags": marks}
    arguments = {"GroupName": name, "Description": name, "VpcId": vpc, "TagSpecifications": [made] if marks else []}
    id: str = aws.call("ec2", "create_security_group", **arguments)["GroupId"]
    for source in sources:
        rule = {"IpProtocol": "tcp", "FromPort": 30000, "ToPort": 32767, "UserIdGroupPairs": [{"GroupId": source}]}
        aws.call("ec2", "authorize_security_group_ingress", GroupId=id, IpPermissions=[rule])
    return id


def sources_of(aws: AwsSession, id: str) -> set[str]:
    (body,) = aws.call("ec2", "describe_security_groups", GroupIds=[id])["SecurityGroups"]
    return {pair["GroupId"] for rule in body["IpPermissions"] for pair in rule["UserIdGroupPairs"]}


def names_of(aws: AwsSession, vpc: str) -> set[str]:
    filters = [{"Name": "vpc-id", "Values": [vpc]}]
    groups = aws.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=filters)
    return {each["GroupName"] for each in groups}


def balancers(aws: AwsSession) -> set[str]:
    return {each["LoadBalancerName"] for each in aws.pages("elbv2", "describe_load_balancers", LISTED)}


def network(aws: AwsSession) -> str:
    """Of somebody else."""
    vpc: str = aws.call("ec2", "create_vpc", CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    for number in range(2):
        cidr, zone = f"10.9.{number}.0/24", f"us-east-1{'ab'[number]}"
        aws.call("ec2", "create_subnet", VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)
    return vpc


def test_balancers_and_their_groups_go_with_the_cluster(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    write("served", NO_FILES)
    assert say(capfd, "up")[0] == 0
    vpc, theirs = vpc_of(aws, "served"), network(aws)
    subnets = subnets_of(aws, vpc)
    aws.call("elbv2", "create_load_balancer", Name="served-nlb", Subnets=subnets, Tags=own("served"))
    aws.call("elbv2", "create_load_balancer", Name="served-alb", Subnets=subnets, Tags=tags(**{CONTROLLER: "served"}))
    # A cluster of kops, which has the same name, in a network of its own: it has the same tag.
    aws.call("elbv2", "create_load_balancer", Name="kops", Subnets=subnets_of(aws, theirs), Tags=own("served"))
    group(aws, "k8s-elb-a9", theirs, own("served"))
    classic = group(aws, "k8s-elb-a1", vpc, own("served"))
    backend = group(aws, "k8s-traffic-served", vpc, tags(**{CONTROLLER: "served"}), classic)
    alien = group(aws, "k8s-elb-a2", vpc, own("served-2"))
    group(aws, "k8s-by-hand", vpc, [])
    group(aws, "nodes-of-people", vpc, own("served"))
    nodes = group(aws, "eks-cluster-sg-served", vpc, own("served"), classic, backend, alien)
    kept = group(aws, "k8s-elb-a3", vpc, own("served"))
    stranger = group(aws, "database", vpc, [], kept)
    events: list[ResourceEvent] = []
    ClusterBalancers(aws, "served").delete(events.append)
    assert balancers(aws) & {"served-nlb", "served-alb", "kops"} == {"kops"}
    stay = {
        "default",
        "k8s-elb-a2",
        "k8s-elb-a3",
        "k8s-by-hand",
        "nodes-of-people",
        "eks-cluster-sg-served",
        "database",
    }
    assert stay <= names_of(aws, vpc) and not names_of(aws, vpc) & {"k8s-elb-a1", "k8s-traffic-served"}
    assert "k8s-elb-a9" in names_of(aws, theirs)
    assert sources_of(aws, nodes) == {alien}
    assert sources_of(aws, stranger) == {kept}, "its rules are no affair of a cluster's"
    ends = {event.resource: (event.state, event.text) for event in events if event.state != "started"}
    assert ends == {
        "k8s-elb-a1": ("done", classic), "k8s-traffic-served": ("done", backend),
        "k8s-elb-a3": ("kept", f"{kept} is used by others"),
    }  # fmt: skip


def test_a_group_that_is_used_stays_and_is_named(
    aws: AwsSession, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its balancer's interfaces go late; one that somebody has made himself never goes."""
    monkeypatch.setattr(load_balancers, "INTERFACES_S", 0.2)
    monkeypatch.setattr(load_balancers, "_LOOK_S", 0.05)
    write("used", NO_FILES)
    assert say(capfd, "up")[0] == 0
    vpc = vpc_of(aws, "used")
    used, free = group(aws, "k8s-elb-b1", vpc, own("used")), group(aws, "k8s-elb-b2", vpc, own("used"))
    nodes = group(aws, "eks-cluster-sg-used", vpc, own("used"), used, free)
    subnet = subnets_of(aws, vpc)[0]
    made = aws.call("ec2", "create_network_interface", SubnetId=subnet, Groups=[used])["NetworkInterface"]
    code, text = say(capfd, "down", "--yes", "--purge-data")
    assert "k8s-elb-b1  EC2::SecurityGroup  kept" in text and f"{used} is used by {made['NetworkInterfaceId']}" in text
    assert "k8s-elb-b2  EC2::SecurityGroup  done" in text
    assert code == 205 and "used: DELETE_FAILED" in text, "which names the group's subnet or network, and not the group"
    assert sources_of(aws, nodes) == {used}
    aws.call("ec2", "delete_network_interface", NetworkInterfaceId=made["NetworkInterfaceId"])
    aws.call("ec2", "delete_security_group", GroupId=nodes)  # as EKS does it with its own
    code, text = say(capfd, "down", "--yes", "--purge-data")
    assert code == 0 and "k8s-elb-b1  EC2::SecurityGroup  done" in text, text


def test_without_a_network_nothing_is_deleted(aws: AwsSession) -> None:
    theirs = network(aws)
    aws.call("elbv2", "create_load_balancer", Name="lone", Subnets=subnets_of(aws, theirs), Tags=own("nowhere"))
    group(aws, "k8s-elb-c1", theirs, own("nowhere"))
    assert ClusterBalancers(aws, "nowhere").networks() == set()
    ClusterBalancers(aws, "nowhere").delete(lambda event: None)
    assert "lone" in balancers(aws) and "k8s-elb-c1" in names_of(aws, theirs)


def test_the_policy_is_enough_for_groups(account: Account, capfd: pytest.CaptureFixture[str]) -> None:
    account.user("balanced", policy("balanced", "us-east-1"))
    write("balanced", NO_FILES)
    assert say(capfd, "up")[0] == 0
    vpc = vpc_of(AwsSession("us-east-1"), "balanced")
    admin = account.become(servers.ADMIN)
    marks = tags(**{CONTROLLER: "balanced"})
    classic = group(admin, "k8s-elb-d1", vpc, own("balanced"))
    group(admin, "k8s-traffic-balanced", vpc, marks, classic)
    account.user("balanced-2", policy("balanced", "us-east-1"))
    code, text = say(capfd, "down", "--yes", "--purge-data")
    assert code == 0, text
    admin = account.become(servers.ADMIN)
    assert not names_of(admin, vpc) & {"k8s-elb-d1", "k8s-traffic-balanced"}


def test_balancers_may_be_deleted_by_the_tag_of_whoever_made_them() -> None:
    """The server does not judge tags."""
    statements = policy("lab", "us-east-1")["Statement"]
    conditions = [
        each["Condition"] for each in statements if "elasticloadbalancing:DeleteLoadBalancer" in each["Action"]
    ]
    assert conditions == [
        {"StringEquals": {"aws:ResourceTag/kubernetes.io/cluster/lab": "owned"}},
        {"StringEquals": {f"aws:ResourceTag/{CONTROLLER}": "lab"}},
    ]
    assert sum("DeleteLoadBalancer" in str(each["Action"]) for each in policy()["Statement"]) == 1


def test_classic_balancers_and_their_groups(moto: MotoCluster) -> None:
    """On moto, which has such balancers."""
    aws, name = moto.session, moto.name
    first, second = moto.subnets(ZONES)
    vpc, theirs = (aws.call("ec2", "describe_subnets", SubnetIds=[first])["Subnets"][0]["VpcId"], network(aws))
    aws.call("ec2", "create_tags", Resources=[vpc], Tags=tags(**{"longboat.dev/cluster": name}))
    assert vpc in ClusterBalancers(aws, name).networks() and theirs not in ClusterBalancers(aws, name).networks()
    gone = group(aws, f"k8s-elb-{name}", vpc, own(name))
    nodes = group(aws, f"eks-cluster-sg-{name}", vpc, own(name), gone)
    listener = {"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 30080}
    for balancer, subnet, cluster in (
        ("classic", first, name), ("kops", subnets_of(aws, theirs)[0], name), ("others", second, f"{name}-2"),
    ):  # fmt: skip
        aws.call(
            "elb", "create_load_balancer", LoadBalancerName=balancer, Listeners=[listener], Subnets=[subnet],
            Tags=own(cluster),
        )  # fmt: skip
    events: list[ResourceEvent] = []
    ClusterBalancers(aws, name).delete(events.append)
    left = aws.pages("elb", "describe_load_balancers", "LoadBalancerDescriptions")
    assert {each["LoadBalancerName"] for each in left} == {"kops", "others"}
    assert [(each.state, each.text) for each in events] == [("started", ""), ("done", gone)]
    assert sources_of(aws, nodes) == set()
