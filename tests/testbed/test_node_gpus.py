"""NVIDIA's own device plugin and toolkit on a real kubelet, over the stand-in driver."""

from __future__ import annotations

from typing import Any

import pytest

from testbed import api, driver, faults, images, node
from testbed.api import Api
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl

pytestmark = pytest.mark.pods("nvidia")
# A device file made by hand: the kernel says whether the container may open that device at all.
SCRIPT = f"""
ls /dev | grep '^nvidia[0-9]'; ls /dev | grep -c '^nvidia'; nvidia-smi -L
for number in 0 1 2 3 4 5 6 7; do
    mknod /tmp/$number c {driver.MAJOR} $((256 + number)); cat /tmp/$number 2>&1 | grep -c 'not permitted'
done | sort | uniq -c | xargs
"""


def pod(namespace: str, name: str, gpus: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": images.reference("python"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", SCRIPT],
        "resources": {"limits": {node.GPU: gpus}},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def allocatable(cluster_api: Api) -> int:
    return node.shown_gpus(cluster_api, node.name_of(0))


def test_a_pod_has_exactly_the_gpus_that_it_asked_for(
    cluster: Cluster, cluster_api: Api, namespace: str, kubectl: Kubectl
) -> None:
    shown = kubectl("get", "node", node.name_of(0), "-o", r"jsonpath={.status.capacity.nvidia\.com/gpu}")
    assert shown == str(node.GPUS)
    cluster_api.create(pod(namespace, "two", 2))
    ended = lambda: kubectl("get", "pod", "two", "-o", "jsonpath={.status.phase}") in ("Succeeded", "Failed")  # noqa: E731
    api.wait_for("the pod has ended", ended, 60.0)
    first, second, count, *listed, opened = kubectl("logs", "two").splitlines()
    numbers = [int(name.removeprefix("nvidia")) for name in (first, second)]
    assert [line.partition("UUID: ")[2] for line in listed] == [f"{driver.uuid(1, number)})" for number in numbers]
    assert count == str(2 + len(driver.CONTROL_FILES))
    assert opened == "2 0 6 1", "no other device can be opened, whatever file is made for it"


def test_a_failed_gpu_is_handed_out_no_more(cluster: Cluster, cluster_api: Api) -> None:
    with faults.gpu_error(cluster, 5, 31):
        # An error of a program, not of the GPU: the plugin has read past it once it knows the next one.
        driver.add_error(node.driver_root(cluster, 0), 3, 79)
        api.wait_for("a GPU is out", lambda: allocatable(cluster_api) == node.GPUS - 1, 60.0)
        faults.restart(cluster, node.PLUGIN)
        api.wait_for("it stays out", lambda: allocatable(cluster_api) == node.GPUS - 1, 60.0)
