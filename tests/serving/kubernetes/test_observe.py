"""What keeps replicas from being ready, from what their pods say."""

from __future__ import annotations

import json
from typing import Any

from longboat.serving.kubernetes.observe import last_words


def ended(message: str, at: str = "2026-01-01T00:00:00Z", *, ended_by: str = "failure") -> dict[str, Any]:
    said = {"v": 1, "exit_code": 1, "cause": "exit", "message": message, "ended_by": ended_by}
    return {"terminated": {"exitCode": 1, "reason": "Error", "message": json.dumps(said), "finishedAt": at}}


def pod(*, ready: bool = False, **states: Any) -> dict[str, Any]:
    status = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, **states}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": {"name": "p"}, "status": {"conditions": conditions, "containerStatuses": [status]}}


def test_a_server_that_ends_by_itself_has_the_last_word() -> None:
    words = "exit code 1: cannot load the model: bad magic"
    assert last_words([pod(lastState=ended(words))]) == words
    assert last_words([pod(lastState=ended("before"), state=ended(words, "2026-01-01T00:01:00Z"))]) == words
    assert last_words([{"metadata": {"name": "new"}, "status": {}}, pod()]) == ""
    assert last_words([pod(lastState=ended(words), ready=True)]) == "", "it is well now"


def test_one_that_the_cluster_restarts_says_nothing_of_itself() -> None:
    """Its probe does: it was never ready."""
    assert last_words([pod(lastState=ended("the pod was taken away by the cluster", ended_by="evicted"))]) == ""


def test_a_container_that_could_not_be_started() -> None:
    words = last_words([pod(lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})])
    assert words == "out of memory: the kernel killed the whole container"
