"""The provisioner against a real API server and scheduler: a claim gets a folder on the node that was chosen."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.addons.addon import labelled
from longboat.clusters.addons.storage import storage_objects
from longboat.clusters.provisioner.serve import Provisioner
from longboat.clusters.provisioner.volumes import VolumePlace
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import EVENT, POD, PVC, STORAGE_CLASS, VOLUME
from testbed import api
from testbed.clusters import Cluster
from tests.clusters.worlds import cluster as spec_of

pytestmark = [pytest.mark.cluster]

CLASS = "longboat-local"


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> Iterator[Client]:
    with Client.open(environment={"KUBECONFIG": str(cluster.kubeconfig)}, namespace=namespace) as client:
        yield client


@pytest.fixture
def node(client: Client, kwok_nodes: Callable[..., list[str]]) -> Iterator[str]:
    """A node that a pod can be put on, and the StorageClass."""
    (name,) = kwok_nodes("1")
    objects = storage_objects(spec_of(), "longboat.test/any:1", is_default=False)
    client.apply(next(body for body in labelled(objects, "storage") if body["kind"] == STORAGE_CLASS.kind))
    yield name
    client.delete(STORAGE_CLASS, CLASS)


@pytest.fixture
def folder(client: Client, node: str, tmp_path: Path) -> Iterator[Path]:
    """Where the provisioner of that node makes volumes."""
    ending = threading.Event()
    place = VolumePlace(path="/var/lib/longboat-volumes", node=node, hostname=node)
    provisioner = Provisioner(client, place, tmp_path, lambda text: None)
    thread = threading.Thread(target=provisioner.run, args=(ending, None))
    thread.start()
    yield tmp_path
    ending.set()
    thread.join(30)
    assert not thread.is_alive()


def claim(name: str, access: str = "ReadWriteOnce") -> dict[str, Any]:
    size = {"requests": {"storage": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": [access], "storageClassName": CLASS, "resources": size},
    }


def pod(name: str, node: str, uses: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "any"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": uses}}],
        },
    }


def bound(client: Client, name: str) -> str:
    return str((client.get(PVC, name).get("status") or {}).get("phase"))


def test_a_claim_gets_a_folder_and_the_folder_goes_with_it(client: Client, node: str, folder: Path) -> None:
    client.create(claim("data"))
    client.create(pod("trainer", node, "data"))
    api.wait_for("the claim is bound", lambda: bound(client, "data") == "Bound", 60.0)
    volume = client.get(VOLUME, client.get(PVC, "data")["spec"]["volumeName"])
    path = folder / volume["metadata"]["name"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o777 and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert volume["spec"]["local"]["path"] == f"/var/lib/longboat-volumes/{path.name}"
    (path / "step-1").mkdir()
    (path / "step-1" / "model.pt").write_text("weights")
    outside = folder / "outside"
    outside.mkdir()
    (path / "link").symlink_to(outside)

    client.delete(POD, "trainer")
    client.delete(PVC, "data")
    api.wait_for("the volume is gone", lambda: client.find(VOLUME, path.name) is None, 60.0)
    assert not path.exists() and outside.is_dir()


def test_what_cannot_be_served_is_told_at_the_claim(client: Client, node: str, folder: Path) -> None:
    client.create(claim("shared", "ReadWriteMany"))
    client.create(pod("trainer", node, "shared"))

    def messages() -> list[str]:
        events = client.list(EVENT, fields="involvedObject.name=shared").items
        return [event["message"] for event in events if event["reason"] == "ProvisioningFailed"]

    api.wait_for("the event is there", lambda: bool(messages()), 60.0)
    assert messages() == ["ReadWriteMany: a folder belongs to one node; storage of the kind nfs is shared"]
    assert list(folder.iterdir()) == []
