"""What a run's owner learns of machines that were ordered for it: words of the newest event, and only of its own."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.core.runs import RunStatus
from longboat.engines.kubernetes.explain.machine_orders import LONGEST, with_orders, words_of
from longboat.kubeapi.client import Client

WORDS = "waits for 2 machines of pool gpu, ordered at 2026-11-15T12:00:00Z, expected by 2026-11-15T12:05:00Z"
AT = 1794744000.0  # 2026-11-15T12:00:00Z


def event(name: str, reason: str = "TriggeredScaleUp", message: str = WORDS, at: str = "12:00:00") -> dict[str, Any]:
    moment = f"2026-11-15T{at}Z"
    involved = {"kind": "ConfigMap", "name": name}
    return {"involvedObject": involved, "reason": reason, "message": message, "lastTimestamp": moment}


def run(name: str, phase: Any = "pending", **more: Any) -> RunStatus:
    given = {"uid": "u", "job": name, "engine": "kubernetes", "created": AT - 60, "nodes": 2, "gpus": 8, **more}
    return RunStatus(name=name, phase=phase, **given)


def test_the_newest_event_speaks() -> None:
    refused = event("b", "NotTriggerScaleUp", "stockout", "12:01:00")
    found = words_of([event("a"), event("b"), refused, event("c", message=f"a\n{'x' * 9999}")])
    assert found["a"] == (AT, WORDS) and "b" not in found
    assert found["c"][1].startswith("a xxx") and len(found["c"][1]) == LONGEST
    assert words_of([refused, event("b", at="12:02:00")])["b"] == (AT + 120, WORDS)
    assert words_of([{}, {"involvedObject": None}]) == {}


@pytest.mark.cluster
def test_a_run_that_waits_is_shown_with_its_order(client: Client) -> None:
    def write(name: str, moment: str, source: str = "longboat-autoscaler") -> None:
        involved = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "namespace": client.namespace}
        times = {"firstTimestamp": moment, "lastTimestamp": moment}
        body = {"involvedObject": involved, "reason": "TriggeredScaleUp", "message": WORDS, "type": "Normal", **times}
        meta = {"generateName": f"{name}."}
        client.create({"apiVersion": "v1", "kind": "Event", "metadata": meta, **body, "source": {"component": source}})

    write("mine", "2026-11-15T12:00:00Z")
    write("old", "2026-11-15T11:00:00Z")
    write("runs", "2026-11-15T12:00:00Z")
    write("liar", "2026-11-15T12:00:00Z", source="somebody-else")
    before = client.requests
    waiting = [run("mine", reason="waits for 16 GPUs"), run("old"), run("runs", "running"), run("liar"), run("none")]
    found = {one.name: one.reason for one in with_orders(client, waiting)}
    assert found == {"mine": f"waits for 16 GPUs; autoscaler: {WORDS}", "old": "", "runs": "", "liar": "", "none": ""}
    assert with_orders(client, [run("mine")])[0].reason == f"autoscaler: {WORDS}"
    assert client.requests == before + 2
    assert with_orders(client, [run("mine", "running")])[0].reason == "" and client.requests == before + 2
