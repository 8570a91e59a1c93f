"""Real hosts from one minor version of Kubernetes to the next, killed on the way, with a training that is respected."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from testbed.binaries import KUBERNETES_VERSION, PREVIOUS_VERSION
from tests.clusters.conftest import Lab

KUBECTL = "sudo kubectl --kubeconfig=/etc/kubernetes/admin.conf"
# A job that ends only when it is told to: the image is one that every node has.
TRAINING = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"kubernetes.io/hostname": "host-1"},
                "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10.1"}],
                "terminationGracePeriodSeconds": 1,
            }
        }
    },
}


def kill_at(longboat: Lab, host: str, step: str, state: str) -> None:
    process = longboat.popen("cluster", "upgrade", "--yes", "-o", "json")
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if (event["host"], event["step"], event["state"]) == (host, step, state):
            break
    else:
        pytest.fail(f"{host} {step} {state} did not come: {process.communicate()}")
    process.kill()
    process.communicate()


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_nodes_are_upgraded_one_by_one_and_the_training_is_waited_for(lab: Callable[..., Lab]) -> None:
    longboat = lab(2, "no-route", versions=(KUBERNETES_VERSION, PREVIOUS_VERSION))
    first, second = longboat.group.hosts
    packages = first.run("dpkg-query -W")
    longboat.write(count=2, version=PREVIOUS_VERSION)
    assert "2 nodes are ready" in longboat("cluster", "up")
    first.run(f"{KUBECTL} apply -f -", text=json.dumps(TRAINING))
    ready = f"{KUBECTL} wait --for=jsonpath={{.status.ready}}=1 job/train --timeout=180s"
    first.run(ready, within_s=200)

    longboat.write(count=2, version=KUBERNETES_VERSION)
    assert "longboat cluster upgrade" in longboat("cluster", "up", code=None)
    planned = longboat("cluster", "upgrade", "--dry-run")
    assert f"Kubernetes {PREVIOUS_VERSION} -> {KUBERNETES_VERSION}" in planned
    assert "+ apply: upgrade the control plane" in planned and "runs there now: default/train" in planned

    for step in ("kubeadm", "apply", "kubelet"):
        kill_at(longboat, "host-0", step, "started")
    kill_at(longboat, "host-1", "drain", "waiting")
    versions = f"{KUBECTL} get nodes -o jsonpath='{{.items[*].status.nodeInfo.kubeletVersion}}'"
    assert first.run(versions).split() == [f"v{KUBERNETES_VERSION}", f"v{PREVIOUS_VERSION}"]
    phase = f"{KUBECTL} get pods -l job-name=train -o jsonpath='{{.items[*].status.phase}}'"
    assert first.run(phase) == "Running"
    cordoned = f"{KUBECTL} get nodes -o jsonpath='{{.items[*].spec.unschedulable}}'"
    assert first.run(cordoned) == "true"

    first.run(f"{KUBECTL} delete job train --wait", within_s=150)
    assert "1 node upgraded" in longboat("cluster", "upgrade", "--yes")
    assert first.run(versions).split() == [f"v{KUBERNETES_VERSION}"] * 2
    assert first.run(cordoned) == ""
    assert "kubelet" in second.run("apt-mark showhold")
    assert "nothing to do" in longboat("cluster", "upgrade")
    assert "nothing to do" in longboat("cluster", "up")
    assert "nothing of it is left on 2 hosts" in longboat("cluster", "down", "--yes")
    assert first.run("dpkg-query -W") == packages
    assert first.run("ls /var/lib/apt/lists | grep stable || true") == ""
