"""The life of a cluster on a server that plays AWS (ministack): up, changes, drift, down, and what goes wrong.

Left out, because the server refuses these resources as unknown: the NAT gateway and its address (so nodes are public
here) and placement groups; cfn-lint has them in test_template. It has no instance type offerings, versions of EKS or
quotas, which is also how an account looks that may not ask for them; test_preflight has those. It reports every node
group as on demand, so no pool here is spot. No machine is started and no API server answers: add-ons are left out.
"""

from __future__ import annotations

import json
import shlex
import threading
from pathlib import Path

import pytest
import yaml

from longboat.cli.main import enter
from longboat.clouds.aws.session import AwsSession
from longboat.clouds.machine_types import shipped_table
from longboat.clusters.cloud.aws.down import AwsDown
from longboat.clusters.cloud.aws.permissions import autoscaler_policy
from longboat.clusters.cloud.aws.stack import ClusterStack, ResourceEvent
from longboat.clusters.cloud.aws.up import AwsUp
from longboat.clusters.cluster_file import read_cluster

FILE = """
name: {name}
kind: aws
region: us-east-1
network: {{nodes: public, zones: [us-east-1a, us-east-1b]}}
pools:
- {{name: cpu, type: m5.large, count: 1, max: 3}}
- {{name: gpu, type: g5.xlarge, min: 0, max: 4, zones: [us-east-1b], labels: {{a: b}}, taints: [a=b:NoSchedule]}}
storage: efs
addons: []
tags: {{team: vision}}
"""


LISTED = "LoadBalancers"


def write(name: str, *changes: tuple[str, str]) -> None:
    text = FILE.format(name=name)
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    Path("cluster.yaml").write_text(text)


