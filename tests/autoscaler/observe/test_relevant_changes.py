"""Which updates wake the loop: those that can change a plan."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from longboat.autoscaler.model.snapshot import CORDONED, IDLE
from longboat.autoscaler.observe.relevant_changes import RelevantChanges
from longboat.kubeapi.kinds import JOB, NODE, PDB, POD, Kind

Body = dict[str, Any]
META: Body = {"name": "x", "uid": "u", "labels": {}, "annotations": {}}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "1"}
BODIES: dict[str, tuple[Kind, Body]] = {
    "node": (NODE, {"spec": {}, "status": {"allocatable": {"cpu": "8"}, "conditions": [READY]}}),
    "pod": (POD, {"spec": {"containers": []}, "status": {"phase": "Pending", "conditions": []}}),
    "job": (JOB, {"spec": {"suspend": True, "parallelism": 2}, "status": {"active": 1}}),
    "pdb": (PDB, {"spec": {}, "status": {"disruptionsAllowed": 0}}),
}


def put(*path: str, value: Any) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        for key in path[:-1]:
            body = body[key]
        body[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("what", "change", "wakes"),
    [
        ("node", put("status", "conditions", value=[{**READY, "lastHeartbeatTime": "2"}]), False),
        ("node", put("status", "images", value=[{"names": ["a"]}]), False),
        ("node", put("metadata", "annotations", value={IDLE: "now"}), False),
        ("node", put("metadata", "resourceVersion", value="9"), False),
        ("node", put("status", "conditions", value=[{**READY, "status": "False"}]), True),
        ("node", put("status", "allocatable", value={"cpu": "8", "nvidia.com/gpu": "8"}), True),
        ("node", put("metadata", "annotations", value={CORDONED: "now"}), True),
        ("node", put("spec", "unschedulable", value=True), True),
        ("pod", put("status", "phase", value="Running"), False),
        ("pod", put("status", "containerStatuses", value=[{"ready": True}]), False),
        ("pod", put("status", "phase", value="Succeeded"), True),
        ("pod", put("spec", "nodeName", value="n"), True),
        ("pod", put("metadata", "deletionTimestamp", value="now"), True),
        ("pod", put("metadata", "annotations", value={"karpenter.sh/do-not-disrupt": "true"}), True),
        ("pod", put("status", "conditions", value=[{"type": "PodScheduled", "status": "False", "reason": "U"}]), True),
        ("job", put("status", "active", value=2), False),
        ("job", put("spec", "suspend", value=False), True),
        ("job", put("status", "conditions", value=[{"type": "Complete", "status": "True"}]), True),
        ("pdb", put("status", "disruptionsAllowed", value=1), True),
    ],
)
def test_updates_that_can_change_a_plan_wake_the_loop(what: str, change: Callable[[Body], None], wakes: bool) -> None:
    kind, parts = BODIES[what]
    body = copy.deepcopy({"metadata": META, **parts})
    changes = RelevantChanges()
    assert changes.is_relevant(kind, body, is_deleted=False), "it is new"
    after = copy.deepcopy(body)
    change(after)
    assert changes.is_relevant(kind, after, is_deleted=False) is wakes
    assert changes.is_relevant(kind, after, is_deleted=True)
    assert changes.is_relevant(kind, after, is_deleted=False), "it came back"


def test_a_job_of_another_group_is_always_looked_at() -> None:
    changes = RelevantChanges()
    kind = Kind("Job", "batch.volcano.sh/v1alpha1", "jobs")
    body = {"metadata": META}
    assert changes.is_relevant(kind, body, is_deleted=False) and changes.is_relevant(kind, body, is_deleted=False)
