"""The doctor where something is really broken, on a real node: in the pods' settings, the namespace, the image."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longboat.doctor.examine import examine_cluster, with_probe_pods
from longboat.doctor.fixes import fix_cluster
from longboat.doctor.probes import pods
from longboat.doctor.probes.probe import storage_probe
from longboat.engines.kubernetes.records import Storage
from testbed import faults, node, rootfs
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from testbed.kueue import VERSION
from tests.doctor.conftest import Findings, target_of
from tests.engines.kubernetes.broken import IMAGE, apply, pod, until

Examine = Callable[..., Findings]
DENY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "deny"},
    "spec": {"podSelector": {}, "policyTypes": ["Egress"]},
}
PENDING = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "nowhere"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "no-such-class",
        "resources": {"requests": {"storage": "1Mi"}},
    },
}
OVERLAY = {
    "spec": {
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.9"], "options": [{"name": "timeout", "value": "1"}]},
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
        "containers": [{"name": "main", "env": [{"name": "NCCL_SOCKET_IFNAME", "value": "ib"}]}],
    }
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is hopeless here does not get better; nobody should wait for it."""
    monkeypatch.setattr(pods, "SCHEDULE_S", 2.0)
    monkeypatch.setattr(pods, "PULL_S", 1.0)


@pytest.mark.pods
@pytest.mark.usefixtures("impatient")
def test_what_is_wrong_with_pods_and_the_namespace(examine: Examine, namespace: str, kubectl: Kubectl) -> None:
    apply(kubectl, DENY, PENDING)
    kubectl("patch", "serviceaccount", "default", "-p", json.dumps({"imagePullSecrets": [{"name": "lost"}]}))
    found = examine(with_pods=True, pod=OVERLAY, storage=Storage(claim="nowhere"))
    wanted = {
        "dns lookup": ("broken", "kubernetes.default.svc is not found"),
        "pod shared memory": ("broken", "64 MiB were asked for"),
        "nccl interfaces": ("broken", "NCCL_SOCKET_IFNAME=ib names no interface"),
        "network policies": ("warning", "NetworkPolicy deny does not allow egress"),
        "claims": ("warning", "nowhere"),
        "claim": ("broken", "claim nowhere"),
        "service account": ("broken", "lost"),
        "train step": ("ok", "the loss fell"),
    }
    assert {name: (found[name].status, words in found[name].detail) for name, (_, words) in wanted.items()} == {
        name: (status, True) for name, (status, _) in wanted.items()
    }, [found[name] for name in wanted]
    assert kubectl("get", "pods", "-o", "name") == ""


@pytest.mark.pods
@pytest.mark.usefixtures("impatient")
def test_images_and_places_that_are_not_there(examine: Examine) -> None:
    missing = examine(with_pods=True, image="127.0.0.1:1/nothing:latest")
    assert missing["image pull"].status == "broken" and missing["image pull"].hint
    assert missing["dns lookup"].status == "skipped" and missing["train step"].status == "broken"
    bare = examine(with_pods=True, image="longboat.test/pause:latest")
    assert bare["image python"].status == "broken", bare["image python"]
    nowhere = examine(with_pods=True, pod={"spec": {"nodeSelector": {"planet": "mars"}}})
    assert nowhere["pod start"].status == "broken" and "didn't match" in nowhere["pod start"].detail


@pytest.mark.pods
def test_a_quota_and_a_restricted_namespace(examine: Examine, namespace: str, kubectl: Kubectl) -> None:
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    assert {finding.status for finding in examine(with_pods=True).values()} <= {"ok", "warning", "skipped"}
    kubectl("create", "quota", "none", "--hard=pods=0")
    until("the quota is counted", lambda: "0/0" in kubectl("get", "quota", "none").replace(" ", ""))
    found = examine(with_pods=True)
    assert found["pod start"].status == "broken" and "exceeded quota" in found["pod start"].detail
    assert found["quota"].status == "warning"


