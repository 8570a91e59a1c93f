"""When a probe pod is given up, and why. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.doctor.probes.pods import PULL_S, SCHEDULE_S, WAIT_S, trouble


def pod(waiting: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    states = [{"name": "main", "state": {"waiting": waiting}}] if waiting else []
    return {"status": {"phase": "Pending", "containerStatuses": states, **status}}


UNSCHEDULED = [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]


@pytest.mark.parametrize(
    ("body", "waited_s", "kind"),
    [
        (pod(), 1.0, ""),
        (pod(conditions=UNSCHEDULED), 1.0, ""),
        (pod(conditions=UNSCHEDULED), SCHEDULE_S + 1, "scheduling"),
        (pod({"reason": "ContainerCreating"}), 60.0, ""),
        (pod({"reason": "ErrImagePull", "message": "dial tcp: i/o timeout"}), 1.0, ""),
        (pod({"reason": "ErrImagePull", "message": "dial tcp: i/o timeout"}), PULL_S + 1, "image"),
        (pod({"reason": "InvalidImageName"}), 0.0, "image"),
        (pod({"reason": "CreateContainerConfigError", "message": "secret not found"}), 0.0, "start"),
        (pod({"reason": "RunContainerError", "message": "exec: python3: executable file not found"}), 0.0, "end"),
        (pod(phase="Failed", reason="Evicted"), 0.0, "start"),
        (pod(phase="Running"), WAIT_S + 1, "start"),
    ],
)
def test_troubles(body: dict[str, Any], waited_s: float, kind: str) -> None:
    problem, found = trouble(body, waited_s, "python:3")
    assert found == kind and bool(problem) == bool(kind)
