"""GPUs that only a DeviceClass offers (dynamic resource allocation): the real scheduler, a simulated node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.engines.engine import Submission
from longboat.engines.kubernetes.engine import KubernetesEngine
from longboat.kubeapi.kinds import POD
from longboat.sdk import job
from testbed import stages
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.broken import apply, until

pytestmark = [pytest.mark.cluster]

DRIVER = "gpu.nvidia.com"


@pytest.fixture
def device_node(kwok_nodes: Callable[..., list[str]], kubectl: Kubectl) -> Iterator[str]:
    """A simulated node with two devices of a driver, and nothing but their class to ask for them."""
    (node,) = kwok_nodes("1:cpu")
    kind = {"apiVersion": "resource.k8s.io/v1"}
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    apply(kubectl, {**kind, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {"selectors": selectors}})
    devices: list[dict[str, Any]] = [{"name": f"gpu-{number}"} for number in range(2)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    apply(kubectl, {**kind, "kind": "ResourceSlice", "metadata": {"name": f"{node}-gpus"}, "spec": spec})
    yield node
    kubectl("delete", "resourceslice", f"{node}-gpus")
    kubectl("delete", "deviceclass", DRIVER)


def test_devices_of_a_class_are_claimed_and_given_back(
    cluster: Cluster, namespace: str, kubectl: Kubectl, device_node: str, tmp_path: Path
) -> None:
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "LONGBOAT_HOME": str(tmp_path / "home")}
    settings = {
        "kubernetes": {
            "image": "x",
            "pod": {
                "metadata": {"annotations": {stages.PREFIX + "run-for": "3s"}},
                "spec": {"nodeSelector": {"kubernetes.io/hostname": device_node}},
            },
        }
    }
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(json.dumps(settings))
    engine = KubernetesEngine(namespace=namespace, environment=environment)
    try:
        at = Submission(job=job(name="claims", run="true", gpus=2), base=str(tmp_path), environment=environment)
        first, second = engine.submit(at).name, engine.submit(at).name
        pods = until("a pod is bound", lambda: bound(engine, first))
        claims = json.loads(kubectl("get", "resourceclaims", "-o", "json"))["items"]
        held = [claim for claim in claims if claim["status"].get("allocation")]
        assert [one["spec"]["nodeName"] for one in pods] == [device_node]
        assert len(held) == 1 and len(held[0]["status"]["allocation"]["devices"]["results"]) == 2
        for name in (first, second):  # the second gets them when the first has ended
            assert engine.wait(name).phase == "succeeded"
            engine.delete(name)
        until("no claim is left", lambda: not json.loads(kubectl("get", "resourceclaims", "-o", "json"))["items"])
    finally:
        engine.close()


def bound(engine: KubernetesEngine, run: str) -> list[dict[str, Any]]:
    found = engine.client.list(POD, labels=f"longboat.dev/run={run}").items
    return [pod for pod in found if pod["spec"].get("nodeName")]
