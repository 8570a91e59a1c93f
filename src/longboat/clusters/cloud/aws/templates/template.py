"""The CloudFormation template of a cluster: network, EKS, roles, node groups and EFS in one stack. Pure.

`template_text` is what `render` writes and what `up` deploys: the same text.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from longboat.clusters.cloud.aws.templates.autoscaler_template import autoscaler_resources
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
from longboat.clusters.cloud.aws.templates.network_template import (
    ZONES_PARAMETER,
    network_resources,
    subnets_for,
    zone_count,
    zone_names,
)
from longboat.clusters.cloud.aws.templates.pool_template import pool_resources, size_parameters
from longboat.clusters.cloud.spec import CloudSpec

NFS_PORT = 2049
_CLUSTER_POLICIES = ("AmazonEKSClusterPolicy",)
_NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly")


def make_template(cluster: str, spec: CloudSpec) -> Body:
    resources = network_resources(spec) | _cluster(cluster, spec)
    for pool in spec.pools:
        resources |= pool_resources(spec, pool, cluster)
    resources |= _storage(cluster, spec)
    if spec.autoscaler:
        resources |= autoscaler_resources(cluster, spec.region)
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"The Kubernetes cluster {cluster}, made by Longboat",
        "Parameters": _parameters(spec),
        "Resources": resources,
        "Outputs": _outputs(spec),
    }


def parameter_values(spec: CloudSpec, zones: tuple[str, ...] = ()) -> dict[str, str]:
    """Values of the template's parameters. `zones`: those that the cloud chose; none: the first of the region."""
    values = {VERSION_PARAMETER: spec.version}
    if spec.network.is_new:
        names = zone_names(spec) or zones or tuple(f"{spec.region}{letter}" for letter in "abcdef"[: zone_count(spec)])
        values[ZONES_PARAMETER] = ",".join(names)
    for pool in spec.pools:
        name = pool_id(pool.name)
        values |= {f"{name}Min": str(pool.min), f"{name}Max": str(pool.max), f"{name}Count": str(pool.count)}
    return values


def _parameters(spec: CloudSpec) -> dict[str, Body]:
    parameters: dict[str, Body] = {
        VERSION_PARAMETER: {"Type": "String", "Default": spec.version, "Description": "Version of Kubernetes"}
    }
    if spec.network.is_new:
        text = f"Zones of the subnets, {zone_count(spec)} of them"
        parameters[ZONES_PARAMETER] = {"Type": "List<AWS::EC2::AvailabilityZone::Name>", "Description": text}
    for pool in spec.pools:
        parameters |= size_parameters(pool)
    return parameters


def _role(service: str, policies: tuple[str, ...]) -> Body:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    properties = {
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "ManagedPolicyArns": [sub("arn:${AWS::Partition}:iam::aws:policy/" + name) for name in policies],
    }
    return resource("AWS::IAM::Role", properties)


def _cluster(cluster: str, spec: CloudSpec) -> dict[str, Body]:
    properties: Body = {
        "Name": cluster,
        "Version": ref(VERSION_PARAMETER),
        "RoleArn": get_att("ClusterRole", "Arn"),
        "ResourcesVpcConfig": {
            "SubnetIds": subnets_for(spec, ()),
            "EndpointPublicAccess": True,
            "EndpointPrivateAccess": True,
            "PublicAccessCidrs": list(spec.network.access),
        },
        "AccessConfig": {"AuthenticationMode": "API", "BootstrapClusterCreatorAdminPermissions": True},
        # Without it a version that is no longer supported costs six times as much, silently.
        "UpgradePolicy": {"SupportType": "STANDARD"},
    }
    more = {"DependsOn": _ways(spec)} if spec.network.is_new else {}
    return {
        "ClusterRole": _role("eks.amazonaws.com", _CLUSTER_POLICIES),
        "NodeRole": _role("ec2.amazonaws.com", _NODE_POLICIES),
        "Cluster": resource("AWS::EKS::Cluster", properties, **more),
    }


