"""Volumes of a job as volumes of a pod, and where a run keeps what outlives its pods. Pure; `exec.helper_pod` reads and
writes.

A volume whose target is absolute is mounted there; a relative one at `/longboat/volumes/<n>`, which the launcher links
into the working copy. The run's storage is mounted at `/longboat/storage`; its own folder there is
`longboat/<run>-<uid8>`.
"""

from __future__ import annotations

import posixpath
from typing import Any

import msgspec

from longboat.core.elastic.sizes import is_elastic
from longboat.core.errors import Refused
from longboat.core.jobs import Checkpoints, Job, Value, Volume
from longboat.core.resources import format_quantity
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.records import Record, Storage
from longboat.storage.urls import is_object_url, run_url

ROOT = "/longboat"
NODE = f"{ROOT}/node"
STORAGE = f"{ROOT}/storage"
VOLUMES = f"{ROOT}/volumes"

Object = dict[str, Any]


class Places(Value, frozen=True):
    """Paths of what outlives a run's pods, as its ranks see them."""

    checkpoints: str
    artifacts: str
    keep: str | None  # logs and reports; None: they go with the pods
    is_lasting: bool  # checkpoints outlive the pods
    store: str | None = None  # address of the checkpoints in an object store; the folder is a copy on the node


def run_storage(job: Job, chosen: Storage | None, *, run: str, uid: str) -> Storage | None:
    """The run's storage: what the context names, else the volume of the job that holds its checkpoints."""
    folder = f"longboat/{run_folder(run, uid)}"
    if chosen is not None:
        return msgspec.structs.replace(chosen, folder=folder)
    volume = checkpoint_volume(job)
    if volume is None or volume.scratch or volume.read_only:
        return None
    return Storage(claim=volume.claim, nfs=volume.nfs, path=volume.path, folder=folder)


def run_folder(run: str, uid: str) -> str:
    """A name that no other run has, here or in another namespace that shares the storage."""
    return f"{run}-{uid[:8]}"


def checkpoint_volume(job: Job) -> Volume | None:
    """The volume of the job that `checkpoints.to` lies in: the deepest, when several do."""
    to = job.checkpoints.to
    if to is None or is_object_url(to):
        return None
    holding = [volume for volume in job.volumes if is_inside(to, volume.target)]
    return max(holding, key=lambda volume: len(posixpath.normpath(volume.target)), default=None)


def is_inside(path: str, folder: str) -> bool:
    path, folder = posixpath.normpath(path), posixpath.normpath(folder)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def places(job: Job, storage: Storage | None, *, run: str, uid: str) -> Places:
    """Folders of the run as its ranks see them."""
    base = f"{STORAGE}/{storage.folder}" if storage is not None else NODE
    volume = checkpoint_volume(job)
    checkpoints, is_lasting = f"{base}/checkpoints", storage is not None
    if volume is not None and job.checkpoints.to is not None:
        below = posixpath.relpath(posixpath.normpath(job.checkpoints.to), posixpath.normpath(volume.target))
        place = posixpath.join(mount_path(job, volume), below, run_folder(run, uid))
        checkpoints, is_lasting = posixpath.normpath(place), not volume.scratch
    store = store_of(job, run=run, uid=uid)
    if store is not None:
        checkpoints, is_lasting = f"{NODE}/checkpoints", True
    return Places(
        checkpoints=checkpoints,
        artifacts=f"{base}/artifacts",
        keep=f"{base}/logs" if storage is not None else None,
        is_lasting=is_lasting,
        store=store,
    )


def store_of(job: Job, *, run: str, uid: str) -> str | None:
    """The address of this run's checkpoints in the object store that `checkpoints.to` names."""
    to = job.checkpoints.to
    return run_url(to, run_folder(run, uid)) if to is not None and is_object_url(to) else None


def storage_notices(job: Job, chosen: Storage | None) -> list[str]:
    """Notices for jobs whose artifacts or checkpoints would be deleted with their pods."""
    keeps = job.artifacts or job.retries.count or is_elastic(job) or job.checkpoints != Checkpoints()
    if not keeps or run_storage(job, chosen, run=job.name, uid="0" * 8) is not None:
        return []
    gives = "`longboat config set kubernetes.storage.claim NAME` gives runs one"
    if store_of(job, run=job.name, uid="0" * 8) is not None:
        return [f"no storage is set: artifacts and logs go with the run's pods; {gives}"] if job.artifacts else []
    return [
        f"no storage is set: checkpoints, artifacts and logs go with the run's pods, and a retry begins anew; {gives}"
    ]


