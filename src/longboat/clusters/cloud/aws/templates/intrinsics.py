"""CloudFormation's own functions as values, names inside a stack, and the tags by which everything of it is known."""

from __future__ import annotations

from typing import Any

from longboat.clusters.cloud.consistency import logical_name

Body = dict[str, Any]

CLUSTER_TAG = "longboat.dev/cluster"
"""On the stack and so on everything in it: the cluster's name."""


VERSION_PARAMETER = "KubernetesVersion"


def stack_name(cluster: str) -> str:
    return f"longboat-{cluster}"


OWNED = "owned"
"""Value of that tag on what was made for the cluster, and goes with it; what is lent to it has `shared`."""


def kubernetes_tag(cluster: str) -> str:
    """On what Kubernetes makes for the cluster by itself: disks of claims, load balancers."""
    return f"kubernetes.io/cluster/{cluster}"


CONTROLLER_TAG = "elbv2.k8s.aws/cluster"
"""On what AWS's load balancer controller makes for the cluster: its name."""


def pool_id(pool: str) -> str:
    """Ends with Pool, and nothing else in a stack does: no pool's name can be that of a parameter or of a template."""
    return f"{logical_name(pool)}Pool"


def ref(name: str) -> Body:
    return {"Ref": name}


def get_att(resource: str, attribute: str) -> Body:
    return {"Fn::GetAtt": [resource, attribute]}


def sub(text: str) -> Body:
    return {"Fn::Sub": text}


def select(index: int, items: Body) -> Body:
    return {"Fn::Select": [index, items]}


def resource(kind: str, properties: Body, **more: Any) -> Body:
    """`more`: DependsOn, DeletionPolicy and their like."""
    return {"Type": kind, **more, "Properties": properties}


def name_tag(text: str) -> list[Body]:
    return [{"Key": "Name", "Value": sub("${AWS::StackName}-" + text)}]


def own_tags(text: str, cluster: str) -> list[Body]:
    """With the cluster's tag, for what tags of the stack may not reach."""
    return [*name_tag(text), {"Key": CLUSTER_TAG, "Value": cluster}]
