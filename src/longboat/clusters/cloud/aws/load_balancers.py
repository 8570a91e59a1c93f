"""Load balancers that Kubernetes made for a cluster on AWS, and their security groups: deleted before its network goes.

They are no part of the stack. Their tag alone does not say whose they are: clusters of the same name that were not made
by EKS (kops, kubeadm) have it too. So they must stand in a network of this cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from longboat.clouds.aws.session import AwsSession, NoSuchResource
from longboat.clusters.cloud.aws.stack import Listen, ResourceEvent, ResourceState
from longboat.clusters.cloud.aws.templates.intrinsics import (
    CLUSTER_TAG,
    CONTROLLER_TAG,
    OWNED,
    kubernetes_tag,
)

Body = Mapping[str, Any]
_GROUP_PREFIX = "k8s-"
"""Of names of groups that Kubernetes' own controller makes for balancers (`k8s-elb-`), and AWS's."""
_BATCH = 20  # balancers whose tags are asked for at once: the API takes no more
INTERFACES_S = 300.0
"""Interfaces of a deleted balancer are there for a minute or two, and keep its groups."""
_LOOK_S = 3.0  # one request for all groups


class ClusterBalancers:
    """Those of one cluster."""

    def __init__(self, session: AwsSession, cluster: str) -> None:
        self._session, self._cluster = session, cluster

    def networks(self) -> set[str]:
        """VPCs of the stack and of its cluster; none where neither is there any more."""
        filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]}]
        vpcs = {str(each["VpcId"]) for each in self._session.pages("ec2", "describe_vpcs", "Vpcs", Filters=filters)}
        try:
            body = self._session.call("eks", "describe_cluster", name=self._cluster)["cluster"]
        except NoSuchResource:
            return vpcs
        if (body.get("tags") or {}).get(CLUSTER_TAG) == self._cluster:
            vpcs |= {vpc for vpc in [body["resourcesVpcConfig"].get("vpcId")] if vpc}
        return vpcs

    def delete(self, listen: Listen) -> None:
        """Delete them all, and tell of each group what became of it."""
        networks = self.networks()
        if not networks:
            return
        self._delete_balancers(networks)
        groups = [each for each in self._groups(networks) if self._is_own_group(each)]
        if groups:
            self._delete_groups(groups, networks, listen)

    def _delete_balancers(self, networks: Set[str]) -> None:
        listed = self._session.pages("elbv2", "describe_load_balancers", "LoadBalancers")
        arns = [each["LoadBalancerArn"] for each in listed if each.get("VpcId") in networks]
        for part in _parts(arns):
            for each in self._session.call("elbv2", "describe_tags", ResourceArns=part)["TagDescriptions"]:
                if self._is_own(each["Tags"]):
                    self._gone("elbv2", "delete_load_balancer", LoadBalancerArn=each["ResourceArn"])
        older = self._session.pages("elb", "describe_load_balancers", "LoadBalancerDescriptions")
        names = [each["LoadBalancerName"] for each in older if each.get("VPCId") in networks]
        for part in _parts(names):
            for each in self._session.call("elb", "describe_tags", LoadBalancerNames=part)["TagDescriptions"]:
                if self._is_own(each["Tags"]):
                    self._gone("elb", "delete_load_balancer", LoadBalancerName=each["LoadBalancerName"])

    def _groups(self, networks: Set[str]) -> list[Body]:
        filters = [{"Name": "vpc-id", "Values": sorted(networks)}]
        return [*self._session.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=filters)]

    def _is_own_group(self, group: Body) -> bool:
        """Groups of nodes have the tag too, EKS's own and those that people make: these are not of balancers."""
        return group["GroupName"].startswith(_GROUP_PREFIX) and self._is_own(group.get("Tags") or ())

    def _is_own(self, tags: Sequence[Mapping[str, str]]) -> bool:
        """By the tag of Kubernetes' own controller, or of AWS's."""
        pairs = {item["Key"]: item.get("Value", "") for item in tags}
        return pairs.get(kubernetes_tag(self._cluster)) == OWNED or pairs.get(CONTROLLER_TAG) == self._cluster

    def _delete_groups(self, groups: Sequence[Body], networks: Set[str], listen: Listen) -> None:
        """Those that nothing uses any more. What is still used stays, and is named: the stack may fail for it."""
        names = {str(each["GroupId"]): str(each["GroupName"]) for each in groups}
        for name in names.values():
            _tell(listen, name, "started", "")
        used = self._wait_for_interfaces(names)
        free = {id for id in names if id not in used}
        for id, name in names.items():
            if id in used:
                _tell(listen, name, "kept", f"{id} is used by {used[id]}")
        for group in self._groups(networks):
            if self._is_of_cluster(group):
                self._revoke(group, free)
        for id in sorted(free):
            if self._delete_group(id):
                _tell(listen, names[id], "done", id)
            else:
                _tell(listen, names[id], "kept", f"{id} is used by others")

    def _is_of_cluster(self, group: Body) -> bool:
        """Those of its nodes too, and of its stack. Rules of strangers are theirs."""
        tags = group.get("Tags") or ()
        return self._is_own(tags) or {"Key": CLUSTER_TAG, "Value": self._cluster} in tags

    def _delete_group(self, id: str) -> bool:
        """False: something depends on it."""
        try:
            return self._session.call_unless("DependencyViolation", "ec2", "delete_security_group", GroupId=id)
        except NoSuchResource:
            return True

    def _wait_for_interfaces(self, groups: Mapping[str, str]) -> dict[str, str]:
        """Group -> an interface that still has it, when all that go by themselves are gone."""
        deadline = time.monotonic() + INTERFACES_S
        while (used := self._interfaces(groups)) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return used

    def _interfaces(self, groups: Mapping[str, str]) -> dict[str, str]:
        filters = [{"Name": "group-id", "Values": sorted(groups)}]
        pages = self._session.pages("ec2", "describe_network_interfaces", "NetworkInterfaces", Filters=filters)
        of_groups = [(group["GroupId"], each) for each in pages for group in each.get("Groups") or ()]
        return {id: str(each["NetworkInterfaceId"]) for id, each in of_groups if id in groups}

    def _revoke(self, group: Body, gone: Set[str]) -> None:
        """Rules of a group that refer to groups which go: AWS deletes none before."""
        for key, way in (("IpPermissions", "ingress"), ("IpPermissionsEgress", "egress")):
            rules = list(_rules_of(group.get(key) or (), gone))
            if rules:
                operation, id = f"revoke_security_group_{way}", group["GroupId"]
                arguments = {"GroupId": id, "IpPermissions": rules}
                try:
                    self._session.call_unless("InvalidPermission.NotFound", "ec2", operation, **arguments)
                except NoSuchResource:
                    continue

    def _gone(self, service: str, operation: str, **arguments: str) -> None:
        try:
            self._session.call(service, operation, **arguments)
        except NoSuchResource:
            pass


def _rules_of(permissions: Sequence[Body], groups: Set[str]) -> Iterator[dict[str, Any]]:
    """The parts of rules that name these groups. Pure."""
    for rule in permissions:
        named = [each.get("GroupId") for each in rule.get("UserIdGroupPairs") or ()]
        ports = {key: rule[key] for key in ("IpProtocol", "FromPort", "ToPort") if key in rule}
        yield from ({**ports, "UserIdGroupPairs": [{"GroupId": id}]} for id in named if id in groups)


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + _BATCH] for start in range(0, len(names), _BATCH))


def _tell(listen: Listen, name: str, state: ResourceState, text: str) -> None:
    listen(ResourceEvent(resource=name, type="EC2::SecurityGroup", state=state, at=time.time(), text=text))