@pytest.mark.pods
def test_a_claim_is_written_and_leftovers_are_removed(
    cluster: Cluster, namespace: str, kubectl: Kubectl, examine: Examine
) -> None:
    volumes = [volume(namespace), volume(f"{namespace}-new")]
    spec = {**PENDING["spec"], "storageClassName": namespace}  # type: ignore[dict-item]
    left = pod("left", ["python3", "-c", "pass"])
    left["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "longboat", "longboat.dev/kind": "doctor"}
    apply(kubectl, *volumes, {**PENDING, "spec": spec}, left)
    try:
        until("it has ended", lambda: "Succeeded" in kubectl("get", "pod", "left", "-o", "jsonpath={.status.phase}"))
        with target_of(cluster, namespace, storage=Storage(claim="nowhere")) as target:
            diagnosis = examine_cluster(target, with_pods=True)
            found = {finding.name: finding for finding in diagnosis.findings}
            assert found["claim"].status == "ok" and "claim nowhere" in found["claim"].detail
            assert found["leftovers"].status == "warning" and "pod left" in found["leftovers"].detail
            for _ in range(2):  # any number of times
                assert "removed 1 object" in fix_cluster(target, diagnosis)["leftovers"]
            with with_probe_pods(target, None) as pods_of_test:
                made = storage_probe(pods_of_test, None, f"{namespace}-new")
            assert not made.problem and made.title == "a new claim"
        until("the claim is gone", lambda: kubectl("get", "pvc", "-o", "name") == "persistentvolumeclaim/nowhere\n")
        assert examine()["leftovers"].status == "ok"
    finally:
        kubectl("delete", "persistentvolume", namespace, f"{namespace}-new", "--wait=false")


def volume(name: str) -> dict[str, Any]:
    """Of a class of its own."""
    spec = {
        "capacity": {"storage": "128Mi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "hostPath": {"path": f"/var/lib/{name}", "type": "DirectoryOrCreate"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


@pytest.mark.pods("nvidia")
def test_gpus_with_an_error_and_a_driver_that_cannot_compute(cluster: Cluster, examine: Examine) -> None:
    """The stand-in driver says so itself: it has devices and libraries, and computes nothing."""
    with faults.gpu_error(cluster, 3, 79):
        until("a GPU is out", lambda: examine()["gpu health"].status == "broken")
        found = examine(with_pods=True)
    assert "7 of 8 nvidia.com/gpu" in found["gpu health"].detail and "Xid" in (found["gpu health"].hint or "")
    for name in ("gpus", "gpu devices", "gpu toolkit", "gpu driver"):
        assert found[name].status == "ok", found[name]
    assert "sees 1 GPU" in found["gpu devices"].detail
    assert found["train step"].status == "broken" and "cuInit" in found["train step"].detail
    assert examine()["gpu health"].status == "ok"


@pytest.mark.pods("nvidia")
@pytest.mark.soak
def test_a_pod_that_gets_other_things_than_its_gpu(cluster: Cluster, examine: Examine, tmp_path: Path) -> None:
    """Another's device, no library of the driver, and an nvidia-smi that fails as after an upgrade of the driver."""
    (tmp_path / "libcuda.so.1").touch()
    said = "Failed to initialize NVML: Driver/library version mismatch"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{said}'\nexit 18\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    device = node.driver_root(cluster, 0) / "dev" / "nvidia0"
    volumes = [
        {"name": "broken", "hostPath": {"path": str(tmp_path)}},
        {"name": "device", "hostPath": {"path": str(device), "type": "CharDevice"}},
    ]
    mounts = [{"name": "broken", "mountPath": "/broken"}, {"name": "device", "mountPath": "/dev/nvidia63"}]
    search = "/broken:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    variables = [{"name": "PATH", "value": search}, {"name": "LD_LIBRARY_PATH", "value": "/broken"}]
    container = {"name": "main", "env": variables, "volumeMounts": mounts}
    found = examine(with_pods=True, pod={"spec": {"volumes": volumes, "containers": [container]}})
    wanted = {
        "gpu devices": "sees 2",
        "gpu toolkit": "has no libcuda",
        "gpu driver": said,
    }
    seen = {name: (found[name].status, words in found[name].detail) for name, words in wanted.items()}
    assert seen == dict.fromkeys(wanted, ("broken", True)), [found[name] for name in wanted]


@pytest.mark.pods("controllers")
@pytest.mark.soak
def test_controllers_and_queues_that_do_not_work(namespace: str, kubectl: Kubectl, examine: Examine) -> None:
    labels = {"app.kubernetes.io/name": "jobset"}
    container = {"name": "main", "image": "127.0.0.1:1/nothing:latest"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    controller = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "jobset-broken", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    queue = {
        "apiVersion": VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": "idle"},
        "spec": {"clusterQueue": f"none-{namespace}"},
    }
    apply(kubectl, controller, queue)
    until(
        "Kueue has looked",
        lambda: "False" in kubectl("get", "localqueue", "idle", "-o", "jsonpath={.status.conditions}"),
    )
    found = examine()
    assert found["jobset"].status == "broken" and f"{namespace}/jobset-broken" in found["jobset"].detail
    assert found["kueue"].status == "warning" and "idle" in found["kueue"].detail


@pytest.mark.pods
@pytest.mark.soak
def test_clocks_that_are_off(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """There is one clock on a machine: a library tells the doctor and its pods another time, as on hosts."""
    libraries = next(iter(sorted((rootfs.path() / "usr/lib").glob("*/faketime"))), None)
    if libraries is None:
        pytest.skip("the root file system of hosts, which has libfaketime, was not made yet")
    variables = {"FAKETIME": "+300s", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "LD_PRELOAD": "/faketime/libfaketime.so.1"}
    container = {
        "name": "main",
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": "faketime", "mountPath": "/faketime"}],
    }
    volume = {"name": "faketime", "hostPath": {"path": str(libraries)}}
    settings = {"image": IMAGE, "pod": {"spec": {"volumes": [volume], "containers": [container]}}}
    (tmp_path / "config.yaml").write_text(json.dumps({"kubernetes": settings}))
    own = {**variables, "FAKETIME": "+90s", "LD_PRELOAD": str(libraries / "libfaketime.so.1")}
    environment = {**os.environ, "LONGBOAT_HOME": str(tmp_path), "KUBECONFIG": str(cluster.kubeconfig), **own}
    command = [sys.executable, "-m", "longboat", "doctor", "--engine", "kubernetes", "--namespace", namespace]
    done = subprocess.run([*command, "-o", "json"], env=environment, capture_output=True, text=True, check=False)
    found = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert found["clock"]["status"] == "broken" and "s ahead of the API server" in found["clock"]["detail"]
    assert found["pod clock"]["status"] == "warning" and "ahead of" in found["pod clock"]["detail"], found["pod clock"]


@pytest.mark.pods
def test_ctrl_c_leaves_no_pods(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    # Its pods wait for a node that will never come, so that there is time to interrupt it.
    settings = {
        "kubernetes": {"image": "longboat.test/python:latest", "pod": {"spec": {"nodeSelector": {"on": "mars"}}}}
    }
    (tmp_path / "home" / "config.yaml").write_text(json.dumps(settings))
    environment = {**os.environ, "LONGBOAT_HOME": str(tmp_path / "home"), "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "-m", "longboat", "doctor", "--engine", "kubernetes", "--namespace", namespace]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    labels = "-l=longboat.dev/kind=doctor"
    until("pods of the doctor are there", lambda: len(kubectl("get", "pods", labels, "-o", "name").split()) >= 2)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    until("they are gone", lambda: kubectl("get", "pods,pvc", labels, "-o", "name") == "")
