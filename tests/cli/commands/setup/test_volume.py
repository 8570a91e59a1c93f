"""`longboat volume` as a user types it, on a real cluster."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.cli.conftest import Longboat

IMAGE = "longboat.test/python:latest"


@pytest.fixture
def storage_class(kubectl: Kubectl) -> Iterator[str]:
    """A class with one volume on the node's disk."""
    name = f"test-{secrets.token_hex(4)}"
    meta = {"name": name}
    kind = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "Immediate"}
    spec = {
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": name,
        "hostPath": {"path": f"/var/lib/{name}", "type": "DirectoryOrCreate"},
    }
    make(kubectl, {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta, **kind})
    make(kubectl, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec})
    yield name
    kubectl("delete", "pv", name, "--wait=false")
    kubectl("delete", "storageclass", name)


def make(kubectl: Kubectl, body: dict[str, Any]) -> None:
    kubectl("create", "-f", "-", text=json.dumps(body))


@pytest.fixture
def volume(longboat: Longboat, cluster: Cluster) -> Longboat:
    longboat.environment["KUBECONFIG"] = str(cluster.kubeconfig)

    return longboat


@pytest.mark.pods
def test_a_volume_from_its_making_to_its_removal(
    volume: Longboat, namespace: str, kubectl: Kubectl, storage_class: str
) -> None:
    where = ("-n", namespace)
    empty = volume("volume", "ls", *where)
    assert empty.out == "" and "longboat volume create" in empty.err
    made = volume("volume", "create", "data", "--size", "1Gi", "--class", storage_class, *where)
    assert made.out == "data\n" and "one machine at a time" in made.err
    listed = volume("volume", "ls", *where).out.splitlines()
    assert listed[0].split() == ["NAME", "STATE", "SIZE", "ACCESS", "CLASS", "USED", "BY"]
    assert listed[1].split()[:5] == ["data", "Bound", "2Gi", "RWO", storage_class]
    (record,) = json.loads(volume("volume", "ls", "-o", "json", *where).out)
    assert (record["name"], record["phase"], record["pods"], record["runs"]) == ("data", "Bound", [], [])
    assert volume("volume", "ls", "-o", "name", *where).out == "data\n"

    probe = ("volume", "probe", "data", "--size", "4Mi", "--files", "20", "--image", IMAGE, *where)
    said = volume(*probe).out
    assert "MB/s" in said and "1,000 images of 100 KB per second" in said and "A checkpoint of 10 GB" in said
    figures = json.loads(volume(*probe, "-o", "json").out)
    assert figures["files"] == 20 and figures["write_bytes_per_s"] > 0 and len(figures["meaning"]) >= 3

    mounted = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "600"],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    spec = {"containers": [container], "volumes": [mounted], "terminationGracePeriodSeconds": 0}
    make(kubectl, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user"}, "spec": spec})
    kubectl("wait", "--for=condition=Ready", "pod/user", "--timeout=60s")
    refused = volume("volume", "rm", "data", *where, code=203)
    assert "used by pod user" in refused.err and refused.out == ""
    kubectl("delete", "pod", "user", "--grace-period=0", "--force")
    assert volume("volume", "rm", "data", *where).out == "data\n"
    assert kubectl("get", "pvc,pod", "-o", "name") == ""


@pytest.mark.pods
def test_mistakes(volume: Longboat, namespace: str) -> None:
    where = ("-n", namespace)
    for words, code, told in (
        (("rm", "nothing"), 202, "no volume named 'nothing'"),
        (("probe", "nothing"), 202, "no volume named 'nothing'"),
        (("probe",), 201, "which volume?"),
        (("create", "data", "--size", "much"), 201, "size 'much'"),
        (("create", "Data", "--size", "1Gi"), 201, "'Data'"),
        (("create", "data", "--size", "1Gi", "--class", "none-such"), 203, "no storage class 'none-such'"),
        (("create", "data", "--size", "1Gi", "--access", "RW"), 201, "ReadWriteMany"),
    ):
        assert told in volume("volume", *words, *where, code=code).err
    lost = volume("volume", "ls", "--on", "no-such-context", code=205)
    assert "no-such-context" in lost.err


def test_help_needs_no_cluster(longboat: Longboat) -> None:
    longboat.environment["KUBECONFIG"] = "/nonexistent"
    said = longboat("volume", "--help").out
    assert all(verb in said for verb in ("ls", "create", "rm", "probe"))
    assert "volume" in longboat("--help").out