def mount_path(job: Job, volume: Volume) -> str:
    """Where a volume of the job is mounted in the pod."""
    if volume.target.startswith("/"):
        return posixpath.normpath(volume.target)
    return f"{VOLUMES}/{job.volumes.index(volume)}"


def links(record: Record) -> dict[str, str]:
    """Links that the launcher makes in the working copy: relative target -> path in the pod."""
    job = record.job
    targets = {
        posixpath.normpath(volume.target): mount_path(job, volume)
        for volume in job.volumes
        if not volume.target.startswith("/")
    }
    to = job.checkpoints.to
    is_folder = to is not None and not is_object_url(to)
    if to is not None and is_folder and not to.startswith(("/", "~", "..")) and checkpoint_volume(job) is None:
        targets[posixpath.normpath(to)] = record.checkpoint_dir
    return targets


def pod_volumes(record: Record) -> tuple[list[Object], list[Object]]:
    """The pod's `volumes` and the container's `volumeMounts` for the job's volumes and the run's storage."""
    volumes: list[Object] = []
    mounts: list[Object] = []
    named: dict[str, str] = {}
    for number, volume in enumerate(record.job.volumes):
        source = volume_source(volume)
        key = repr(source) if not volume.scratch else f"scratch {number}"
        name = named.setdefault(key, f"volume-{number}")
        if name == f"volume-{number}":
            volumes.append({"name": name, **source})
        mount: Object = {"name": name, "mountPath": mount_path(record.job, volume)}
        mounts.append({**mount, "readOnly": True} if volume.read_only else mount)
    if record.storage is not None:
        source = storage_source(record.storage)
        name = named.setdefault(repr(source), "storage")
        if name == "storage":
            volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": STORAGE})
    return volumes, mounts


def volume_source(volume: Volume) -> Object:
    if volume.scratch:
        medium: Object = {"medium": "Memory"} if volume.medium == "memory" else {}
        return {"emptyDir": medium if volume.size is None else {**medium, "sizeLimit": format_quantity(volume.size)}}
    if volume.path is not None:
        # A folder that is not there must be told: an empty one made in its place would look like lost data.
        return {"hostPath": {"path": posixpath.normpath(volume.path), "type": "Directory"}}
    return storage_source(Storage(claim=volume.claim, nfs=volume.nfs))


def storage_source(storage: Storage) -> Object:
    """The source of a pod's volume."""
    if storage.claim is not None:
        return {"persistentVolumeClaim": {"claimName": storage.claim}}
    if storage.nfs is not None:
        server, _, path = storage.nfs.partition(":")
        return {"nfs": {"server": server, "path": path}}
    if storage.path is not None:
        return {"hostPath": {"path": posixpath.normpath(storage.path), "type": "DirectoryOrCreate"}}
    raise Refused("a storage is a claim, an NFS path or a folder of the nodes, and this one is none of them")


def claims(job: Job, namespace: str) -> list[Object]:
    """The claims that the job wants made if they do not exist. Nobody owns them: they outlive every run."""
    made = {volume.claim: volume for volume in reversed(job.volumes) if volume.claim and volume.size is not None}
    return [
        claim_object(
            name,
            namespace,
            size=volume.size or 0,
            storage_class=volume.storage_class,
            access=volume.access or ("ReadWriteMany" if job.pods > 1 else "ReadWriteOnce"),
        )
        for name, volume in sorted(made.items())
    ]


def claim_object(name: str, namespace: str, *, size: int, storage_class: str | None = None, access: str) -> Object:
    """A PersistentVolumeClaim. Without a class, the cluster's default."""
    spec: Object = {"accessModes": [access], "resources": {"requests": {"storage": format_quantity(size)}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {names.MANAGED_BY: "longboat", names.KIND: "claim"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def check_volumes(job: Job, *, allow_host_paths: bool) -> None:
    """Raise Refused for folders of machines that were not opted in, or that no node can have."""
    for volume in job.volumes:
        if volume.path is None:
            continue
        place = f"volumes.{volume.target}"
        if not volume.path.startswith("/"):
            raise Refused(
                f"{place}: {volume.path} is a folder of the machine you submit from, which no pod can see",
                hint="use a claim ({claim: NAME}), an NFS path ({nfs: server:/path}), or `data`",
            )
        if not allow_host_paths:
            raise Refused(
                f"{place}: mounting {volume.path} of the nodes was not allowed",
                hint="use a claim, or allow it with `longboat config set kubernetes.allow_host_paths true`",
            )
