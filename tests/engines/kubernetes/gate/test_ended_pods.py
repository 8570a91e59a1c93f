"""Pods that hold nothing although their phase does not say so yet: what the gate sees right after an attempt."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.engines.kubernetes.gate.node_usage import has_ended
from longboat.engines.kubernetes.slim_objects import SlimPod

ENDED = {"name": "main", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
RUNS = {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
AGAIN = {"name": "main", "state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 0}}}
SIDECAR = {"initContainers": [{"name": "side", "restartPolicy": "Always"}]}
SECOND = {"containers": [{"name": "main"}, {"name": "more"}]}


def observed(*statuses: dict[str, Any], **spec: Any) -> SlimPod:
    """As it is read from the API: with what is decoded of it and no more."""
    whole = {
        "metadata": {"name": "train-a0-worker-0"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}], **spec},
        "status": {"phase": "Running", "containerStatuses": list(statuses)},
    }
    return msgspec.json.decode(msgspec.json.encode(whole), type=SlimPod)


@pytest.mark.parametrize(
    ("pod", "is_over"),
    [
        (observed(ENDED), True),
        (observed(ENDED, initContainers=[{"name": "unpack"}]), True),
        (observed(ENDED, {**ENDED, "name": "more"}, **SECOND), True),
        (observed(), False),
        (observed(RUNS), False),
        (observed(AGAIN), False),
        (observed(ENDED, **SECOND), False),
        (observed(ENDED, **SIDECAR), False),
        (observed(ENDED, restartPolicy="Always"), False),
        (observed(ENDED, restartPolicy="OnFailure"), False),
        (observed(ENDED, containers=[{"name": "main", "restartPolicy": "Always"}]), False),
        (observed({"name": "other", "state": {"terminated": {"exitCode": 0}}}), False),
    ],
)
def test_a_pod_whose_containers_have_all_ended_for_good_holds_nothing(pod: SlimPod, is_over: bool) -> None:
    assert has_ended(pod) is is_over
