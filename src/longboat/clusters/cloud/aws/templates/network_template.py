"""The network of a stack: a VPC with a public and a private subnet in each zone, and the ways to the internet. Pure."""

from __future__ import annotations

import ipaddress

from longboat.clusters.cloud.aws.templates.intrinsics import Body, get_att, name_tag, ref, resource, select
from longboat.clusters.cloud.spec import CloudNetwork, CloudSpec

ZONES_PARAMETER = "Zones"
DEFAULT_ZONES = 3
TWO_ZONES = ("us-west-1", "ca-central-1")
"""Regions in which EKS has two zones for an account."""
EVERYWHERE = "0.0.0.0/0"


def zone_count(spec: CloudSpec) -> int:
    named = zone_names(spec)
    return len(named) if named else 2 if spec.region in TWO_ZONES else DEFAULT_ZONES


def zone_names(spec: CloudSpec) -> tuple[str, ...]:
    """The zones that the file names, of the network or of its pools; none: any will do."""
    if spec.network.zones:
        return spec.network.zones
    return tuple(sorted({zone for pool in spec.pools for zone in pool.zones}))


def subnets_for(spec: CloudSpec, zones: tuple[str, ...]) -> list[object]:
    """Subnets of nodes in these zones, as the template names them; no zones: all."""
    network = spec.network
    if not network.is_new:
        return [subnet for zone, subnet in network.subnets if not zones or zone in zones]
    names = zone_names(spec)
    wanted = [names.index(zone) for zone in zones] if zones else range(zone_count(spec))
    kind = "Private" if network.nodes == "private" else "Public"
    return [ref(f"{kind}Subnet{index + 1}") for index in wanted]


def network_resources(spec: CloudSpec) -> dict[str, Body]:
    """Resources of a new network; an existing one is left as it is."""
    network = spec.network
    if not network.is_new:
        return {}
    has_private = network.nodes == "private"
    resources = _gateway(network)
    for index, (public, private) in enumerate(subnet_cidrs(network, zone_count(spec))):
        resources |= _public(index, public)
        if has_private:
            resources |= _private(index, private)
    return resources | (_nat() if has_private else {})


def subnet_cidrs(network: CloudNetwork, zones: int) -> list[tuple[str, str]]:
    """Public and private addresses by zone: equal parts for the private nodes of each zone, and one more part for all
    that is public. Where nodes are public, the parts are theirs."""
    whole = ipaddress.IPv4Network(network.cidr)
    bits = zones.bit_length()  # one part more than zones
    if network.nodes == "public":
        return [(str(part), "") for part in list(whole.subnets(bits))[:zones]]
    *private, last = list(whole.subnets(bits))
    public = list(last.subnets(bits))
    return [(str(public[index]), str(private[index])) for index in range(zones)]


def _gateway(network: CloudNetwork) -> dict[str, Body]:
    vpc = {"CidrBlock": network.cidr, "EnableDnsSupport": True, "EnableDnsHostnames": True, "Tags": name_tag("vpc")}
    route = {
        "RouteTableId": ref("PublicRoutes"),
        "DestinationCidrBlock": EVERYWHERE,
        "GatewayId": ref("InternetGateway"),
    }
    return {
        "Vpc": resource("AWS::EC2::VPC", vpc),
        "InternetGateway": resource("AWS::EC2::InternetGateway", {"Tags": name_tag("internet")}),
        "InternetGatewayAttachment": resource(
            "AWS::EC2::VPCGatewayAttachment", {"VpcId": ref("Vpc"), "InternetGatewayId": ref("InternetGateway")}
        ),
        "PublicRoutes": resource("AWS::EC2::RouteTable", {"VpcId": ref("Vpc"), "Tags": name_tag("public")}),
        "PublicRoute": resource("AWS::EC2::Route", route, DependsOn="InternetGatewayAttachment"),
    }


def _public(index: int, cidr: str) -> dict[str, Body]:
    balancer = [{"Key": "kubernetes.io/role/elb", "Value": "1"}]
    return _subnet(f"PublicSubnet{index + 1}", index, cidr, "PublicRoutes", is_public=True, tags=balancer)


def _private(index: int, cidr: str) -> dict[str, Body]:
    balancer = [{"Key": "kubernetes.io/role/internal-elb", "Value": "1"}]
    return _subnet(f"PrivateSubnet{index + 1}", index, cidr, "PrivateRoutes", is_public=False, tags=balancer)


def _subnet(name: str, index: int, cidr: str, routes: str, *, is_public: bool, tags: list[Body]) -> dict[str, Body]:
    properties = {
        "VpcId": ref("Vpc"),
        "AvailabilityZone": select(index, ref(ZONES_PARAMETER)),
        "CidrBlock": cidr,
        "MapPublicIpOnLaunch": is_public,
        "Tags": [*name_tag(f"{'public' if is_public else 'private'}-{index + 1}"), *tags],
    }
    association = {"SubnetId": ref(name), "RouteTableId": ref(routes)}
    return {
        name: resource("AWS::EC2::Subnet", properties),
        f"{name}Routes": resource("AWS::EC2::SubnetRouteTableAssociation", association),
    }


def _nat() -> dict[str, Body]:
    """One NAT gateway for all zones: a second one costs as much again, and trainings bear its loss."""
    gateway = {
        "AllocationId": get_att("NatAddress", "AllocationId"),
        "SubnetId": ref("PublicSubnet1"),
        "Tags": name_tag("nat"),
    }
    route = {
        "RouteTableId": ref("PrivateRoutes"),
        "DestinationCidrBlock": EVERYWHERE,
        "NatGatewayId": ref("NatGateway"),
    }
    return {
        "NatAddress": resource(
            "AWS::EC2::EIP", {"Domain": "vpc", "Tags": name_tag("nat")}, DependsOn="InternetGatewayAttachment"
        ),
        "NatGateway": resource("AWS::EC2::NatGateway", gateway, DependsOn=["PublicRoute", "PublicSubnet1Routes"]),
        "PrivateRoutes": resource("AWS::EC2::RouteTable", {"VpcId": ref("Vpc"), "Tags": name_tag("private")}),
        "PrivateRoute": resource("AWS::EC2::Route", route),
    }
