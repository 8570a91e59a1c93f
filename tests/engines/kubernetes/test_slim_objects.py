"""Which changes of a pod or a Job are worth a turn of the controller."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.engines.kubernetes.slim_objects import RunObject

READY = {"type": "Ready", "status": "True"}
POD: dict[str, Any] = {
    "metadata": {"name": "p", "uid": "1", "resourceVersion": "5"},
    "status": {"phase": "Running", "conditions": [READY]},
}
JOB: dict[str, Any] = {
    "metadata": {"name": "j", "uid": "2", "resourceVersion": "5"},
    "spec": {"suspend": False},
    "status": {"active": 1},
}


def mark(body: dict[str, Any], **changes: Any) -> tuple[object, ...] | None:
    """The mark of this object with fields of its parts replaced, `status={"phase": ...}`."""
    merged = {**body, **{part: {**body.get(part, {}), **fields} for part, fields in changes.items()}}
    return msgspec.convert(merged, RunObject).mark


@pytest.mark.parametrize(
    ("body", "change"),
    [
        (JOB, {"status": {"active": 0, "ready": 1, "uncountedTerminatedPods": {"succeeded": ["x"]}}}),
        (JOB, {"metadata": {"resourceVersion": "6"}}),
        (POD, {"metadata": {"resourceVersion": "6"}}),
        (POD, {"status": {"podIP": "10.0.0.1"}}),
    ],
)
def test_counts_and_versions_are_no_news(body: dict[str, Any], change: dict[str, Any]) -> None:
    assert mark(body) == mark(body, **change) is not None


@pytest.mark.parametrize(
    ("body", "change"),
    [
        (JOB, {"spec": {"suspend": True}}),
        (JOB, {"status": {"failedIndexes": "0"}}),
        (JOB, {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
        (JOB, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        (POD, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        (POD, {"status": {"phase": "Failed"}}),
        (POD, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        (POD, {"status": {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 1}}}]}}),
        (POD, {"status": {"conditions": [READY, {"type": "DisruptionTarget", "status": "True"}]}}),
    ],
)
def test_what_a_turn_could_act_on_is_news(body: dict[str, Any], change: dict[str, Any]) -> None:
    assert mark(body) != mark(body, **change)


@pytest.mark.parametrize("containers", ["containerStatuses", "initContainerStatuses"])
def test_why_a_pod_has_not_started_is_news(containers: str) -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating", "message": "1"}}}
    stuck = {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "2"}}}
    still = {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "3"}}}
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    gated, refused = {**unscheduled, "reason": "SchedulingGated"}, {**unscheduled, "message": "0/2 nodes"}
    pending = [mark(POD, status={"phase": "Pending", containers: [each]}) for each in (waiting, stuck, still)]
    assert pending[0] != pending[1] == pending[2] is not None
    held = [mark(POD, status={"phase": "Pending", "conditions": [each]}) for each in (gated, unscheduled, refused)]
    assert len(set(held)) == 3
