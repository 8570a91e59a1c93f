"""The least rights to make, look at and take down clusters on AWS, and those of the autoscaler: IAM policies. Pure.

CloudFormation works with the rights of whoever calls it, so they include those of every resource in the template.
"""

from __future__ import annotations

from typing import Any

from longboat.clouds.aws.tags import CANCELLED_TAG, ORDER_TAG
from longboat.clusters.cloud.aws.templates.intrinsics import CONTROLLER_TAG, OWNED, kubernetes_tag, stack_name

Statement = dict[str, Any]
_ROLE_PREFIX = 24  # as much of a long stack's name as CloudFormation puts before the names of its roles

_STACK = (
    "CreateStack", "UpdateStack", "DeleteStack", "DescribeStacks", "DescribeStackEvents", "GetTemplate", "TagResource",
)  # fmt: skip
_CLUSTER = (
    "CreateCluster", "DeleteCluster", "DescribeCluster", "UpdateClusterConfig", "UpdateClusterVersion",
    "CreateNodegroup", "DeleteNodegroup", "DescribeNodegroup", "ListNodegroups", "UpdateNodegroupConfig",
    "UpdateNodegroupVersion", "DescribeUpdate", "TagResource", "UntagResource", "CreateAccessEntry",
    "CreateAddon", "DeleteAddon", "DescribeAddon", "UpdateAddon", "CreatePodIdentityAssociation",
    "DeletePodIdentityAssociation", "DescribePodIdentityAssociation", "UpdatePodIdentityAssociation",
    "ListPodIdentityAssociations",
)  # fmt: skip
_LOOK = (
    "sts:GetCallerIdentity", "eks:DescribeClusterVersions", "servicequotas:GetServiceQuota", "tag:GetResources",
    "ec2:DescribeAvailabilityZones", "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeInstances", "ec2:DescribeTags",
    "ec2:DescribeVolumes", "ec2:DescribeSnapshots", "ec2:DescribeSubnets", "ec2:DescribeVpcs",
    "ec2:DescribeVpcAttribute",
    "ec2:DescribeRouteTables", "ec2:DescribeInternetGateways", "ec2:DescribeNatGateways", "ec2:DescribeAddresses",
    "ec2:DescribeSecurityGroups", "ec2:DescribeSecurityGroupRules", "ec2:DescribeLaunchTemplates",
    "ec2:DescribeLaunchTemplateVersions", "ec2:DescribePlacementGroups", "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeInstanceTypes", "ec2:DescribeImages", "ec2:DescribeAccountAttributes",
    "elasticloadbalancing:DescribeLoadBalancers", "elasticloadbalancing:DescribeTags",
    "elasticfilesystem:DescribeFileSystems", "elasticfilesystem:DescribeMountTargets",
    "elasticfilesystem:DescribeMountTargetSecurityGroups", "elasticfilesystem:DescribeLifecycleConfiguration",
    "elasticfilesystem:DescribeBackupPolicy", "elasticfilesystem:DescribeFileSystemPolicy",
    "elasticfilesystem:DescribeReplicationConfigurations",
)  # fmt: skip
_NETWORK = (
    "CreateVpc", "DeleteVpc", "ModifyVpcAttribute", "CreateSubnet", "DeleteSubnet", "ModifySubnetAttribute",
    "CreateRouteTable", "DeleteRouteTable", "CreateRoute", "DeleteRoute", "AssociateRouteTable",
    "DisassociateRouteTable", "CreateInternetGateway", "DeleteInternetGateway", "AttachInternetGateway",
    "DetachInternetGateway", "AllocateAddress", "ReleaseAddress", "CreateNatGateway", "DeleteNatGateway",
    "CreateSecurityGroup", "DeleteSecurityGroup", "AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress",
    "AuthorizeSecurityGroupEgress", "RevokeSecurityGroupEgress", "CreateTags", "DeleteTags",
)  # fmt: skip
_MACHINES = (
    "CreateLaunchTemplate", "CreateLaunchTemplateVersion", "ModifyLaunchTemplate", "DeleteLaunchTemplate",
    "DeleteLaunchTemplateVersions", "CreatePlacementGroup", "DeletePlacementGroup", "RunInstances",
)  # fmt: skip
_FILES = (
    "CreateFileSystem", "DeleteFileSystem", "UpdateFileSystem", "CreateMountTarget", "DeleteMountTarget",
    "ModifyMountTargetSecurityGroups", "TagResource", "UntagResource", "ListTagsForResource",
)  # fmt: skip
_ROLES = (
    "CreateRole", "DeleteRole", "GetRole", "TagRole", "UntagRole", "UpdateAssumeRolePolicy", "AttachRolePolicy",
    "DetachRolePolicy", "ListAttachedRolePolicies", "ListRolePolicies", "GetRolePolicy", "PassRole",
    "PutRolePolicy", "DeleteRolePolicy",
)  # fmt: skip
_SERVICE_ROLES = (
    "eks.amazonaws.com",
    "eks-nodegroup.amazonaws.com",
    "spot.amazonaws.com",
    "elasticfilesystem.amazonaws.com",
)


