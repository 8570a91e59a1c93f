"""A file system of EFS for a claim: found or made, with a security group and a mount target in every zone of the nodes.

Each step looks for what it would make, so that a half-made one is finished by the same call. Nothing is deleted but
mount targets and their group by `unmount`, for a network that goes: no data is in them.
"""

from __future__ import annotations

import functools
import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longboat.clouds.aws.session import AwsSession, NoSuchResource
from longboat.clusters.cloud.aws.efs.network import NodeNetwork
from longboat.clusters.cloud.aws.templates.intrinsics import CLUSTER_TAG
from longboat.clusters.cloud.aws.templates.template import NFS_PORT
from longboat.core.errors import EngineError, NotFound, Refused
from longboat.core.jobs import Value
from longboat.core.words import counted

ID = re.compile(r"fs-[0-9a-f]{8,40}")
VOLUME_TAG = "longboat.dev/volume"
_EFS = "efs"
GROUP_PREFIX = "longboat-"
"""Of the name of a security group; the id of its file system follows."""
_POLL_S = 2.0  # AWS limits requests, and a mount target takes a minute
UNMOUNT_S = 300.0  # a mount target is gone after a minute or two, its group can go only then
Say = Callable[[str], None]


class FileSystem(Value, frozen=True):
    id: str
    server: str  # its name in the network
    is_new: bool = False


class MountTarget(Value, frozen=True):
    id: str
    zone: str
    vpc: str
    state: str


def prepare(
    session: AwsSession, network: NodeNetwork, *, volume: str, id: str | None, timeout_s: float, say: Say
) -> FileSystem:
    """The file system that nodes of this network can mount. `volume`: NAMESPACE/NAME of the claim. Raises EngineError,
    Refused, NotFound; what was made until then stays, and the same call goes on."""
    deadline = time.monotonic() + timeout_s
    is_new = False
    if id is None:
        id, is_new = _make(session, network, volume)
        say(f"{id}: {'made' if is_new else 'was made before, and is used'}")
    _until(lambda: _state_of(session, id), f"the file system {id}", deadline)
    there = mount_targets(session, id)
    if elsewhere := sorted({target.vpc for target in there} - {network.vpc}):
        raise Refused(
            f"{id} is mounted in {elsewhere[0]}, and the nodes are in {network.vpc}: EFS serves one network",
            hint="another file system, or leave its id out for a new one",
        )
    missing = {zone: subnet for zone, subnet in network.subnets.items() if zone not in {each.zone for each in there}}
    if missing:
        group = _group(session, network, id)
        for zone, subnet in missing.items():
            _mount(session, id, subnet, group)
            say(f"{id}: mount target in {zone}")
    for target in there:
        if warning := _closed(session, target, network):
            say(warning)
    _until(lambda: _mounted(session, id, network.subnets), f"the mount targets of {id}", deadline)
    return FileSystem(id=id, server=server_of(id, session.region), is_new=is_new)


def server_of(id: str, region: str) -> str:
    """The name by which nodes of the network reach it. Pure."""
    return f"{id}.efs.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"


def token_of(network: NodeNetwork, volume: str) -> str:
    """The same for the same claim of the same cluster: AWS makes nothing twice for it. Pure."""
    scope = "\0".join((network.cluster or network.vpc, network.vpc, volume))
    return f"longboat-{hashlib.sha256(scope.encode()).hexdigest()[:40]}"


def opens_nfs(group: Mapping[str, Any], sources: Sequence[str]) -> bool:
    """Whether a security group lets NFS in from one of these groups, or from addresses. Pure."""
    for rule in group.get("IpPermissions") or ():
        low, high = rule.get("FromPort", 0), rule.get("ToPort", 65535)
        fits = rule.get("IpProtocol") == "-1" or (rule.get("IpProtocol") == "tcp" and low <= NFS_PORT <= high)
        of_nodes = any(pair.get("GroupId") in sources for pair in rule.get("UserIdGroupPairs") or ())
        if fits and (of_nodes or rule.get("IpRanges") or rule.get("Ipv6Ranges") or rule.get("PrefixListIds")):
            return True
    return False


def mount_targets(session: AwsSession, id: str) -> list[MountTarget]:
    bodies = session.pages(_EFS, "describe_mount_targets", "MountTargets", FileSystemId=id)
    return [
        MountTarget(
            id=body["MountTargetId"],
            zone=body.get("AvailabilityZoneName") or "",
            vpc=body.get("VpcId") or "",
            state=body["LifeCycleState"],
        )
        for body in bodies
        if body["LifeCycleState"] not in ("deleting", "deleted")
    ]


def _make(session: AwsSession, network: NodeNetwork, volume: str) -> tuple[str, bool]:
    """The id, and whether it is new."""
    token = token_of(network, volume)
    if id := _made_before(session, token):
        return id, False
    tags = {"Name": f"longboat {volume}", VOLUME_TAG: volume}
    if network.cluster:
        tags[CLUSTER_TAG] = network.cluster
    is_new = session.call_unless(
        "FileSystemAlreadyExists",  # by another process, in this moment
        _EFS,
        "create_file_system",
        CreationToken=token,
        Encrypted=True,
        ThroughputMode="elastic",
        Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
    )
    if id := _made_before(session, token):
        return id, is_new
    raise EngineError("EFS does not show the file system that it has made yet", hint="the same command goes on")


def _made_before(session: AwsSession, token: str) -> str:
    systems = list(session.pages(_EFS, "describe_file_systems", "FileSystems", CreationToken=token))
    return str(systems[0]["FileSystemId"]) if systems else ""


