"""Templates of clusters on AWS: what a file becomes, and cfn-lint's word that CloudFormation would take it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.cloud.aws.permissions import autoscaler_policy
from longboat.clusters.cloud.aws.templates.network_template import subnet_cidrs
from longboat.clusters.cloud.aws.templates.template import make_template, parameter_values, template_text
from longboat.clusters.cloud.fields import MAX_POOLS
from longboat.clusters.cloud.spec import CloudNetwork, CloudPool, CloudSpec, CloudStorage
from longboat.clusters.cluster_file import read_cluster
from tests.clusters.cloud.aws.files import AUTOSCALED, EXISTING, PRIVATE, PUBLIC


def spec_of(text: str, folder: Path) -> CloudSpec:
    (folder / "cluster.yaml").write_text(text)
    cloud = read_cluster(folder / "cluster.yaml").cloud
    assert cloud is not None
    return cloud


def resources(template: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {name: body["Properties"] for name, body in template["Resources"].items() if body["Type"] == kind}


SHAPES = {"private": PRIVATE, "public": PUBLIC, "existing": EXISTING, "autoscaled": AUTOSCALED}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_cloudformation_takes_it(text: str, tmp_path: Path, cloud_programs: Path) -> None:
    file = tmp_path / "template.yaml"
    file.write_text(template_text("lab", spec_of(text, tmp_path)))
    done = subprocess.run(
        [cloud_programs / "cfn-lint", "-r", "us-east-1", "--", file], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_checker_sees_mistakes(tmp_path: Path, cloud_programs: Path) -> None:
    file = tmp_path / "template.yaml"
    file.write_text(template_text("lab", spec_of(PRIVATE, tmp_path)).replace("CapacityType: SPOT", "CapacityType: SPT"))
    done = subprocess.run([cloud_programs / "cfn-lint", file], capture_output=True, text=True, check=False)
    assert "'SPT' is not one of" in done.stdout


def test_the_autoscaler_alone_gets_its_rights(tmp_path: Path) -> None:
    template = make_template("lab", spec_of(AUTOSCALED, tmp_path))
    (identity,) = resources(template, "AWS::EKS::PodIdentityAssociation").values()
    assert (identity["Namespace"], identity["ServiceAccount"]) == ("longboat-system", "longboat-autoscaler")
    role = resources(template, "AWS::IAM::Role")["AutoscalerRole"]
    assert [each["PolicyDocument"] for each in role["Policies"]] == [autoscaler_policy("lab", "us-east-1")]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert "ManagedPolicyArns" not in role and "Policies" not in resources(template, "AWS::IAM::Role")["NodeRole"]
    assert not resources(make_template("lab", spec_of(PRIVATE, tmp_path)), "AWS::EKS::Addon")


def test_private_nodes_have_a_nat_gateway_and_public_ones_none(tmp_path: Path) -> None:
    private = make_template("lab", spec_of(PRIVATE, tmp_path))
    assert len(resources(private, "AWS::EC2::NatGateway")) == 1
    assert len(resources(private, "AWS::EC2::Subnet")) == 6
    groups = resources(private, "AWS::EKS::Nodegroup")
    assert groups["CpuPool"]["Subnets"] == [{"Ref": f"PrivateSubnet{number}"} for number in (1, 2, 3)]
    public = make_template("lab", spec_of(PUBLIC, tmp_path))
    assert not resources(public, "AWS::EC2::NatGateway")
    assert all(each["MapPublicIpOnLaunch"] for each in resources(public, "AWS::EC2::Subnet").values())


def test_a_gpu_pool_gets_nvidias_image_and_the_label_of_the_device_plugin(tmp_path: Path) -> None:
    groups = resources(make_template("lab", spec_of(PRIVATE, tmp_path)), "AWS::EKS::Nodegroup")
    gpu = groups["GpuLargePool"]
    assert (gpu["AmiType"], gpu["CapacityType"]) == ("AL2023_x86_64_NVIDIA", "SPOT")
    assert gpu["Labels"] == {"longboat.dev/pool": "gpu-large", "nvidia.com/gpu.present": "true", "team": "vision"}
    assert gpu["Taints"] == [{"Key": "nvidia.com/gpu", "Effect": "NO_SCHEDULE", "Value": "present"}]
    assert groups["CpuPool"]["AmiType"] == "AL2023_x86_64_STANDARD"
    assert groups["CpuPool"]["Labels"] == {"longboat.dev/pool": "cpu"}


def test_what_cannot_change_in_a_node_group_gives_it_another_name(tmp_path: Path) -> None:
    def name(text: str) -> str:
        groups = resources(make_template("lab", spec_of(text, tmp_path)), "AWS::EKS::Nodegroup")
        return str(groups["CpuPool"]["NodegroupName"])

    assert name(PRIVATE) == name(PRIVATE.replace("max: 3", "max: 9, disk: 200Gi, labels: {a: b}"))
    others = {name(PRIVATE.replace("m5.large,", change)) for change in ("m5.xlarge,", "m5.large, spot: true,")}
    assert len(others | {name(PRIVATE)}) == 3


def test_as_many_pools_as_a_file_may_have_fit_into_a_request() -> None:
    pools = tuple(
        CloudPool(name=f"a-rather-long-name-of-a-pool-{number}", type="g5.xlarge", gpus=1, placement_group="new")
        for number in range(MAX_POOLS)
    )
    text = template_text("lab", CloudSpec(region="us-east-1", pools=pools, storage=CloudStorage()))
    assert len(text) < 51_200


def test_an_existing_network_is_used_by_zone_and_nothing_of_a_network_is_made(tmp_path: Path) -> None:
    template = make_template("lab", spec_of(EXISTING, tmp_path))
    groups = resources(template, "AWS::EKS::Nodegroup")
    assert groups["GpuPool"]["Subnets"] == ["subnet-01234567"]
    assert groups["ArmPool"]["Subnets"] == ["subnet-01234567", "subnet-01234568"]
    assert groups["ArmPool"]["AmiType"] == "AL2023_ARM_64_STANDARD"
    assert not resources(template, "AWS::EC2::Subnet")
    assert "Zones" not in template["Parameters"]
    machine = resources(template, "AWS::EC2::LaunchTemplate")["GpuPoolTemplate"]["LaunchTemplateData"]
    assert machine["Placement"] == {"GroupName": {"Ref": "GpuPoolPlacementGroup"}}
    assert machine["CapacityReservationSpecification"]["CapacityReservationTarget"] == {
        "CapacityReservationId": "cr-01234567"
    }
    assert machine["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 500
    assert {each["FileSystemId"] for each in resources(template, "AWS::EFS::MountTarget").values()} == {"fs-01234567"}


def test_a_new_file_system_outlives_its_stack(tmp_path: Path) -> None:
    body = make_template("lab", spec_of(PUBLIC, tmp_path))["Resources"]["FileSystem"]
    assert (body["DeletionPolicy"], body["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


def test_parameters_are_those_of_the_template(tmp_path: Path) -> None:
    for text in (PRIVATE, PUBLIC, EXISTING):
        spec = spec_of(text, tmp_path)
        assert set(parameter_values(spec)) == set(make_template("lab", spec)["Parameters"])
    spec = spec_of(PRIVATE, tmp_path)
    assert parameter_values(spec)["Zones"] == "us-east-1a,us-east-1b,us-east-1c"
    assert parameter_values(spec, ("us-east-1b", "us-east-1d", "us-east-1f"))["Zones"].count("us-east-1d") == 1


def test_names_of_pools_never_meet_others_of_the_stack() -> None:
    names = ("a", "a-min", "a-pool", "a-pool-min", "a-template", "a-placement-group", "cluster", "vpc", "zones")
    pools = tuple(CloudPool(name=name, type="m5.large", placement_group="new") for name in names)
    template = make_template("lab", CloudSpec(region="us-east-1", pools=pools, storage=CloudStorage()))
    assert not set(template["Parameters"]) & set(template["Resources"])
    assert len(resources(template, "AWS::EKS::Nodegroup")) == len(names)
    assert len(template["Parameters"]) == 2 + 3 * len(names)


@pytest.mark.parametrize("nodes", ["private", "public"])
@pytest.mark.parametrize("zones", range(2, 7))
def test_subnets_do_not_overlap(nodes: str, zones: int) -> None:
    from ipaddress import IPv4Network

    pairs = subnet_cidrs(CloudNetwork(nodes=nodes, cidr="10.0.0.0/20"), zones)
    networks = [IPv4Network(text) for pair in pairs for text in pair if text]
    assert len(pairs) == zones
    assert all(each.subnet_of(IPv4Network("10.0.0.0/20")) and each.prefixlen <= 28 for each in networks)
    assert not any(a.overlaps(b) for index, a in enumerate(networks) for b in networks[:index])
