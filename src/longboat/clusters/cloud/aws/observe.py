"""Looks at a cluster on AWS: EKS, its node groups, what the region offers, and what is left of it. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from longboat.clouds.aws.session import AwsSession, NoSuchResource
from longboat.clouds.machine_types import MachineTable
from longboat.clusters.cloud.aws.decide import ClusterView, NodeGroupView
from longboat.clusters.cloud.aws.preflight import RegionView, quota_of
from longboat.clusters.cloud.aws.templates.intrinsics import CLUSTER_TAG, OWNED, kubernetes_tag
from longboat.clusters.cloud.labels import POOL_LABEL
from longboat.clusters.cloud.spec import CloudSpec
from longboat.core.errors import LongboatError
from longboat.core.jobs import Value

_OF_DRIVER = "CSIVolumeSnapshotName"
"""Tag of the driver on its snapshots. A backup by other tools may have all tags of its disk, and not this one."""


class Leftover(Value, frozen=True):
    """Something that was made for a cluster and is still there."""

    kind: str
    id: str


def see_cluster(session: AwsSession, name: str) -> ClusterView | None:
    try:
        body = session.call("eks", "describe_cluster", name=name)["cluster"]
    except NoSuchResource:
        return None
    names = list(session.pages("eks", "list_nodegroups", "nodegroups", clusterName=name))
    return ClusterView(
        status=body["status"],
        version=body.get("version", ""),
        endpoint=body.get("endpoint") or "",
        authority=(body.get("certificateAuthority") or {}).get("data") or "",
        access=tuple(body["resourcesVpcConfig"].get("publicAccessCidrs") or ()),
        groups=tuple(
            _group(session.call("eks", "describe_nodegroup", clusterName=name, nodegroupName=each)["nodegroup"])
            for each in names
        ),
    )


def _group(body: dict[str, Any]) -> NodeGroupView:
    sizes, labels = body["scalingConfig"], dict(body.get("labels") or {})
    issues = (body.get("health") or {}).get("issues") or ()
    return NodeGroupView(
        name=body["nodegroupName"],
        pool=labels.get(POOL_LABEL, ""),
        status=body["status"],
        type=",".join(body.get("instanceTypes") or ()),
        version=body.get("version") or "",
        spot=body.get("capacityType") == "SPOT",
        min=sizes["minSize"],
        max=sizes["maxSize"],
        desired=sizes["desiredSize"],
        labels=labels,
        taints=tuple((each["key"], each.get("value", ""), each["effect"]) for each in body.get("taints") or ()),
        issues=tuple(f"{issue.get('code', '')}: {issue.get('message', '')}" for issue in issues),
    )


def see_region(session: AwsSession, spec: CloudSpec) -> RegionView:
    """Zones and what they offer. What may not be asked is left open, except the zones."""
    zones = session.call(
        "ec2", "describe_availability_zones", Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}]
    )
    usable = [(each["ZoneName"], each["ZoneId"]) for each in zones["AvailabilityZones"] if each["State"] == "available"]
    types = sorted({pool.type for pool in spec.pools})
    offers: set[tuple[str, str]] | None = set()
    filters = [{"Name": "instance-type", "Values": types}]
    try:
        for each in session.pages(
            "ec2",
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=filters,
        ):
            assert offers is not None
            offers.add((each["InstanceType"], each["Location"]))
    except (LongboatError, NoSuchResource):
        offers = None
    return RegionView(
        zones=tuple(usable), offers=None if offers is None else frozenset(offers), versions=_versions(session)
    )


def _versions(session: AwsSession) -> tuple[str, ...]:
    try:
        return tuple(
            each["clusterVersion"] for each in session.pages("eks", "describe_cluster_versions", "clusterVersions")
        )
    except (LongboatError, NoSuchResource):
        return ()


def see_quotas(session: AwsSession, codes: Sequence[str]) -> dict[str, float]:
    """Quotas of the account by code, in virtual CPUs; those that may not be asked are missing."""
    quotas = {}
    for code in codes:
        try:
            body = session.call("service-quotas", "get_service_quota", ServiceCode="ec2", QuotaCode=code)
            quotas[code] = float(body["Quota"]["Value"])
        except (LongboatError, NoSuchResource):
            continue
    return quotas


def is_of_others(session: AwsSession, name: str) -> bool:
    """Whether there is a cluster of this name that Longboat did not make: what has its tag is not ours to delete."""
    try:
        body = session.call("eks", "describe_cluster", name=name)["cluster"]
    except NoSuchResource:
        return False
    return (body.get("tags") or {}).get(CLUSTER_TAG) != name


def see_use(session: AwsSession, table: MachineTable) -> dict[str, float]:
    """Virtual CPUs of the account's machines in this region by the code of their quota; nothing where they may not be
    seen."""
    used: dict[str, float] = {}
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    try:
        for reservation in session.pages("ec2", "describe_instances", "Reservations", Filters=states):
            for body in reservation.get("Instances") or ():
                bought = body.get("InstanceLifecycle") or ""
                quota = quota_of(body["InstanceType"], spot=bought == "spot")
                # Hosts of one's own, and capacity that was reserved as a block, have quotas of their own.
                is_apart = bought not in ("", "spot") or (body.get("Placement") or {}).get("Tenancy") == "host"
                if quota is not None and not is_apart:
                    used[quota[0]] = used.get(quota[0], 0.0) + _cpus(body, table)
    except (LongboatError, NoSuchResource):
        return {}
    return used


def _cpus(body: Mapping[str, Any], table: MachineTable) -> int:
    options, machine = body.get("CpuOptions") or {}, table.machines.get(body["InstanceType"])
    threads = int(options.get("CoreCount") or 0) * int(options.get("ThreadsPerCore") or 1)
    return threads or (machine.cpus if machine is not None else 0)


def see_volumes(session: AwsSession, cluster: str) -> list[str]:
    """Disks that were made for claims of the cluster."""
    filters = [{"Name": f"tag:{kubernetes_tag(cluster)}", "Values": [OWNED]}]
    return [each["VolumeId"] for each in session.pages("ec2", "describe_volumes", "Volumes", Filters=filters)]


def see_snapshots(session: AwsSession, cluster: str) -> list[str]:
    """Snapshots that were made for claims, which have the same tag."""
    filters = [
        {"Name": f"tag:{kubernetes_tag(cluster)}", "Values": [OWNED]},
        {"Name": "tag-key", "Values": [_OF_DRIVER]},
    ]
    pages = session.pages("ec2", "describe_snapshots", "Snapshots", Filters=filters, OwnerIds=["self"])
    return [each["SnapshotId"] for each in pages]


def see_leftovers(session: AwsSession, cluster: str) -> list[Leftover]:
    """Everything that carries a tag of the cluster as its own, of EC2 and of all other services; no backups."""
    return sorted({*_of_ec2(session, cluster), *_of_others(session, cluster)}, key=lambda each: (each.kind, each.id))


def _of_ec2(session: AwsSession, cluster: str) -> Iterator[Leftover]:
    own = [{"Name": "key", "Values": [CLUSTER_TAG]}, {"Name": "value", "Values": [cluster]}]
    made = [{"Name": "key", "Values": [kubernetes_tag(cluster)]}, {"Name": "value", "Values": [OWNED]}]
    for filters in (own, made):
        for each in session.pages("ec2", "describe_tags", "Tags", Filters=filters):
            if _is_there(session, each["ResourceType"], each["ResourceId"]):
                yield Leftover(kind=each["ResourceType"], id=each["ResourceId"])


def _is_there(session: AwsSession, kind: str, id: str) -> bool:
    """Machines and NAT gateways are listed with their tags for an hour after they are gone, disks for a while."""
    try:
        if kind == "instance":
            groups = session.call("ec2", "describe_instances", InstanceIds=[id])["Reservations"]
            return any(each["State"]["Name"] != "terminated" for group in groups for each in group["Instances"])
        if kind == "natgateway":
            gateways = session.call("ec2", "describe_nat_gateways", NatGatewayIds=[id])["NatGateways"]
            return any(each["State"] != "deleted" for each in gateways)
        if kind == "volume":
            volumes = session.call("ec2", "describe_volumes", VolumeIds=[id])["Volumes"]
            return any(each["State"] not in ("deleting", "deleted") for each in volumes)
        if kind == "snapshot":
            snapshots = session.call("ec2", "describe_snapshots", SnapshotIds=[id])["Snapshots"]
            return any(tag["Key"] == _OF_DRIVER for each in snapshots for tag in each.get("Tags") or ())
        if kind == "security-group":
            return bool(session.call("ec2", "describe_security_groups", GroupIds=[id])["SecurityGroups"])
    except NoSuchResource:
        return False
    return True


def _of_others(session: AwsSession, cluster: str) -> Iterator[Leftover]:
    for filters in ([{"Key": CLUSTER_TAG, "Values": [cluster]}], [{"Key": kubernetes_tag(cluster), "Values": [OWNED]}]):
        for each in session.pages(
            "resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", TagFilters=filters
        ):
            _, _, service, _, _, name = each["ResourceARN"].split(":", 5)
            if service not in ("ec2", "cloudformation") and not _is_gone(session, service, name):
                yield Leftover(kind=service, id=name)


def _is_gone(session: AwsSession, service: str, name: str) -> bool:
    """The list of tags names things for a while after they are gone: EKS is asked itself."""
    kind, _, rest = name.partition("/")
    if service != "eks":
        return False
    try:
        if kind == "cluster":
            session.call("eks", "describe_cluster", name=rest)
        elif kind == "nodegroup":
            session.call("eks", "describe_nodegroup", clusterName=rest.split("/")[0], nodegroupName=rest.split("/")[1])
    except NoSuchResource:
        return True
    return False
