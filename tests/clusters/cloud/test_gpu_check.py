"""nvidia-smi on every GPU pool: NVIDIA's own device plugin on a real kubelet, over a stand-in driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from longboat.clusters.cloud import gpu_check
from longboat.clusters.cloud.gpu_check import GpuVerdict, check_pools, job_object, raise_if_bad
from longboat.clusters.cloud.labels import POOL_LABEL
from longboat.core.errors import EngineError
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import JOB, NODE
from testbed import images, node
from testbed.clusters import Cluster


def test_the_job_asks_for_a_gpu_of_its_pool_whatever_its_taints() -> None:
    pod = job_object("gpu", "x")["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"longboat.dev/pool": "gpu"} and pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "1"}}


def test_what_keeps_it_from_its_end() -> None:
    def pod(name: str, **status: object) -> dict[str, object]:
        return {"metadata": {"name": name, "creationTimestamp": name}, "status": status}

    missing = {"state": {"terminated": {"exitCode": 127, "message": "nvidia-smi: not found"}}}
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: Insufficient GPU"}
    pulling = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}
    for pods, words in (
        ([pod("1", containerStatuses=[missing])], "nvidia-smi ended with 127: nvidia-smi: not found"),
        (
            [pod("1", containerStatuses=[missing]), pod("2", containerStatuses=[pulling])],
            "ImagePullBackOff: no image",
        ),
        ([pod("1", conditions=[unscheduled])], "0/3 nodes are available: Insufficient GPU"),
        ([], ""),
    ):
        assert gpu_check._trouble(pods) == words  # type: ignore[arg-type]


def test_a_bad_pool_is_an_error_and_one_that_was_not_tried_is_none() -> None:
    raise_if_bad([GpuVerdict(pool="a", is_fine=True, text="", is_tried=False)])
    bad = GpuVerdict(pool="b", is_fine=False, text="no")
    with pytest.raises(EngineError, match="pods get no GPU in 1 of 2 pools: b: no"):
        raise_if_bad([bad, GpuVerdict(pool="a", is_fine=True, text="GPU 0")])


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> Iterator[Client]:
    with Client.open(environment={"KUBECONFIG": str(cluster.kubeconfig)}, namespace=namespace) as opened:
        yield opened


@pytest.mark.pods("nvidia")
def test_pools_with_and_without_machines(client: Client) -> None:
    name, pool = node.name_of(0), f"gpu-{client.namespace[-6:].strip('-')}"
    client.patch(NODE, name, {"metadata": {"labels": {POOL_LABEL: pool}}})
    said: list[str] = []
    try:
        image = images.reference("python")
        for _ in range(2):  # what an earlier command left is in nobody's way
            tried, empty = check_pools(client, [pool, "empty"], said.append, image=image, timeout_s=120.0)
            assert tried.is_fine and tried.is_tried and tried.text.startswith("GPU 0: "), tried.text
            assert empty == GpuVerdict(pool="empty", is_fine=True, text="", is_tried=False)
        (bad,) = check_pools(client, [pool], said.append, image="longboat.test/none:1", timeout_s=5.0)
        assert not bad.is_fine and bad.text
    finally:
        client.patch(NODE, name, {"metadata": {"labels": {POOL_LABEL: None}}})
    assert said[0] == "longboat: pool empty has no machine now: its GPUs are not tried"
    assert all(body["metadata"].get("deletionTimestamp") for body in client.list(JOB).items)
