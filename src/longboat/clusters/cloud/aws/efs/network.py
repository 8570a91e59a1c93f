"""The network of a cluster's nodes on AWS: its VPC, a subnet for each zone, the nodes' security groups. Reads.

Found from the nodes' own machines (`spec.providerID`), whoever made the cluster. Of EKS, the cluster itself names more:
zones that have no node now, and the group that all its nodes share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longboat.clouds.aws.session import AwsSession, NoSuchResource
from longboat.core.errors import Refused
from longboat.core.jobs import Value

_MACHINE = re.compile(r"aws:///([a-z]{2}(?:-[a-z]+)+-\d)[a-z0-9-]*/(i-[0-9a-f]{8,17})")
_CLUSTER_TAGS = ("aws:eks:cluster-name", "eks:cluster-name")
_AT_ONCE = 100  # ids in one request: what it is sent as stays a few kilobytes


class NodeMachine(Value, frozen=True):
    id: str
    region: str


class NodeNetwork(Value, frozen=True):
    region: str
    vpc: str
    subnets: dict[str, str]  # zone -> one subnet of it
    groups: tuple[str, ...]  # security groups of the nodes
    cluster: str = ""  # of EKS


def machines_of(provider_ids: Iterable[str]) -> list[NodeMachine]:
    """Nodes that are machines of AWS. Pure."""
    matches = (_MACHINE.fullmatch(text) for text in provider_ids)
    return [NodeMachine(id=match[2], region=match[1]) for match in matches if match]


def region_of(machines: Sequence[NodeMachine], given: str | None) -> str:
    """The region that the nodes are in. Raises Refused. Pure."""
    regions = sorted({machine.region for machine in machines})
    if given is not None and given not in (regions or [given]):
        raise Refused(f"--region {given}: the nodes of this cluster are in {', '.join(regions)}")
    if len(regions) > 1:
        raise Refused(f"the nodes are in several regions ({', '.join(regions)}), and EFS is of one")
    if not regions and given is None:
        raise Refused(
            "no node of this cluster is a machine of AWS, so its network is not known",
            hint="an EKS cluster without nodes: --region REGION --eks CLUSTER",
        )
    return regions[0] if regions else str(given)


def find_network(session: AwsSession, machines: Sequence[NodeMachine], eks: str | None = None) -> NodeNetwork:
    """The network of these machines, or of an EKS cluster. Raises Refused and the errors of AWS."""
    bodies = list(_describe(session, machines))
    cluster = eks or next((name for body in bodies if (name := _cluster_of(body))), "")
    vpcs = sorted({body["VpcId"] for body in bodies if body.get("VpcId")})
    subnets = {body["SubnetId"] for body in bodies if body.get("SubnetId")}
    groups = {group["GroupId"] for body in bodies for group in body.get("SecurityGroups") or ()}
    if cluster:
        config = _eks(session, cluster, is_named=eks is not None)
        vpcs = sorted({*vpcs, *filter(None, [config.get("vpcId")])})
        subnets |= set(config.get("subnetIds") or ())
        groups |= set(filter(None, [config.get("clusterSecurityGroupId")]))
    if len(vpcs) != 1:
        where = f"several networks: {', '.join(vpcs)}" if vpcs else "no network that AWS knows"
        raise Refused(f"the nodes are in {where}", hint="--eks CLUSTER names the cluster if it is one of EKS")
    if not groups:
        raise Refused(f"the nodes in {vpcs[0]} have no security group to let in")
    return NodeNetwork(
        region=session.region,
        vpc=vpcs[0],
        subnets=one_for_each_zone(session.call("ec2", "describe_subnets", SubnetIds=sorted(subnets))["Subnets"]),
        groups=tuple(sorted(groups)),
        cluster=cluster,
    )


def one_for_each_zone(subnets: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Zone -> a subnet: EFS takes one mount target in a zone, and the whole zone reaches it. The roomiest. Pure."""
    ordered = sorted(subnets, key=lambda each: (-int(each.get("AvailableIpAddressCount") or 0), each["SubnetId"]))
    chosen: dict[str, str] = {}
    for subnet in ordered:
        chosen.setdefault(subnet["AvailabilityZone"], subnet["SubnetId"])
    return dict(sorted(chosen.items()))


def _describe(session: AwsSession, machines: Sequence[NodeMachine]) -> Iterable[dict[str, Any]]:
    for start in range(0, len(machines), _AT_ONCE):
        # By a filter: an id that is gone is no error then.
        ids = [machine.id for machine in machines[start : start + _AT_ONCE]]
        filters = [{"Name": "instance-id", "Values": ids}]
        for reservation in session.pages("ec2", "describe_instances", "Reservations", Filters=filters):
            yield from reservation.get("Instances") or ()


def _cluster_of(body: Mapping[str, Any]) -> str:
    tags = {tag["Key"]: tag.get("Value") or "" for tag in body.get("Tags") or ()}
    return next((tags[name] for name in _CLUSTER_TAGS if tags.get(name)), "")


def _eks(session: AwsSession, cluster: str, *, is_named: bool) -> dict[str, Any]:
    try:
        config: dict[str, Any] = session.call("eks", "describe_cluster", name=cluster)["cluster"]["resourcesVpcConfig"]
        return config
    except NoSuchResource:
        if is_named:
            raise Refused(f"EKS has no cluster {cluster} in {session.region}") from None
        return {}
