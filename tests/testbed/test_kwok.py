"""Simulated nodes: their shapes as data; on a real control plane, what they and their pods do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from testbed import api, kwok, stages
from testbed.errors import TestbedError

Add = Callable[..., list[str]]


def test_groups_are_written_in_three_ways() -> None:
    assert kwok.parse_group("3") == kwok.Group(3, kwok.SHAPES["h100x8"])
    assert kwok.parse_group("3:cpu").shape.gpus == 0
    own = kwok.parse_group("2:gpus=2,cpu=16,memory=64Gi").shape
    assert (own.gpus, own.cpu, own.memory, own.name) == (2, "16", "64Gi", "own-cpu16-gpus2-memory64gi")


@pytest.mark.parametrize("text", ["", "0", "x:cpu", "2:nosuch", "2:gpus=two", "2:color=3"])
def test_wrong_groups_are_refused(text: str) -> None:
    with pytest.raises(TestbedError):
        kwok.parse_group(text)


def test_late_gpus_are_not_there_at_first() -> None:
    late = kwok.Group(1, kwok.SHAPES["h100x8"], annotations={stages.PREFIX + "gpus-after": "5s"})
    node = kwok.node_object("n", late)
    assert stages.GPU not in node["status"]["capacity"]
    assert node["metadata"]["annotations"][stages.PREFIX + "gpus"] == "8"
    assert kwok.node_object("n", kwok.Group(1, late.shape))["status"]["capacity"][stages.GPU] == "8"


def test_taints_are_read_as_kubectl_writes_them() -> None:
    assert kwok.parse_taint("a/b=c:NoSchedule") == {"key": "a/b", "value": "c", "effect": "NoSchedule"}
    with pytest.raises(TestbedError, match="is no taint"):
        kwok.parse_taint("a/b=c")


def pod(name: str, namespace: str, node: str, **behaviour: str) -> dict[str, Any]:
    annotations = {stages.PREFIX + key.replace("_", "-"): value for key, value in behaviour.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "longboat.test/python:latest"}],
        },
    }


def condition(node: dict[str, Any], kind: str) -> str | None:
    return next((one["status"] for one in node["status"].get("conditions", []) if one["type"] == kind), None)


@pytest.mark.cluster
def test_a_hundred_gpu_nodes_take_a_job(cluster_api: api.Api, namespace: str, kwok_nodes: Add) -> None:
    names = kwok_nodes("100:h100x8")
    kwok.wait_ready(cluster_api, 100)
    container = {"name": "main", "image": "x", "resources": {"limits": {stages.GPU: "8"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"completions": 100, "parallelism": 100, "completionMode": "Indexed", "template": template}
    meta = {"name": "gang", "namespace": namespace}
    cluster_api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})
    path = api.path_of("Job", "batch/v1", namespace, "gang")

    def all_run() -> bool:
        return bool((cluster_api.get(path) or {}).get("status", {}).get("ready") == 100)

    api.wait_for("all 100 pods run", all_run, 120.0)
    pods = cluster_api.items(api.path_of("Pod", "v1", namespace))
    assert {one["spec"]["nodeName"] for one in pods} == set(names), "8 GPUs each: one pod on every node"


@pytest.mark.cluster
def test_pods_do_what_their_annotations_say(cluster_api: api.Api, namespace: str, kwok_nodes: Add) -> None:
    (node,) = kwok_nodes("1:cpu")
    wanted = {
        "runs": {},
        "succeeds": {"run_for": "1s"},
        "fails": {"run_for": "1s", "exit_code": "137"},
        "fails-at-once": {"exit_code": "3"},
        "pending": {"stay": "pending"},
        "no-image": {"stay": "image-pull-back-off"},
        "late": {"start_after": "4s"},
    }
    for name, behaviour in wanted.items():
        cluster_api.create(pod(name, namespace, node, **behaviour))

    def states() -> dict[str, tuple[str, Any]]:
        found = {}
        for one in cluster_api.items(api.path_of("Pod", "v1", namespace)):
            state = one["status"].get("containerStatuses", [{}])[0].get("state", {})
            told = state.get("terminated", {}).get("exitCode", state.get("waiting", {}).get("reason"))
            found[one["metadata"]["name"]] = (one["status"]["phase"], told)
        return found

    expected = {
        "runs": ("Running", None),
        "succeeds": ("Succeeded", 0),
        "fails": ("Failed", 137),
        "fails-at-once": ("Failed", 3),
        "pending": ("Pending", None),
        "no-image": ("Pending", "ImagePullBackOff"),
        "late": ("Pending", None),
    }
    api.wait_for("every pod is where it should be", lambda: states() == expected, 60.0)
    api.wait_for("the late pod runs", lambda: states() == {**expected, "late": ("Running", None)}, 60.0)


@pytest.mark.cluster
def test_nodes_come_late_get_gpus_late_and_go(cluster_api: api.Api, kwok_nodes: Add) -> None:
    kinds = {
        "late": kwok_nodes("1:h100x8", ready_after="3s")[0],
        "driver": kwok_nodes("1:h100x8", gpus_after="3s")[0],
        "lost": kwok_nodes("1:h100x8", lost_after="3s")[0],
        "gone": kwok_nodes("1:h100x8", vanish_after="3s")[0],
    }

    def node(kind: str) -> dict[str, Any] | None:
        return cluster_api.get(api.path_of("Node", "v1", name=kinds[kind]))

    def seen() -> dict[str, tuple[str | None, str] | None]:
        found: dict[str, tuple[str | None, str] | None] = {}
        for kind in kinds:
            one = node(kind)
            found[kind] = (condition(one, "Ready"), one["status"]["capacity"].get(stages.GPU, "0")) if one else None
        return found

    last = {"late": ("True", "8"), "driver": ("True", "8"), "lost": ("Unknown", "8"), "gone": None}
    api.wait_for("every node did what it should", lambda: seen() == last, 60.0)
    for kind in ("late", "lost"):
        assert ready_changed_after_s(node(kind)) >= 2, f"{kind}: at once, although it was to take 3 s"


def ready_changed_after_s(node: dict[str, Any] | None) -> float:
    """From creation to the last change of Ready, as the objects tell it (in whole seconds, so up to 1 s too little)."""
    assert node
    (ready,) = [one for one in node["status"]["conditions"] if one["type"] == "Ready"]
    created, changed = node["metadata"]["creationTimestamp"], ready["lastTransitionTime"]
    read = dt.datetime.fromisoformat
    return (read(changed.replace("Z", "+00:00")) - read(created.replace("Z", "+00:00"))).total_seconds()
