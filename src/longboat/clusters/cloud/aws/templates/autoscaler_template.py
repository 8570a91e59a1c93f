"""The identity of the autoscaler in a cluster's stack: a role with its rights, for its service account alone. Pure.

By EKS Pod Identity: nodes and other pods do not get the role.
"""

from __future__ import annotations

from longboat.clusters.cloud.aws.permissions import autoscaler_policy
from longboat.clusters.cloud.aws.templates.intrinsics import Body, get_att, ref, resource
from longboat.engines.kubernetes.install.autoscaler_manifests import AUTOSCALER
from longboat.engines.kubernetes.install.controller_manifests import HOME

AGENT = "eks-pod-identity-agent"
"""AWS's add-on that hands out the credentials on each node."""


def autoscaler_resources(cluster: str, region: str) -> dict[str, Body]:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "pods.eks.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
    }
    role = {
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "Policies": [{"PolicyName": "autoscaler", "PolicyDocument": autoscaler_policy(cluster, region)}],
    }
    identity = {
        "ClusterName": ref("Cluster"),
        "Namespace": HOME,
        "ServiceAccount": AUTOSCALER,
        "RoleArn": get_att("AutoscalerRole", "Arn"),
    }
    return {
        "AutoscalerRole": resource("AWS::IAM::Role", role),
        "PodIdentityAgent": resource("AWS::EKS::Addon", {"ClusterName": ref("Cluster"), "AddonName": AGENT}),
        "AutoscalerIdentity": resource("AWS::EKS::PodIdentityAssociation", identity),
    }
