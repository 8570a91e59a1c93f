"""Volumes over storage that exists: as data, and bound, forgotten and resumed on a real API server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from longboat.core.errors import Refused, UsageError
from longboat.engines.kubernetes.exec.claims import create_volume, find_volume, remove_volume, wanted
from longboat.engines.kubernetes.exec.static_volumes import (
    NFS_OPTIONS,
    create_static,
    folder_storage,
    forget_static,
    nfs_storage,
    volume_name,
    volume_object,
)
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import PVC, VOLUME

CLAIM = wanted("data", "750Gi", access="RWX")


def test_the_volume_is_kept_for_its_claim_and_retained() -> None:
    body = volume_object(CLAIM, "lab", nfs_storage("fs-1.efs.eu-west-1.amazonaws.com:/", NFS_OPTIONS))
    spec = body["spec"]
    assert spec["nfs"] == {"server": "fs-1.efs.eu-west-1.amazonaws.com", "path": "/"}
    assert spec["persistentVolumeReclaimPolicy"] == "Retain" and spec["accessModes"] == ["ReadWriteMany"]
    assert (spec["claimRef"]["namespace"], spec["claimRef"]["name"]) == ("lab", "data")
    assert spec["capacity"] == {"storage": "750Gi"} and spec["storageClassName"] == ""
    assert "nfsvers=4.1" in spec["mountOptions"]


def test_names_of_two_claims_never_meet() -> None:
    assert volume_name("a-b", "c") != volume_name("a", "b-c")
    assert len(volume_name("n" * 63, "c" * 253)) <= 253


@pytest.mark.parametrize("export", ["nas", "nas:export", ":/x", "nas:/a\nb", "n as:/x", "-nas:/x"])
def test_what_is_no_export(export: str) -> None:
    with pytest.raises(UsageError, match="is not an NFS export"):
        nfs_storage(export)


@pytest.mark.parametrize("path", ["data", "/", "/a/../b", ""])
def test_what_is_no_folder(path: str) -> None:
    with pytest.raises(UsageError, match="is no folder of the nodes"):
        folder_storage(path)


@pytest.fixture
def name(client: Client) -> Iterator[str]:
    chosen = f"data-{secrets.token_hex(3)}"
    yield chosen
    client.delete(PVC, chosen)
    client.delete(VOLUME, volume_name(client.namespace, chosen))


@pytest.mark.cluster
def test_bound_resumed_removed_and_bound_again(client: Client, name: str) -> None:
    storage, claim = nfs_storage("nas.example.org:/export"), wanted(name, "1Ti", access="RWX")
    volume = volume_object(claim, client.namespace, storage)
    client.create(volume)  # as a command that was killed leaves it
    for _ in range(2):
        view = create_static(client, claim, storage, timeout_s=60.0)
        assert (view.phase, view.access, view.size) == ("Bound", ("RWX",), "1Ti")
    with pytest.raises(Refused, match=f"there is a volume {name} already"):
        create_volume(client, claim, timeout_s=5.0)
    with pytest.raises(Refused, match="exists and leads elsewhere than to folder /srv"):
        create_static(client, claim, folder_storage("/srv"), timeout_s=5.0)
    remove_volume(client, name)  # by somebody who may not remove PersistentVolumes
    assert create_static(client, claim, storage, timeout_s=60.0).phase == "Bound"
    remove_volume(client, name)
    assert forget_static(client, name) == "what is in it stays, in nas.example.org:/export"
    assert forget_static(client, name) == "" and client.find(VOLUME, volume["metadata"]["name"]) is None
    assert create_static(client, claim, folder_storage("/srv/data"), timeout_s=60.0).phase == "Bound"


@pytest.mark.cluster
def test_a_claim_of_somebody_else_is_not_taken(client: Client, name: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"], "storageClassName": "no", "resources": {"requests": {"storage": "1Gi"}}
        },
    }  # fmt: skip
    client.create(body)
    with pytest.raises(Refused, match=f"there is a volume {name} already"):
        create_static(client, wanted(name, "1Gi", access="RWX"), nfs_storage("nas:/x"), timeout_s=5.0)
    assert client.find(VOLUME, volume_name(client.namespace, name)) is None, "nothing was made before that was known"
    assert find_volume(client, name).phase == "Pending"
