"""Node groups of a stack: per pool a launch template, a managed node group and a placement group where asked. Pure."""

from __future__ import annotations

import hashlib

from longboat.clusters.cloud.aws.templates.intrinsics import (
    VERSION_PARAMETER,
    Body,
    get_att,
    name_tag,
    own_tags,
    pool_id,
    ref,
    resource,
    sub,
)
from longboat.clusters.cloud.aws.templates.network_template import subnets_for
from longboat.clusters.cloud.labels import labels_of
from longboat.clusters.cloud.spec import NEW_GROUP, CloudPool, CloudSpec

IMAGES = {
    ("x86_64", False): "AL2023_x86_64_STANDARD",
    ("x86_64", True): "AL2023_x86_64_NVIDIA",
    ("arm64", False): "AL2023_ARM_64_STANDARD",
    ("arm64", True): "AL2023_ARM_64_NVIDIA",
}
"""Processor and whether there are GPUs -> image: NVIDIA's have driver and container toolkit."""
EFFECTS = {"NoSchedule": "NO_SCHEDULE", "NoExecute": "NO_EXECUTE", "PreferNoSchedule": "PREFER_NO_SCHEDULE"}
ROOT_DISK = "/dev/xvda"


def size_parameters(pool: CloudPool) -> dict[str, Body]:
    """Parameters of a pool: its size changes without another template."""
    name = pool_id(pool.name)
    return {
        f"{name}{field}": {"Type": "Number", "Default": value, "Description": f"{text} of the pool {pool.name}"}
        for field, value, text in (
            ("Min", pool.min, "Fewest machines"),
            ("Max", pool.max, "Most machines"),
            ("Count", pool.count, "Machines"),
        )
    }


def pool_resources(spec: CloudSpec, pool: CloudPool, cluster: str) -> dict[str, Body]:
    name = pool_id(pool.name)
    resources: dict[str, Body] = {}
    if pool.placement_group == NEW_GROUP:
        group = {"Strategy": "cluster", "Tags": name_tag(pool.name)}
        resources[f"{name}PlacementGroup"] = resource("AWS::EC2::PlacementGroup", group)
    template = {"LaunchTemplateData": _machine(pool, cluster), "TagSpecifications": [_tagged("launch-template", pool)]}
    resources[f"{name}Template"] = resource("AWS::EC2::LaunchTemplate", template)
    resources[name] = resource("AWS::EKS::Nodegroup", _group(spec, pool))
    return resources


def _machine(pool: CloudPool, cluster: str) -> Body:
    disk = {
        "VolumeSize": pool.disk_gib,
        "VolumeType": "gp3",
        "Encrypted": True,
        "DeleteOnTermination": True,
    }
    tags = own_tags(pool.name, cluster)
    body: Body = {
        "BlockDeviceMappings": [{"DeviceName": ROOT_DISK, "Ebs": disk}],
        # One hop: pods cannot ask for the credentials of their node.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        # Tags of the stack and of the node group do not reach machines and their disks.
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    }
    if pool.placement_group == NEW_GROUP:
        body["Placement"] = {"GroupName": ref(f"{pool_id(pool.name)}PlacementGroup")}
    elif pool.placement_group:
        body["Placement"] = {"GroupName": pool.placement_group}
    if pool.reservation:
        target = {"CapacityReservationId": pool.reservation}
        body["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    return body


def _tagged(kind: str, pool: CloudPool) -> Body:
    return {"ResourceType": kind, "Tags": name_tag(pool.name)}


def _group(spec: CloudSpec, pool: CloudPool) -> Body:
    name = pool_id(pool.name)
    sizes = {"MinSize": ref(f"{name}Min"), "MaxSize": ref(f"{name}Max"), "DesiredSize": ref(f"{name}Count")}
    body: Body = {
        "ClusterName": ref("Cluster"),
        "NodegroupName": group_name(spec, pool),
        "NodeRole": get_att("NodeRole", "Arn"),
        "Version": ref(VERSION_PARAMETER),
        "AmiType": image_of(pool),
        "CapacityType": "SPOT" if pool.spot else "ON_DEMAND",
        "InstanceTypes": [pool.type],
        "Subnets": subnets_for(spec, pool.zones),
        "ScalingConfig": sizes,
        "Labels": labels_of(pool),
        "LaunchTemplate": {
            "Id": ref(f"{name}Template"),
            "Version": get_att(f"{name}Template", "LatestVersionNumber"),
        },
        "Tags": {"Name": sub("${AWS::StackName}-" + pool.name)},
    }
    if pool.taints:
        body["Taints"] = [
            {"Key": taint.key, "Effect": EFFECTS[taint.effect], **({"Value": taint.value} if taint.value else {})}
            for taint in pool.taints
        ]
    return body


def image_of(pool: CloudPool) -> str:
    return IMAGES[pool.architecture, pool.gpus > 0]


def group_name(spec: CloudSpec, pool: CloudPool) -> str:
    """The pool's name and a mark of what cannot change in a node group. Where that changes, another group is made
    before the old one goes; with a fixed name CloudFormation would refuse.
    """
    fixed = (pool.type, image_of(pool), pool.spot, subnets_for(spec, pool.zones))
    return f"{pool.name}-{hashlib.sha256(repr(fixed).encode()).hexdigest()[:6]}"
