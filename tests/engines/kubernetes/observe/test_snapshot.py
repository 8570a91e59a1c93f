"""Objects as the API server prints them become what the decisions see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longboat.engines.kubernetes.observe.snapshot import (
    MONITOR_GRACE_S,
    failed_members,
    host_view,
    mount_trouble,
    pod_view,
    queue_view,
    workload_view,
)

TIME = "2026-11-15T07:00:00Z"
AT = 1794726000.0


def pod(**status: Any) -> dict[str, Any]:
    labels = {
        "longboat.dev/role": "worker",
        "longboat.dev/attempt": "2",
        "batch.kubernetes.io/job-completion-index": "3",
    }
    meta = {"name": "train-a2-worker-3-x", "uid": "u", "labels": labels, "creationTimestamp": TIME}
    return {"metadata": meta, "spec": {"nodeName": "node-0"}, "status": status}


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "state": state}]}


def test_who_it_is() -> None:
    view = pod_view(pod(phase="Pending"))
    assert (view.node, view.attempt, view.host, view.created) == ("worker-3", 2, "node-0", AT)
    assert not view.is_started and not view.is_running and view.end is None


def test_the_index_is_read_from_the_annotation_of_older_clusters() -> None:
    body = pod()
    index = body["metadata"]["labels"].pop("batch.kubernetes.io/job-completion-index")
    body["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": index}
    assert pod_view(body).index == 3


def test_a_container_that_runs() -> None:
    ready = [{"type": "Ready", "status": "True"}]
    view = pod_view(pod(phase="Running", conditions=ready, **container(running={"startedAt": TIME})))
    assert view.is_started and view.is_running and not view.is_unready and view.started == AT
    lost = [{"type": "Ready", "status": "False"}]
    assert pod_view(pod(phase="Running", conditions=lost, **container(running={"startedAt": TIME}))).is_unready


def test_a_container_that_said_how_it_ended() -> None:
    message = json.dumps({"v": 1, "exit_code": 7, "cause": "exit", "message": "boom", "ranks": [[6, 7, None, 12]]})
    ended = {"exitCode": 7, "reason": "Error", "message": message, "startedAt": TIME, "finishedAt": TIME}
    view = pod_view(pod(phase="Running", **container(terminated=ended)))
    assert view.is_started and not view.is_running
    assert view.end is not None and view.end.said is not None
    assert (view.end.exit_code, view.end.cause, view.end.said.ranks[0].step) == (7, "exit", 12)


def test_a_pod_without_a_place_says_why() -> None:
    body = pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}])
    del body["spec"]["nodeName"]
    view = pod_view(body)
    assert not view.is_scheduled and view.message == "0/3 nodes"


def test_an_image_that_cannot_be_had_is_trouble() -> None:
    waiting = {"reason": "InvalidImageName", "message": "couldn't parse"}
    view = pod_view(pod(phase="Pending", **container(waiting=waiting)))
    assert view.waiting == "InvalidImageName"
    assert view.trouble is not None and view.trouble.cause == "image" and view.trouble.is_final


def test_a_pod_that_is_being_deleted() -> None:
    body = pod(phase="Running")
    body["metadata"]["deletionTimestamp"] = TIME
    assert pod_view(body).deleting_since == AT


@pytest.mark.parametrize("kind", ["Complete", "Completed"])
def test_workloads_that_are_complete(kind: str) -> None:
    body = {"metadata": {"name": "w"}, "status": {"conditions": [{"type": kind, "status": "True"}]}}
    assert workload_view(body).is_complete


def test_a_workload_that_failed_or_waits() -> None:
    meta = {"name": "w", "labels": {"longboat.dev/attempt": "1", "longboat.dev/role": "ps"}, "creationTimestamp": TIME}
    failed = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "no more"}]
    view = workload_view({"metadata": meta, "spec": {"suspend": True}, "status": {"conditions": failed}})
    assert (view.attempt, view.role, view.is_suspended, view.failed) == (1, "ps", True, "no more")
    was = [{"type": "Failed", "status": "False"}]
    assert workload_view({"metadata": meta, "status": {"conditions": was}}).failed is None


def test_a_queue_that_took_it_back() -> None:
    conditions = [{"type": "Admitted", "status": "False"}, {"type": "Evicted", "status": "True"}]
    view = queue_view({"status": {"conditions": conditions}}, "waits")
    assert view.is_evicted and view.message == "waits"
    slow = [{"type": "Evicted", "status": "True", "reason": "PodsReadyTimeout"}]
    assert not queue_view({"status": {"conditions": slow}}).is_evicted


def test_volumes_that_cannot_be_mounted() -> None:
    message = 'MountVolume.SetUp failed for volume "volume-0" : hostPath type check failed: /data/x is not a directory'
    older = {"reason": "Scheduled", "message": "", "lastTimestamp": "2026-11-15T06:59:00Z"}
    failed = {"reason": "FailedMount", "message": message, "lastTimestamp": TIME}
    trouble = mount_trouble([failed, older])
    assert trouble is not None and trouble.is_final and trouble.cause == "setup" and "/data/x" in trouble.what
    assert trouble.what == "volumes: /data/x is no folder of the node"
    driver = 'MountVolume.SetUp failed for volume "nvidia-libcuda" : hostPath type check failed: /lib/c is not a file'
    trouble = mount_trouble([{**failed, "message": driver}])
    assert trouble is not None and trouble.what == "the GPU driver: /lib/c is no file of the node"
    assert "`gpu` of the context's settings" in (trouble.hint or "")
    slow = mount_trouble([{**failed, "message": "timed out waiting for the volume"}])
    assert slow is not None and not slow.is_final
    started = {"reason": "Started", "message": "", "lastTimestamp": "2026-11-15T07:01:00Z"}
    assert mount_trouble([failed, started]) is None and mount_trouble([]) is None


def test_machines() -> None:
    assert not host_view("n", None).is_there
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}]}}
    assert host_view("n", ready).not_ready_since is None
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": TIME}]}}
    assert host_view("n", unknown).not_ready_since == AT - MONITOR_GRACE_S, "it was silent for so long before"


def ready(status: str, **fields: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": TIME, **fields}]}}


@pytest.mark.parametrize(
    ("renewed", "since"),
    [
        (AT - 50, AT - 50),
        (AT - 20, AT - 20),
        (AT + 3600, AT),  # its clock is wrong
        (AT - 3600, AT - 60),
    ],
)
def test_a_silent_node_was_last_heard_of_when_it_renewed_its_lease(renewed: float, since: float) -> None:
    assert host_view("n", ready("Unknown"), renewed).not_ready_since == since


def test_a_node_that_says_itself_that_it_is_not_ready() -> None:
    found = host_view("n", ready("False", message="container runtime is down"))
    assert (found.not_ready_since, found.said) == (AT, "container runtime is down")


def test_a_container_that_fails_its_own_probe_does_not_cast_doubt_on_its_node() -> None:
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}]
    container = {"name": "main", "state": {"running": {"startedAt": TIME}}}
    body = {"status": {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}}
    assert not pod_view(body).is_unready
    del conditions[1]
    assert pod_view(body).is_unready


@pytest.mark.parametrize(
    ("text", "members"),
    [("", set()), ("0", {"worker-0"}), ("1,3-4", {"worker-1", "worker-3", "worker-4"}), ("x,5-y,0-999999", set())],
)
def test_members_whose_index_has_failed(text: str, members: set[str]) -> None:
    labels = {"longboat.dev/role": "worker", "longboat.dev/attempt": "2"}
    job = {"metadata": {"labels": labels}, "status": {"failedIndexes": text}}
    assert failed_members([job], 2) == members
    assert failed_members([job], 1) == set()