def policy(cluster: str = "*", region: str = "*") -> dict[str, Any]:
    """The policy for one cluster, or for all that Longboat makes."""
    stack, partition = stack_name(cluster), _partition(region)
    roles = f"{stack}-*" if len(stack) <= _ROLE_PREFIX else f"{stack[:_ROLE_PREFIX]}*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            _allow("Stack", "cloudformation", _STACK, f"arn:{partition}:cloudformation:{region}:*:stack/{stack}/*"),
            _allow("Cluster", "eks", _CLUSTER, *(f"arn:{partition}:eks:{region}:*:{kind}" for kind in _eks(cluster))),
            _allow("Roles", "iam", _ROLES, f"arn:{partition}:iam::*:role/{roles}"),
            _service_roles(partition),
            {"Sid": "Look", "Effect": "Allow", "Action": sorted(_LOOK), "Resource": "*"},
            _in_region("Network", [f"ec2:{name}" for name in _NETWORK], region),
            _in_region("Machines", [f"ec2:{name}" for name in _MACHINES], region),
            _in_region("Files", [f"elasticfilesystem:{name}" for name in _FILES], region),
            _leaving(cluster, region),
            *_controllers_balancers(cluster, region),
        ],
    }


_AUTOSCALER_LOOK = (
    "autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances", "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions", "ec2:DescribeSpotInstanceRequests", "ec2:DescribeSpotPriceHistory",
)  # fmt: skip
_GROUPS = ("LaunchInstances", "TerminateInstanceInAutoScalingGroup", "SuspendProcesses")


def autoscaler_policy(cluster: str = "*", region: str = "*") -> dict[str, Any]:
    """The policy of the autoscaler's provider `aws`: it changes what carries the tag of its cluster, nothing else."""
    arn = f"arn:{_partition(region)}"
    groups = f"{arn}:autoscaling:{region}:*:autoScalingGroup:*:autoScalingGroupName/*"
    machines = f"{arn}:ec2:{region}:*:instance/*"
    look = {"Sid": "Look", "Effect": "Allow", "Action": sorted(_AUTOSCALER_LOOK), "Resource": "*"}
    return {
        "Version": "2012-10-17",
        "Statement": [
            look,
            _allow("NodeGroups", "eks", ("DescribeNodegroup",), f"{arn}:eks:{region}:*:nodegroup/{cluster}/*/*"),
            _of_cluster(_allow("Groups", "autoscaling", _GROUPS, groups), cluster),
            _of_cluster(_allow("Cancelled", "autoscaling", ("CreateOrUpdateTags",), groups), cluster, CANCELLED_TAG),
            _of_cluster(_allow("Orders", "ec2", ("CreateTags",), machines), cluster, ORDER_TAG),
        ],
    }


def _of_cluster(statement: Statement, cluster: str, tag: str | None = None) -> Statement:
    """Only on what carries the cluster's tag; with `tag`, no other tag may be written."""
    condition: Statement = {"Null": {f"aws:ResourceTag/{kubernetes_tag(cluster)}": "false"}} if cluster != "*" else {}
    if tag is not None:
        condition["ForAllValues:StringEquals"] = {"aws:TagKeys": [tag]}
    return {**statement, "Condition": condition} if condition else statement


def _partition(region: str) -> str:
    return "aws-us-gov" if region.startswith("us-gov-") else "aws-cn" if region.startswith("cn-") else "aws"


def _eks(cluster: str) -> tuple[str, ...]:
    kinds = ("nodegroup/{}/*/*", "access-entry/{}/*", "addon/{}/*/*", "podidentityassociation/{}/*")
    return (f"cluster/{cluster}", *(kind.format(cluster) for kind in kinds))


def _allow(name: str, service: str, actions: tuple[str, ...], *resources: str) -> Statement:
    listed = [f"{service}:{action}" for action in sorted(actions)]
    return {"Sid": name, "Effect": "Allow", "Action": listed, "Resource": list(resources)}


def _service_roles(partition: str) -> Statement:
    condition = {"StringEquals": {"iam:AWSServiceName": list(_SERVICE_ROLES)}}
    return {
        "Sid": "ServiceRoles",
        "Effect": "Allow",
        "Action": ["iam:CreateServiceLinkedRole", "iam:GetRole"],
        "Resource": f"arn:{partition}:iam::*:role/aws-service-role/*",
        "Condition": condition,
    }


def _in_region(name: str, actions: list[str], region: str) -> Statement:
    """What has no name before it exists cannot be limited further than to a region."""
    statement: Statement = {"Sid": name, "Effect": "Allow", "Action": sorted(actions), "Resource": "*"}
    return statement if region == "*" else {**statement, "Condition": {"StringEquals": {"aws:RequestedRegion": region}}}


def _leaving(cluster: str, region: str) -> Statement:
    """What Kubernetes made and `down` deletes: only with the tag of a cluster."""
    partition = _partition(region)
    tag = f"aws:ResourceTag/{kubernetes_tag(cluster)}"
    condition = {"StringEquals": {tag: OWNED}} if cluster != "*" else None
    body: Statement = {
        "Sid": "Leaving",
        "Effect": "Allow",
        "Action": ["ec2:DeleteSnapshot", "ec2:DeleteVolume", "elasticloadbalancing:DeleteLoadBalancer"],
        "Resource": [
            f"arn:{partition}:ec2:{region}::snapshot/*",
            f"arn:{partition}:ec2:{region}:*:volume/*",
            f"arn:{partition}:elasticloadbalancing:{region}:*:loadbalancer/*",
        ],
    }
    return body if condition is None else {**body, "Condition": condition}


def _controllers_balancers(cluster: str, region: str) -> list[Statement]:
    """Those of AWS's load balancer controller have a tag of its own, and no other. Without a name all are allowed."""
    if cluster == "*":
        return []
    arn = f"arn:{_partition(region)}:elasticloadbalancing:{region}:*:loadbalancer/*"
    statement = _allow("LeavingOfController", "elasticloadbalancing", ("DeleteLoadBalancer",), arn)
    return [{**statement, "Condition": {"StringEquals": {f"aws:ResourceTag/{CONTROLLER_TAG}": cluster}}}]