def _ways(spec: CloudSpec) -> list[str]:
    """Routes that nodes need until they are gone: without them a node neither joins nor leaves."""
    kind = "Private" if spec.network.nodes == "private" else "Public"
    return [f"{kind}Route", *(f"{kind}Subnet{index + 1}Routes" for index in range(zone_count(spec)))]


def _storage(cluster: str, spec: CloudSpec) -> dict[str, Body]:
    """A file system, a mount target for each subnet, and the rule that lets nodes in. The file system holds users' data
    and stays when the stack goes; a stack that could not be made takes its own with it."""
    if spec.storage is None:
        return {}
    resources: dict[str, Body] = {}
    file_system: object = spec.storage.efs
    if spec.storage.is_new:
        properties = {"Encrypted": True, "ThroughputMode": "elastic", "FileSystemTags": own_tags("files", cluster)}
        keep = {"DeletionPolicy": "RetainExceptOnCreate", "UpdateReplacePolicy": "Retain"}
        resources["FileSystem"] = resource("AWS::EFS::FileSystem", properties, **keep)
        file_system = ref("FileSystem")
    rule = {
        "IpProtocol": "tcp",
        "FromPort": NFS_PORT,
        "ToPort": NFS_PORT,
        "SourceSecurityGroupId": get_att("Cluster", "ClusterSecurityGroupId"),
        "Description": "NFS from the nodes",
    }
    group = {
        "GroupDescription": "NFS from the nodes of the cluster",
        "VpcId": ref("Vpc") if spec.network.is_new else spec.network.vpc,
        "SecurityGroupIngress": [rule],
        "Tags": name_tag("files"),
    }
    resources["FileSystemGroup"] = resource("AWS::EC2::SecurityGroup", group)
    for number, subnet in enumerate(subnets_for(spec, ()), start=1):
        target = {"FileSystemId": file_system, "SubnetId": subnet, "SecurityGroups": [ref("FileSystemGroup")]}
        resources[f"MountTarget{number}"] = resource("AWS::EFS::MountTarget", target)
    return resources


def _outputs(spec: CloudSpec) -> dict[str, Body]:
    outputs: dict[str, Body] = {
        "ClusterName": {"Value": ref("Cluster")},
        "Endpoint": {"Value": get_att("Cluster", "Endpoint")},
        "CertificateAuthority": {"Value": get_att("Cluster", "CertificateAuthorityData")},
        "NodeRole": {"Value": get_att("NodeRole", "Arn")},
    }
    if spec.storage is not None:
        value: object = ref("FileSystem") if spec.storage.is_new else spec.storage.efs
        outputs["FileSystem"] = {"Value": value}
    return outputs


def template_text(cluster: str, spec: CloudSpec) -> str:
    """The template as YAML, with CloudFormation's short forms (`!Ref`)."""
    import yaml

    note = f"# The stack of the cluster {cluster}, from its cluster file: change that, then render again.\n"
    text = yaml.dump(
        make_template(cluster, spec), Dumper=_dumper(), sort_keys=False, width=110, default_flow_style=False
    )
    # The writer quotes every text with a tag; names need no quotes.
    return note + re.sub(r"(!Ref|!GetAtt) '([A-Za-z0-9.]+)'", r"\1 \2", text)


@functools.cache
def _dumper() -> Any:
    import yaml

    class TemplateDumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: Any, data: Body) -> Any:
        if len(data) == 1:
            ((key, value),) = data.items()
            if key in ("Ref", "Fn::Sub"):
                return dumper.represent_scalar(f"!{key.removeprefix('Fn::')}", value)
            if key == "Fn::GetAtt":
                return dumper.represent_scalar("!GetAtt", ".".join(value))
            if key == "Fn::Select":
                return dumper.represent_sequence("!Select", value, flow_style=True)
        return dumper.represent_mapping("tag:yaml.org,2002:map", data.items())

    TemplateDumper.add_representer(dict, represent)
    return TemplateDumper
