"""Objects of a run as watches tell of them, and copies made of these, for the tests of the controller's judgement."""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.core.runs import Attempt
from longboat.core.times import format_time
from longboat.engines.kubernetes.observe.run_copies import RunCopies
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.kubernetes.slim_objects import RunPod, SlimRecord, SlimWorkload
from longboat.kubeapi.client import read
from longboat.kubeapi.kinds import CONFIG_MAP, JOB, POD
from tests.engines.kubernetes.run_samples import NOW, job, record

Object = dict[str, Any]
OURS = {"app.kubernetes.io/managed-by": "longboat", "longboat.dev/run": "train"}
RUNNING = State(phase="running", started=NOW - 30, attempts=(Attempt(number=0, started=NOW - 50),))


def meta(name: str, labels: dict[str, str], **more: Any) -> Object:
    fields = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "7", "labels": labels}
    return {**fields, "creationTimestamp": format_time(NOW - 40), **more}


def record_body(state: State, what: Record | None = None) -> Object:
    texts = {"record": what or record(job(nodes=1)), "state": state}
    data = {key: msgspec.json.encode(value).decode() for key, value in texts.items()}
    body = {"metadata": meta("train", {**OURS, "longboat.dev/kind": "run"}), "data": data}
    return read(SlimRecord, msgspec.json.encode(body))


def job_body(*, suspend: bool = False) -> Object:
    owner = {"kind": "ConfigMap", "uid": "uid-train"}
    labels = {**OURS, "longboat.dev/attempt": "0", "longboat.dev/role": "worker"}
    body = {"metadata": meta("train-a0-worker", labels, ownerReferences=[owner]), "spec": {"suspend": suspend}}
    return read(SlimWorkload, msgspec.json.encode(body))


def pod_body(*, is_ready: bool = True) -> Object:
    labels = {**OURS, "longboat.dev/attempt": "0", "longboat.dev/role": "worker", "longboat.dev/index": "0"}
    ready = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": format_time(NOW - 10)}
    state = {"running": {"startedAt": format_time(NOW - 30)}}
    status = {"phase": "Running", "conditions": [ready], "containerStatuses": [{"name": "main", "state": state}]}
    body = {"metadata": meta("train-a0-worker-0", labels), "spec": {"nodeName": "node-0"}, "status": status}
    return read(RunPod, msgspec.json.encode(body))


def copies(
    state: State = RUNNING,
    what: Record | None = None,
    *,
    suspend: bool = False,
    pod: bool = True,
    made: RunCopies | None = None,
) -> RunCopies:
    """Told in an order that watches may have: what belongs to a run before its record."""
    made = made or RunCopies()
    if pod:
        made.note(POD, pod_body(), is_gone=False)
    made.note(JOB, job_body(suspend=suspend), is_gone=False)
    made.note(CONFIG_MAP, record_body(state, what), is_gone=False)
    return made
