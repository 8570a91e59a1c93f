"""The image with torch: torchrun starts processes in one pod and in several that meet by a name of the cluster.

In `make soak` only: tests/frameworks/test_pods.py trains with this image in pods, also in `make test`.
"""

from __future__ import annotations

import functools
import json

import pytest

from testbed import binaries, clusters, images, namespaces, node
from testbed.clusters import Cluster
from testbed.errors import Missing
from testbed.fixtures import Kubectl

pytestmark = [pytest.mark.pods, pytest.mark.soak, pytest.mark.xdist_group("framework-images")]

PORT = 29500
WAIT_S = 300
SUM = """
import torch
import torch.distributed as group
group.init_process_group("gloo")
value = torch.tensor([10.0 ** group.get_rank()])
group.all_reduce(value)
print("rank", group.get_rank(), "sum", int(value.item()), flush=True)
group.destroy_process_group()
"""
WORKERS = ("--nproc-per-node=2", "--no-python", "python3", "-c", SUM)
# The whole name, because it is in the first pod's own /etc/hosts: c10d looks once whether a pod is the store's host.
FIRST = "sum-0.sum.$(NAMESPACE).svc.cluster.local"
MEETINGS = {
    "static": ("--node-rank=$(JOB_COMPLETION_INDEX)", "--master-addr=sum-0.sum", f"--master-port={PORT}"),
    "c10d": ("--rdzv-backend=c10d", f"--rdzv-endpoint={FIRST}:{PORT}", "--rdzv-id=sum"),
}
ALONE = {"standalone": ("--standalone",), "static": ("--master-addr=127.0.0.1", f"--master-port={PORT}")}


@functools.cache
def load_torch(cluster_name: str) -> None:
    """Once for each test process: an import takes as long the second time."""
    holder = namespaces.holder_of(clusters.get(cluster_name), node.name_of(0))
    assert holder is not None
    try:
        images.load(["torch"], binaries.find(("tools", "containerd")), holder, node.SOCKET)
    except Missing as error:
        pytest.skip(str(error))


def job(count: int, *arguments: str) -> str:
    """Pods of a user that the image does not know, `sum-0`, `sum-1` ..., and the service that gives them names."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "sum"},
        "spec": {"clusterIP": "None", "selector": {"job-name": "sum"}, "publishNotReadyAddresses": True},
    }
    container = {
        "name": "main",
        "image": images.reference("torch"),
        "imagePullPolicy": "Never",
        "command": ["torchrun", f"--nnodes={count}", *arguments, *WORKERS],
        "env": [
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ],
    }
    template = {
        "restartPolicy": "Never",
        "subdomain": "sum",
        "securityContext": {"runAsUser": 12345, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    spec = {
        "completions": count,
        "parallelism": count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": template},
    }
    one = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sum"}, "spec": spec}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [service, one]})


def finished_logs(kubectl: Kubectl, manifest: str) -> list[str]:
    kubectl("create", "-f", "-", text=manifest)
    types = "jsonpath={.status.conditions[*].type}"
    # A job that failed has conditions too, and its logs say why.
    kubectl("wait", f"--for={types}", "job/sum", f"--timeout={WAIT_S}s", within_s=WAIT_S + 30)
    conditions = kubectl("get", "job/sum", "-o", types).split()
    lines = kubectl("logs", "--selector=job-name=sum", "--tail=-1").splitlines()
    # Complete follows a moment later.
    assert "SuccessCriteriaMet" in conditions, "\n".join(lines)
    return sorted(line for line in lines if line.startswith("rank "))


@pytest.mark.parametrize("way", ALONE)
def test_torchrun_starts_two_processes_in_a_pod(cluster: Cluster, kubectl: Kubectl, way: str) -> None:
    load_torch(cluster.name)
    assert finished_logs(kubectl, job(1, *ALONE[way])) == ["rank 0 sum 11", "rank 1 sum 11"]


@pytest.mark.parametrize("way", MEETINGS)
def test_torchrun_joins_two_pods_over_their_network(cluster: Cluster, kubectl: Kubectl, way: str) -> None:
    load_torch(cluster.name)
    lines = finished_logs(kubectl, job(2, *MEETINGS[way]))
    assert lines == [f"rank {number} sum 1111" for number in range(4)]
