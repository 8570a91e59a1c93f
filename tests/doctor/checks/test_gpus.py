"""GPUs, as facts of broken plugins, drivers and toolkits."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.doctor.facts import CLUSTER, NODES, PLUGINS, TRAIN_PROBE
from longboat.doctor.probes.outcomes import TrainProbe
from longboat.doctor.values import Rollout
from longboat.engines.kubernetes.submit.facts.cluster_facts import ClusterFacts
from longboat.engines.kubernetes.submit.facts.surroundings import uses_of
from tests.doctor.checks.judging import judged, status


def node(capacity: int = 8, allocatable: int = 8, **labels: str) -> dict[str, Any]:
    named = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    amounts = {"capacity": {"nvidia.com/gpu": str(capacity)}, "allocatable": {"nvidia.com/gpu": str(allocatable)}}
    return {"metadata": {"name": "a", "labels": named}, "spec": {}, "status": amounts}


def nodes(*bodies: dict[str, Any]) -> dict[Any, Any]:
    return {NODES: list(bodies), CLUSTER: ClusterFacts(namespace="team", nodes=uses_of(bodies, []))}


def test_offers() -> None:
    assert "(8 on 1 node) as nvidia.com/gpu" in judged("gpus", nodes(node())).detail
    assert status("gpus", nodes(node(0, 0))) == "ok"
    assert status("gpus", {CLUSTER: ClusterFacts(namespace="team")}) == "skipped"


def test_devices_that_nobody_hands_out() -> None:
    assert status("hidden gpus", nodes(node(0, 0, nvidia_com__gpu_present="true"))) == "broken"
    assert status("hidden gpus", nodes(node(0, 0, nvidia_com__gpu_present="false"))) == "ok"
    assert status("hidden gpus", nodes(node(8, 8, nvidia_com__gpu_present="true"))) == "ok"


def test_unhealthy_ones() -> None:
    assert status("gpu health", nodes(node())) == "ok"
    assert judged("gpu health", nodes(node(8, 7))).detail == "GPUs that are not handed out: a: 7 of 8 nvidia.com/gpu"


def test_plugins_and_labels() -> None:
    def plugin(ready: int) -> dict[Any, Any]:
        return {PLUGINS: [Rollout(name="nvidia-device-plugin", namespace="gpu", wanted=2, ready=ready)]}

    assert status("device plugins", plugin(2)) == status("device plugins", {PLUGINS: []}) == "ok"
    late = judged("device plugins", plugin(1))
    assert late.status == "broken" and "-n gpu describe daemonset nvidia-device-plugin" in (late.hint or "")
    assert status("gpu labels", nodes(node())) == "warning"
    assert status("gpu labels", nodes(node(nvidia_com__gpu_product="H200"))) == "ok"


@pytest.mark.parametrize(
    ("name", "change", "wanted"),
    [
        ("gpu devices", {"devices": 0}, "broken"),
        ("gpu devices", {"devices": 8}, "broken"),
        ("gpu toolkit", {"has_driver": False}, "broken"),
        ("gpu driver", {"module": "580.10", "library": "580.95.05"}, "broken"),
        ("gpu driver", {"smi_error": "Driver/library version mismatch"}, "broken"),
        ("gpu driver", {"module": "580.95.05"}, "ok"),
        ("gpu devices", {"problem": "0/1 nodes are available", "kind": "scheduling"}, "skipped"),
        ("gpu toolkit", {"gpus": 0}, "ok"),
    ],
)
def test_what_a_pod_sees(name: str, change: dict[str, Any], wanted: str) -> None:
    fit = {"gpus": 1, "node": "a", "devices": 1, "has_driver": True, "library": "580.95.05"}
    assert status(name, {TRAIN_PROBE: TrainProbe(**fit)}) == "ok"
    assert status(name, {TRAIN_PROBE: TrainProbe(**{**fit, **change})}) == wanted