def say(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    capfd.readouterr()
    code = enter(["cluster", *args])
    captured = capfd.readouterr()
    return code, captured.out + captured.err


def work(name: str, session: AwsSession) -> AwsUp:
    write(name)
    spec = read_cluster("cluster.yaml").cloud
    assert spec is not None
    return AwsUp(name, spec, session)


def test_a_cluster_lives_and_leaves_nothing(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    write("life")
    code, text = say(capfd, "up", "--dry-run")
    assert code == 0 and "the stack is made" in text and "USD per day if left on" in text
    assert ClusterStack(aws, "life").look() is None

    code, text = say(capfd, "up")
    assert code == 0 and "Cluster  EKS::Cluster  done" in text and ".efs.us-east-1.amazonaws.com:/" in text
    view = ClusterStack(aws, "life").look()
    assert view is not None and (view.status, view.cluster) == ("CREATE_COMPLETE", "life")
    tags = aws.call("eks", "describe_cluster", name="life")["cluster"]["tags"]
    assert (tags["team"], tags["longboat.dev/cluster"]) == ("vision", "life")
    kubeconfig = yaml.safe_load(Path("kubeconfig").read_text())
    assert kubeconfig["users"][0]["user"]["exec"]["args"][-4:] == ["token", "life", "--region", "us-east-1"]

    code, text = say(capfd, "up")
    assert code == 0 and "nothing to do" in text
    code, text = say(capfd, "status", "life")
    assert code == 0 and "not as the file says" not in text

    code, text = say(capfd, "down")
    assert code == 201 and "asked for twice" in text
    code, text = say(capfd, "down", "life", "--yes")
    assert (
        code == 0 and "kept, with what users stored, and paid for: fs-" in text and "nothing else with its tag" in text
    )
    assert not yaml.safe_load(Path("kubeconfig").read_text())["contexts"]
    assert len(aws.call("efs", "describe_file_systems")["FileSystems"]) == 1
    code, text = say(capfd, "down", "life", "--yes", "--purge-data")
    assert code == 0 and "kept" not in text
    assert not aws.call("efs", "describe_file_systems")["FileSystems"]
    code, text = say(capfd, "status")
    assert code == 202 and "life is not in us-east-1" in text


def test_a_stack_that_was_deployed_by_hand_is_taken_up(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    """By the command that `render` prints: its tags are the file's, and say whose it is."""
    write("byhand", ("tags: {team: vision}", "tags: {team: vision and more, cost: a=b}"))
    code, text = say(capfd, "render", "-o", "stack")
    words = shlex.split(next(line for line in text.splitlines() if line.startswith("aws cloudformation")))
    assert code == 0 and words[words.index("--stack-name") + 1] == "longboat-byhand"
    start = words.index("--tags") + 1
    end = next(number for number in range(start, len(words)) if words[number].startswith("--"))
    pairs = [word.removeprefix("Key=").split(",Value=") for word in words[start:end]]
    aws.call(
        "cloudformation",
        "create_stack",
        StackName="longboat-byhand",
        TemplateBody=Path("stack/template.yaml").read_text(),
        Parameters=json.loads(Path("stack/parameters.json").read_text()),
        Tags=[{"Key": key, "Value": value} for key, value in pairs],
    )
    assert dict(pairs) == {"team": "vision and more", "cost": "a=b", "longboat.dev/cluster": "byhand"}
    code, text = say(capfd, "up")
    assert code == 0 and ("as its file says" in text or "nothing to do" in text), text
    assert aws.call("eks", "describe_cluster", name="byhand")["cluster"]["tags"]["cost"] == "a=b"
    assert say(capfd, "status")[0] == 0
    assert say(capfd, "down", "--yes", "--purge-data")[0] == 0


def test_disks_and_snapshots_of_claims_stay_until_they_are_asked_for(
    aws: AwsSession, capfd: pytest.CaptureFixture[str]
) -> None:
    write("claims")

    def tagged(kind: str, cluster: str, whose: str = "owned", **more: str) -> list[dict[str, object]]:
        tags = {f"kubernetes.io/cluster/{cluster}": whose, **more}
        return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]

    def disk(cluster: str) -> tuple[str, str]:
        tags = tagged("volume", cluster)
        volume = aws.call("ec2", "create_volume", AvailabilityZone="us-east-1a", Size=1, TagSpecifications=tags)
        made = tagged("snapshot", cluster, CSIVolumeSnapshotName="snapshot-0f1e")
        of = {"VolumeId": volume["VolumeId"], "TagSpecifications": made}
        return volume["VolumeId"], aws.call("ec2", "create_snapshot", **of)["SnapshotId"]

    (volume, snapshot), others = disk("claims"), disk("claims-2")
    # A backup gets the tags of its disk, and a disk that somebody lends to a cluster has the tag with another value.
    backup = {"VolumeId": volume, "TagSpecifications": tagged("snapshot", "claims", CSIVolumeName="pvc-1")}
    lent = tagged("volume", "claims", "shared")
    theirs = [
        aws.call("ec2", "create_snapshot", **backup)["SnapshotId"],
        aws.call("ec2", "create_volume", AvailabilityZone="us-east-1a", Size=1, TagSpecifications=lent)["VolumeId"],
    ]
    code, text = say(capfd, "down", "--yes")
    assert code == 0 and f"kept, with what users stored, and paid for: {volume}, {snapshot}" in text, text
    assert AwsDown("claims", aws).data().names == [volume, snapshot]
    code, text = say(capfd, "down", "--yes", "--purge-data")
    assert code == 0 and "kept" not in text, text
    assert AwsDown("claims", aws).data().names == []
    assert aws.call("ec2", "describe_snapshots", SnapshotIds=theirs[:1])["Snapshots"]
    assert aws.call("ec2", "describe_volumes", VolumeIds=theirs[1:])["Volumes"]
    assert AwsDown("claims-2", aws).data().names == [*others]
    assert AwsDown("claims-2", aws).run(lambda _: None, purged=AwsDown("claims-2", aws).data()) == []


def test_an_access_point_is_no_file_system(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    write("points")
    assert say(capfd, "up")[0] == 0
    system = AwsDown("points", aws).data().file_systems[0]
    mark = [{"Key": "longboat.dev/cluster", "Value": "points"}]
    point = aws.call("efs", "create_access_point", ClientToken="x", FileSystemId=system, Tags=mark)["AccessPointId"]
    data = AwsDown("points", aws).data()
    assert (data.file_systems, data.access_points) == ((system,), (point,))
    code, text = say(capfd, "down", "--yes")
    assert code == 0 and f"paid for: {system}, {point}" in text, text
    code, text = say(capfd, "down", "--yes", "--purge-data")
    assert code == 205 and f"left: elasticfilesystem access-point/{point}" in text, "the server keeps it, AWS does not"
    aws.call("efs", "delete_access_point", AccessPointId=point)
    assert say(capfd, "down", "--yes", "--purge-data")[0] == 0


def test_drift_is_told_and_up_brings_the_file_back(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    write("drift")
    assert say(capfd, "up")[0] == 0
    write("drift", ("m5.large", "m5.xlarge"), ("max: 4", "max: 6"))
    code, text = say(capfd, "status")
    assert code == 1
    assert "- the file has changed since the last `up`" in text
    assert "- cpu: machines are m5.large, the file has m5.xlarge" in text
    assert "- gpu: size is 0 to 4, the file has 0 to 6" in text
    assert say(capfd, "up")[0] == 0
    code, text = say(capfd, "status")
    assert (code, "not as the file says" in text) == (0, False)
    groups = aws.call("eks", "list_nodegroups", clusterName="drift")["nodegroups"]
    assert len(groups) == 2, "the node group of the former type is gone"
    assert say(capfd, "down", "--yes", "--purge-data")[0] == 0


@pytest.mark.parametrize("number", [0, 7])
def test_an_interrupted_up_goes_on(number: int, aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    first = work(f"killed{number}", aws)
    events: list[ResourceEvent] = []

    def listen(event: ResourceEvent) -> None:
        if len(events) == number:
            raise KeyboardInterrupt
        events.append(event)

    with pytest.raises(KeyboardInterrupt):
        first.apply(first.plan(shipped_table("aws"), print), listen)
    assert say(capfd, "up")[0] == 0
    assert say(capfd, "status")[0] == 0
    assert say(capfd, "down", "--yes", "--purge-data")[0] == 0


def test_two_at_once_make_one_cluster(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    both = [work("twice", AwsSession("us-east-1")) for _ in range(2)]
    plans = [each.plan(shipped_table("aws"), print) for each in both]
    errors: list[Exception] = []

    def apply(index: int) -> None:
        try:
            both[index].apply(plans[index], lambda event: None)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=apply, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [plan.operation for plan in plans] == ["create_stack"] * 2
    assert not errors
    assert say(capfd, "status")[0] == 0
    assert say(capfd, "down", "--yes", "--purge-data")[0] == 0


def test_who_comes_second_gets_what_his_file_says(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    """The other one's request, of another file, comes between the look and his own."""
    mine = work("second", aws)
    plan = mine.plan(shipped_table("aws"), print)
    write("second", ("count: 1, max: 3", "count: 1, max: 2"))
    theirs = AwsUp("second", read_cluster("cluster.yaml").cloud or mine.spec, aws)
    other = theirs.plan(shipped_table("aws"), print)
    assert other.parameters != plan.parameters
    assert theirs.stack.deploy("create_stack", other.template, other.parameters, {}) == "begun"
    assert mine.apply(plan, lambda _: None)
    _, cluster = mine.result()
    assert {group.pool: group.max for group in cluster.groups} == {"cpu": 3, "gpu": 4}
    assert say(capfd, "down", "--yes", "--purge-data")[0] == 0


def test_a_stack_that_cannot_be_made(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    write("broken", ("storage: efs", "storage: {efs: fs-0a1b2c3d}"))
    code, text = say(capfd, "up")
    assert code == 205
    assert "error: broken: ROLLBACK_COMPLETE: MountTarget" in text and "fs-0a1b2c3d" in text
    assert "hint:" in text
    code, text = say(capfd, "up")
    assert code == 205
    assert "the stack of broken was not made: ROLLBACK_COMPLETE" in text
    assert "hint: longboat cluster down broken --yes removes what is left of it, then up again" in text
    assert say(capfd, "down", "broken", "--yes")[0] == 0
    write("broken")
    assert say(capfd, "up")[0] == 0
    assert say(capfd, "down", "--yes", "--purge-data")[0] == 0


def test_names_that_are_taken(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    body = "Resources: {Role: {Type: 'AWS::EC2::InternetGateway'}}"
    aws.call("cloudformation", "create_stack", StackName="longboat-taken", TemplateBody=body)
    write("taken")
    for command in (["up"], ["down", "--yes"]):
        code, text = say(capfd, *command)
        assert code == 203 and "taken" in text
    subnets = [each["SubnetId"] for each in aws.call("ec2", "describe_subnets")["Subnets"]][:2]
    role = "arn:aws:iam::000000000000:role/x"
    aws.call("eks", "create_cluster", name="theirs", roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    write("theirs")
    code, text = say(capfd, "up")
    assert code == 203 and "EKS has a cluster theirs in us-east-1 already" in text
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "kubernetes.io/cluster/theirs", "Value": "owned"}]}]
    claim = aws.call("ec2", "create_volume", AvailabilityZone="us-east-1a", Size=1, TagSpecifications=tags)["VolumeId"]
    code, text = say(capfd, "down", "--yes", "--purge-data")
    assert aws.call("ec2", "describe_volumes", VolumeIds=[claim])["Volumes"]
    assert code == 203 and "the cluster theirs in EKS was not made by Longboat" in text


def test_a_cluster_of_others_has_got_the_name_of_a_stack_that_failed(
    aws: AwsSession, capfd: pytest.CaptureFixture[str]
) -> None:
    write("later")
    body = "Resources: {Gate: {Type: 'AWS::EC2::InternetGateway'}}"
    tags = [{"Key": "longboat.dev/cluster", "Value": "later"}]
    aws.call("cloudformation", "create_stack", StackName="longboat-later", TemplateBody=body, Tags=tags)
    subnets = [each["SubnetId"] for each in aws.call("ec2", "describe_subnets")["Subnets"]][:2]
    role = "arn:aws:iam::000000000000:role/x"
    aws.call("eks", "create_cluster", name="later", roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    own = [{"Key": "kubernetes.io/cluster/later", "Value": "owned"}]
    aws.call("elbv2", "create_load_balancer", Name="theirs", Subnets=subnets, Tags=own)
    claim = [{"ResourceType": "volume", "Tags": own}]
    volume = aws.call("ec2", "create_volume", AvailabilityZone="us-east-1a", Size=1, TagSpecifications=claim)
    code, text = say(capfd, "down", "--yes", "--purge-data")
    assert "theirs" in [each["LoadBalancerName"] for each in aws.pages("elbv2", "describe_load_balancers", LISTED)]
    assert aws.call("ec2", "describe_volumes", VolumeIds=[volume["VolumeId"]])["Volumes"]
    assert code == 203 and "the cluster later in EKS was not made by Longboat" in text
    assert "aws cloudformation delete-stack --stack-name longboat-later" in text
    aws.call("eks", "delete_cluster", name="later")
    assert say(capfd, "down", "--yes", "--purge-data")[0] == 0 and ClusterStack(aws, "later").look() is None


def test_a_context_that_is_taken(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    cluster = {"name": "x", "cluster": {"server": "https://other"}}
    context = {"name": "mine", "context": {"cluster": "x", "user": "x"}}
    body = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [], "contexts": [context]}
    Path("kubeconfig").write_text(yaml.safe_dump(body))
    write("mine")
    code, text = say(capfd, "up")
    assert code == 201 and "the kubeconfig has an entry mine in contexts that Longboat did not make" in text
    assert ClusterStack(aws, "mine").look() is None


def test_a_pool_with_a_range_keeps_its_machines(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    write("sized")
    assert say(capfd, "up")[0] == 0
    stack = ClusterStack(aws, "sized")
    view = stack.look()
    assert view is not None
    parameters = {**view.parameters, "CpuPoolCount": "3"}  # as an autoscaler does it through the node group
    stack.deploy("update_stack", stack.template(), parameters, {"team": "vision"})
    stack.follow(view.id, lambda event: None)
    code, text = say(capfd, "up")
    assert code == 0 and "nothing to do" in text
    code, text = say(capfd, "status")
    assert code == 0 and "3 (1 to 3)" in text
    assert say(capfd, "down", "--yes", "--purge-data")[0] == 0


def test_subnets_that_are_not_what_the_file_says(aws: AwsSession, capfd: pytest.CaptureFixture[str]) -> None:
    subnets = aws.call("ec2", "describe_subnets")["Subnets"]
    a, b = (next(each for each in subnets if each["AvailabilityZone"] == zone) for zone in ("us-east-1a", "us-east-1b"))
    network = "{vpc: %s, subnets: {us-east-1a: %s, us-east-1b: %s}}"
    old = "{nodes: public, zones: [us-east-1a, us-east-1b]}"
    ids = [a["VpcId"], b["SubnetId"], a["SubnetId"]]
    if not all(len(each.split("-")[1]) in (8, 17) for each in ids):
        pytest.skip("the server's default network has ids that AWS would not have")
    write("nets", (old, network % tuple(ids)))
    code, text = say(capfd, "up")
    assert code == 203 and f"{b['SubnetId']} is of {b['VpcId']} in us-east-1b" in text


def test_the_autoscaler_gets_a_role_of_its_own(aws: AwsSession) -> None:
    """Pod identities are an addition of ours to the server: accepted, and nothing more."""
    write("scaled", ("addons: []", "addons: [autoscaler]\nimage: registry.example.org/longboat:1"))
    spec = read_cluster("cluster.yaml").cloud
    assert spec is not None
    up = AwsUp("scaled", spec, aws)
    assert up.apply(up.plan(shipped_table("aws"), lambda _: None), lambda _: None)
    roles = [each for each in aws.call("iam", "list_roles")["Roles"] if "AutoscalerRole" in each["RoleName"]]
    (role,) = (each["RoleName"] for each in roles)
    policy = aws.call("iam", "get_role_policy", RoleName=role, PolicyName="autoscaler")["PolicyDocument"]
    assert policy == autoscaler_policy("scaled", "us-east-1")
    assert AwsDown("scaled", aws).run(lambda _: None, purged=AwsDown("scaled", aws).data()) == []
