"""Clusters as they were: GPUs by their old name, and a driver that only the nodes have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.core.runs import LogQuery
from longboat.engines.kubernetes.submit.facts.gpu_inventory import LEGACY_GPU
from longboat.kubeapi.kinds import NODE, POD
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.benches import IMAGE, Bench
from tests.engines.kubernetes.broken import until

NOTICE = f"GPUs are asked for as {LEGACY_GPU}: nodes here offer them by that old name only"


def offer(kubectl: Kubectl, node: str, count: str | None) -> None:
    """None: no longer."""
    gpus = {LEGACY_GPU: count}
    body = {"status": {"capacity": gpus, "allocatable": gpus}}
    kubectl("patch", "node", node, "--subresource=status", "-p", json.dumps(body))


@pytest.mark.cluster
def test_the_old_name_is_asked_for_where_nodes_offer_no_other(
    bench: Bench, kubectl: Kubectl, kwok_nodes: Callable[..., list[str]]
) -> None:
    """On simulated nodes, which run nothing: the real scheduler places the pods."""
    (plain, old) = (*kwok_nodes("1:cpu"), *kwok_nodes("1:cpu"))
    offer(kubectl, old, "2")
    run = bench.engine.submit(bench.submission(nodes=2, gpus=1))
    assert NOTICE in bench.notices

    def placed() -> list[dict[str, Any]]:
        bench.engine.status(run.name)
        pods = bench.engine.client.list(POD, labels=f"longboat.dev/run={run.name}").items
        return [pod for pod in pods if pod["spec"].get("nodeName")]

    until("both pods have a node", lambda: len(placed()) == 2)
    for pod in placed():
        assert pod["spec"]["nodeName"] == old != plain
        assert pod["spec"]["containers"][0]["resources"]["limits"][LEGACY_GPU] == "1"
    bench.engine.stop(run.name, grace_s=0)


@pytest.fixture
def old_node(bench: Bench, kubectl: Kubectl) -> Iterator[str]:
    """A real node that offers one GPU as nodes did up to Kubernetes 1.8."""
    name = bench.engine.client.list(NODE).items[0]["metadata"]["name"]
    offer(kubectl, name, "1")
    yield name
    offer(kubectl, name, None)


@pytest.mark.pods
def test_the_driver_of_a_real_node_is_mounted(bench: Bench, old_node: str, tmp_path: Path) -> None:
    driver, libcuda = tmp_path / "nvidia-384", tmp_path / "libcuda.so.384.81"
    (driver / "bin").mkdir(parents=True)
    (driver / "libnvidia-ml.so.1").write_text("stand-in")
    (driver / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho Driver Version: 384.81\n")
    (driver / "bin" / "nvidia-smi").chmod(0o755)
    libcuda.write_text("stand-in of libcuda")
    gpu = {"mode": "hostpath", "driver": str(driver), "libcuda": str(libcuda)}
    config = Path(bench.environment["LONGBOAT_HOME"]) / "config.yaml"
    config.write_text(json.dumps({"kubernetes": {"image": IMAGE, "gpu": gpu}}))
    engine = bench.open()
    try:
        command = (
            'nvidia-smi; echo "$LD_LIBRARY_PATH"; ls /usr/local/nvidia/lib; cat /usr/local/nvidia/lib64/libcuda.so.1'
        )
        run = engine.submit(bench.submission(run=command, setup="nvidia-smi > setup.txt", gpus=1))
        ended = engine.wait(run.name, timeout_s=90)
        lines = [line.data.decode().strip() for line in engine.logs(run.name, LogQuery())]
        assert (ended.phase, lines) == (
            "succeeded",
            [
                "Driver Version: 384.81",
                "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
                "bin",
                "libnvidia-ml.so.1",
                "stand-in of libcuda",
            ],
        ), ended
        libcuda.unlink()
        lacking = engine.submit(bench.submission(run=command, gpus=1, name="lacking"))
        ended = engine.wait(lacking.name, timeout_s=90)
        assert (ended.phase, ended.cause) == ("failed", "setup")
        assert f"the GPU driver: {libcuda} is no file of the node" in ended.reason
    finally:
        engine.close()
    assert NOTICE in bench.notices
