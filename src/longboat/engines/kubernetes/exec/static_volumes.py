"""Volumes over storage that exists: NFS, EFS, a folder of the nodes; a PersistentVolume and its claim.

The volume is retained: with its claim goes what Kubernetes knows of it, and never what is in it. A half-made one is
finished by the same call.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any

from longboat.core.errors import EngineError, Refused, UsageError
from longboat.core.jobs import Value
from longboat.core.resources import format_quantity
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.exec.claims import ClaimRequest, VolumeView, until_bound
from longboat.engines.kubernetes.manifests.volumes import claim_object
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, Conflict, Forbidden
from longboat.kubeapi.kinds import PVC, VOLUME

Object = dict[str, Any]
LEAVING_S = 30.0  # Kubernetes looks at volumes that are to go every 15 s where a change was missed
PAUSE_S = 0.1  # one request; most are gone at the first or second look
NFS_OPTIONS = ("nfsvers=4.1", "rsize=1048576", "wsize=1048576", "hard", "timeo=600", "retrans=2", "noresvport")
"""Those that AWS asks for with EFS."""
EXPORT = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:]+\]):(/[^\x00-\x1f\x7f]{0,1000})")


class ExternalStorage(Value, frozen=True):
    """Storage outside of the cluster, or a folder of its nodes."""

    source: Object  # of a PersistentVolume's spec
    title: str  # for people
    options: tuple[str, ...] = ()  # of the mount


def nfs_storage(export: str, options: tuple[str, ...] = ()) -> ExternalStorage:
    """`server:/path`. Raises UsageError."""
    match = EXPORT.fullmatch(export)
    if match is None:
        raise UsageError(f"{export!r} is not an NFS export", hint="write it like --nfs nas.example.org:/export/data")
    source = {"nfs": {"server": match[1].strip("[]"), "path": match[2]}}
    return ExternalStorage(source=source, title=f"NFS {export}", options=options)


def folder_storage(path: str) -> ExternalStorage:
    """A folder of the nodes: each has its own, unless it is mounted there. Raises UsageError."""
    if not path.startswith("/") or ".." in path.split("/") or not path.strip("/"):
        raise UsageError(f"{path!r} is no folder of the nodes", hint="an absolute path: --host-path /mnt/data")
    return ExternalStorage(source={"hostPath": {"path": path, "type": "DirectoryOrCreate"}}, title=f"folder {path}")


def volume_name(namespace: str, claim: str) -> str:
    """Of the PersistentVolume, which has no namespace: two claims never meet. Pure."""
    mark = hashlib.sha256(f"{namespace}/{claim}".encode()).hexdigest()[:8]
    return f"longboat-{namespace}-{claim}"[:200].rstrip("-.") + f"-{mark}"


def volume_object(claim: ClaimRequest, namespace: str, storage: ExternalStorage) -> Object:
    """The PersistentVolume, kept for this claim. Pure."""
    spec: Object = {
        "capacity": {"storage": format_quantity(claim.size)},
        "accessModes": [claim.access],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim.name},
        **storage.source,
    }
    if storage.options:
        spec["mountOptions"] = list(storage.options)
    labels = {names.MANAGED_BY: "longboat", names.KIND: "volume"}
    metadata = {"name": volume_name(namespace, claim.name), "labels": labels}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def check_free(client: Client, claim: ClaimRequest) -> None:
    """Before anything is made elsewhere. Raises Refused where a claim of the name is somebody else's."""
    there = client.find(PVC, claim.name)
    if there is not None and (there.get("spec") or {}).get("volumeName") != volume_name(client.namespace, claim.name):
        raise Refused(f"there is a volume {claim.name} already", hint=f"longboat volume rm {claim.name}")


def create_static(client: Client, claim: ClaimRequest, storage: ExternalStorage, *, timeout_s: float) -> VolumeView:
    """Make the volume and its claim, or what is missing of them, and wait until it is bound. Raises EngineError."""
    check_free(client, claim)
    volume = volume_object(claim, client.namespace, storage)
    name = volume["metadata"]["name"]
    try:
        client.create(volume)
    except AlreadyExists:
        _reuse(client, name, volume, storage)
    except Forbidden as error:
        raise EngineError(
            f"you may not make PersistentVolumes in this cluster: {error.message}",
            hint="they belong to no namespace: an administrator of the cluster makes it by the same command with -n"
            f" {client.namespace}",
        ) from None
    body = claim_object(claim.name, client.namespace, size=claim.size, storage_class="", access=claim.access)
    body["spec"]["volumeName"] = name
    try:
        client.create(body)
    except AlreadyExists:
        check_free(client, claim)  # by another process, in this moment
    return until_bound(client, claim, None, timeout_s)


def _reuse(client: Client, name: str, wanted: Object, storage: ExternalStorage) -> None:
    """A volume of an earlier call. One whose claim is gone is given to the next."""
    there = client.get(VOLUME, name)
    if not _is_same(there, wanted):
        raise Refused(
            f"a PersistentVolume {name} exists and leads elsewhere than to {storage.title}",
            hint=f"kubectl delete pv {name}: its data stays",
        )
    reference = there["spec"].get("claimRef") or {}
    if reference.get("uid") and client.find(PVC, str(reference.get("name", ""))) is None:
        fresh = {"metadata": {"resourceVersion": there["metadata"]["resourceVersion"]}}
        try:
            client.patch(VOLUME, name, {**fresh, "spec": {"claimRef": {"uid": None, "resourceVersion": None}}})
        except Conflict:
            raise EngineError(f"the PersistentVolume {name} changes at this moment", hint="again") from None


def _is_same(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether it was made by us for the same storage."""
    labels = there["metadata"].get("labels") or {}
    source = {key: value for key, value in wanted["spec"].items() if key in ("nfs", "hostPath", "csi")}
    spec = there["spec"]
    known = {key: {name: (spec.get(key) or {}).get(name) for name in value} for key, value in source.items()}
    return labels.get(names.MANAGED_BY) == "longboat" and known == source


def forget_static(client: Client, claim: str) -> str:
    """After its claim has gone: the PersistentVolume too, where it is ours. What is in it stays; says where."""
    name = volume_name(client.namespace, claim)
    try:
        there = client.find(VOLUME, name)
        if there is None or (there["metadata"].get("labels") or {}).get(names.MANAGED_BY) != "longboat":
            return ""
        client.delete(VOLUME, name)
        # Kubernetes lets it go a moment after its claim; until then none of the same name can be made.
        deadline = time.monotonic() + LEAVING_S
        while client.find(VOLUME, name) is not None and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
    except Forbidden:
        return f"its PersistentVolume {name} stays: you may not remove it"
    nfs = there["spec"].get("nfs")
    place = f"{nfs['server']}:{nfs['path']}" if nfs else (there["spec"].get("hostPath") or {}).get("path", "its place")
    return f"what is in it stays, in {place}"