def _state_of(session: AwsSession, id: str) -> str:
    """Empty: it can be used."""
    try:
        (body,) = session.call(_EFS, "describe_file_systems", FileSystemId=id)["FileSystems"]
    except (NoSuchResource, ValueError):
        raise NotFound(
            f"EFS has no file system {id} in {session.region}",
            hint="aws efs describe-file-systems lists them; leave the id out and one is made",
        ) from None
    state = str(body["LifeCycleState"])
    if state in ("deleting", "deleted", "error"):
        raise Refused(f"the file system {id} is {state}", hint="leave its id out and one is made")
    return "" if state == "available" else state


def _mounted(session: AwsSession, id: str, zones: Mapping[str, str]) -> str:
    """Empty: every zone has a mount target that works."""
    states = {target.zone: target.state for target in mount_targets(session, id)}
    if broken := sorted(zone for zone in zones if states.get(zone) == "error"):
        raise EngineError(f"the mount target of {id} in {broken[0]} failed", hint="delete it, then again")
    waiting = [zone for zone in zones if states.get(zone) != "available"]
    return f"{counted(len(waiting), 'zone')} left" if waiting else ""


def _until(look: Callable[[], str], title: str, deadline: float) -> None:
    pause = 0.1
    while left := look():
        if time.monotonic() > deadline:
            raise EngineError(
                f"{title} did not become available in time: {left}",
                hint="the same command goes on; --timeout gives it more",
            )
        time.sleep(pause)
        pause = min(pause * 2, _POLL_S)


def _group(session: AwsSession, network: NodeNetwork, id: str) -> str:
    """The security group of its mount targets: NFS from the nodes, nothing else."""
    name = f"{GROUP_PREFIX}{id}"
    filters = [{"Name": "vpc-id", "Values": [network.vpc]}, {"Name": "group-name", "Values": [name]}]
    there = list(session.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=filters))
    if there:
        group = str(there[0]["GroupId"])
    else:
        tags = [{"Key": "Name", "Value": name}]
        if network.cluster:
            tags.append({"Key": CLUSTER_TAG, "Value": network.cluster})
        made = session.call(
            "ec2",
            "create_security_group",
            GroupName=name,
            Description="NFS from the nodes of the cluster",
            VpcId=network.vpc,
            TagSpecifications=[{"ResourceType": "security-group", "Tags": tags}],
        )
        group = str(made["GroupId"])
    for source in network.groups:
        pair = {"GroupId": source, "Description": "NFS from the nodes"}
        rule = {"IpProtocol": "tcp", "FromPort": NFS_PORT, "ToPort": NFS_PORT, "UserIdGroupPairs": [pair]}
        session.call_unless(
            "InvalidPermission.Duplicate", "ec2", "authorize_security_group_ingress",
            GroupId=group, IpPermissions=[rule],
        )  # fmt: skip
    return group


def _mount(session: AwsSession, id: str, subnet: str, group: str) -> None:
    """Another process may have made it in between: then there is one in that zone, as it should be."""
    session.call_unless(
        "MountTargetConflict", _EFS, "create_mount_target",
        FileSystemId=id, SubnetId=subnet, SecurityGroups=[group],
    )  # fmt: skip


def _closed(session: AwsSession, target: MountTarget, network: NodeNetwork) -> str:
    """A warning about a mount target that somebody else made and that nodes cannot reach; empty: they can."""
    try:
        answer = session.call(_EFS, "describe_mount_target_security_groups", MountTargetId=target.id)
        ids = answer.get("SecurityGroups") or []
        groups = session.call("ec2", "describe_security_groups", GroupIds=ids)["SecurityGroups"] if ids else []
    except (NoSuchResource, EngineError):
        return ""
    if any(opens_nfs(group, network.groups) for group in groups):
        return ""
    return (
        f"warning: the mount target in {target.zone} lets no NFS in from the nodes: allow TCP {NFS_PORT} from"
        f" {network.groups[0]} in {', '.join(ids) or 'its security group'}"
    )


def unmount(session: AwsSession, cluster: str) -> None:
    """Before the cluster's network goes: mount targets that were made for it, and their groups. The data stays."""
    filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}]
    deadline = time.monotonic() + UNMOUNT_S
    for group in list(session.pages("ec2", "describe_security_groups", "SecurityGroups", Filters=filters)):
        id = str(group["GroupName"]).removeprefix(GROUP_PREFIX)
        if not ID.fullmatch(id):
            continue
        own = [target.id for target in _targets_of(session, id) if target.vpc in ("", group["VpcId"])]
        for target in own:
            _gone(session, _EFS, "delete_mount_target", MountTargetId=target)
        _until(functools.partial(_leaving, session, id, own), f"the mount targets of {id}", deadline)
        _gone(session, "ec2", "delete_security_group", GroupId=group["GroupId"])


def _targets_of(session: AwsSession, id: str) -> list[MountTarget]:
    try:
        return mount_targets(session, id)
    except NoSuchResource:
        return []


def _leaving(session: AwsSession, id: str, own: Sequence[str]) -> str:
    """Empty: they are gone, with their addresses in the subnets."""
    try:
        bodies = list(session.pages(_EFS, "describe_mount_targets", "MountTargets", FileSystemId=id))
    except NoSuchResource:
        return ""
    left = [body for body in bodies if body["MountTargetId"] in own]
    return f"{len(left)} are still being deleted" if left else ""


def _gone(session: AwsSession, service: str, operation: str, **arguments: str) -> None:
    try:
        session.call(service, operation, **arguments)
    except NoSuchResource:
        pass
