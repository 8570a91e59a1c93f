"""PersistentVolumes for claims: which claims are ours to serve, what they get, which volumes have ended. Pure.

A volume is a folder of its own below one path: of a node (`local-path`), or of an NFS export.
"""

from __future__ import annotations

import re
from typing import Any

from longboat.clusters.spec import ADDON_LABEL
from longboat.core.jobs import Value
from longboat.kubeapi.kinds import EVENT, PVC, VOLUME

Object = dict[str, Any]

PROVISIONER = "longboat.dev/volumes"
"""Of the StorageClass: whose claims are served."""
CLASS = {"local-path": "longboat-local", "nfs": "longboat-nfs"}
"""Two names: the fields of a class cannot be changed."""
PLACE = "longboat.dev/storage"
"""On a volume: where it is, as `VolumePlace.text` has it."""
LABELS = {ADDON_LABEL: "storage", "app.kubernetes.io/managed-by": "longboat"}
_WANTED = "volume.kubernetes.io/storage-provisioner"
_NODE = "volume.kubernetes.io/selected-node"
_MADE_BY = "pv.kubernetes.io/provisioned-by"
_HOSTNAME = "kubernetes.io/hostname"
_NAME = re.compile(r"pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SHARED = {"ReadWriteMany", "ReadOnlyMany"}


class VolumePlace(Value, frozen=True):
    """The folder or NFS export in which this provisioner makes volumes."""

    path: str
    """On the node, or of the export."""
    server: str = ""
    """Of NFS; empty: folders of a node."""
    node: str = ""
    hostname: str = ""
    """The node's label that volumes are bound to; some clouds have another there than its name."""
    is_only_node: bool = False
    """The cluster has no other node: a folder of it can be shared by all pods."""

    @property
    def text(self) -> str:
        return f"nfs {self.server}:{self.path}" if self.server else f"local-path {self.path}"


def is_wanted(claim: Object, place: VolumePlace) -> bool:
    """Whether the claim waits for a volume of this provisioner. For folders the scheduler chooses the node."""
    meta = claim["metadata"]
    notes = meta.get("annotations") or {}
    if notes.get(_WANTED) != PROVISIONER or meta.get("deletionTimestamp") or claim["spec"].get("volumeName"):
        return False
    return bool(place.server) or notes.get(_NODE) == place.node


def refusal(claim: Object, place: VolumePlace) -> str:
    """Why the claim cannot be provisioned here; empty: it can."""
    spec = claim["spec"]
    if spec.get("storageClassName") not in CLASS.values():  # who it is for is an annotation, which users can write
        return f"expected the field storageClassName, {' or '.join(CLASS.values())}"
    if spec.get("volumeMode", "Filesystem") != "Filesystem":
        return "this storage has folders, and no block devices"
    if spec.get("dataSource") or spec.get("dataSourceRef"):
        return "this storage makes empty volumes only, no copies"
    if spec.get("selector"):
        return "a volume that is made has no labels to select"
    shared = SHARED & set(spec.get("accessModes") or ())
    if shared and not place.server and not place.is_only_node:
        return f"{sorted(shared)[0]}: a folder belongs to one node; storage of the kind nfs is shared"
    return ""


def volume_name(claim: Object) -> str:
    """The name of a volume and its folder, from the claim's uid: a repeated try finds the first."""
    return f"pvc-{claim['metadata']['uid']}"


def is_folder_name(name: str) -> bool:
    """Whether a folder's name is that of a volume; no other is ever deleted."""
    return _NAME.fullmatch(name) is not None


def volume_object(claim: Object, place: VolumePlace) -> Object:
    meta, spec, name = claim["metadata"], claim["spec"], volume_name(claim)
    path = f"{place.path.rstrip('/')}/{name}"
    body: Object = {
        "capacity": {"storage": spec["resources"]["requests"]["storage"]},
        "accessModes": spec["accessModes"],
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": spec["storageClassName"],
        "volumeMode": "Filesystem",
        "claimRef": {
            "apiVersion": PVC.api_version,
            "kind": PVC.kind,
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        },
    }
    if place.server:
        body["nfs"] = {"server": place.server, "path": path}
    else:
        term = {"matchExpressions": [{"key": _HOSTNAME, "operator": "In", "values": [place.hostname]}]}
        body |= {"local": {"path": path}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    notes = {_MADE_BY: PROVISIONER, PLACE: place.text}
    return {
        "apiVersion": VOLUME.api_version,
        "kind": VOLUME.kind,
        "metadata": {"name": name, "labels": LABELS, "annotations": notes},
        "spec": body,
    }


def has_ended(volume: Object, place: VolumePlace) -> bool:
    """Whether the volume is released, and its folder on this node is to be deleted."""
    meta, spec = volume["metadata"], volume["spec"]
    notes = meta.get("annotations") or {}
    if notes.get(_MADE_BY) != PROVISIONER or notes.get(PLACE) != place.text or not is_folder_name(meta["name"]):
        return False
    if (volume.get("status") or {}).get("phase") != "Released" or spec["persistentVolumeReclaimPolicy"] != "Delete":
        return False
    return bool(place.server) or place.hostname in hostnames(spec)


def hostnames(spec: Object) -> list[str]:
    """Labels of the nodes that a volume is bound to; none: it is reached from everywhere."""
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or []
    return [name for term in terms for each in term.get("matchExpressions") or () for name in each.get("values") or ()]


def failure_event(claim: Object, reason: str, *, now: str, name: str) -> Object:
    """The event for a claim that cannot be provisioned, as `kubectl describe pvc` and `longboat explain` show it."""
    meta = claim["metadata"]
    involved = {"apiVersion": PVC.api_version, "kind": PVC.kind, "namespace": meta["namespace"]}
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": name, "namespace": meta["namespace"]},
        "involvedObject": {**involved, "name": meta["name"], "uid": meta["uid"]},
        "reason": "ProvisioningFailed",
        "message": reason[:1000],  # the server takes no more than 1024 bytes
        "type": "Warning",
        "source": {"component": PROVISIONER},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
