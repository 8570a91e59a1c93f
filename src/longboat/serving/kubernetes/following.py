"""Following in a cluster: a replica is asked which checkpoints there are, and the service gets the next one.

A new version is the Deployment as it is with another step in a variable: a number. Image, command, Secrets and the
place that checkpoints come from stay those that whoever made the service gave it. So whoever may patch that Deployment
can do it, the controller too, and nothing that others can write decides more than which step of that place is served.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import msgspec

from longboat.core.errors import EngineError
from longboat.core.guards.decoding import decode
from longboat.core.jobs import Value
from longboat.engines.kubernetes.manifests.pod_template import CONTAINER, LAUNCHER
from longboat.engines.kubernetes.manifests.volumes import ROOT
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import DEPLOYMENT
from longboat.kubeapi.streams.exec import BoundedOutput, run_in_pod
from longboat.serving.following import next_step
from longboat.serving.kubernetes.manifests import FOLLOWED, NAME, RECORD, VERSION, Object, ServingRecord
from longboat.serving.kubernetes.observe import canary_of, failure_of, pods_of
from longboat.serving.kubernetes.status import phase_of, record_of, takes_requests
from longboat.storage.inventory.entries import CheckpointEntry
from longboat.storage.retention import Retention

LOOK_S = 15.0
"""Between two looks: a program is started in a replica for each, and checkpoints are minutes apart."""
ANSWER_S = 30.0
"""A store that is slow answers in this time; a replica that never does must not keep all other services waiting."""
MOST_ANSWER = 1 << 20
"""Bytes: a thousand checkpoints with one metric each, whose name is in the job file."""
MOST_STEP = 10**18
"""Steps have at most 18 digits."""


class KnownCheckpoints(Value, frozen=True):
    """What a replica says that its run has: steps with their metrics, and those that were promoted."""

    checkpoints: list[tuple[int, dict[str, float]]]
    promoted: list[int] = []


def follow_once(client: Client, body: Object) -> int | None:
    """Give a service that follows its next checkpoint; its step, None where it stays as it is. Raises LongboatError.

    Not while a version is rolled out, or a canary is tried. One that has failed is passed over, unless somebody asked
    for it: an update by hand waits for them.
    """
    name, record = body["metadata"]["labels"][NAME], record_of(body)
    if record.serve.follow is None or canary_of(client, name) is not None:
        return None
    failure = failure_of(client, body)
    is_update = failure is not None and record.version == record.made > 1
    if is_update or not (failure or phase_of(body) == "ready"):
        return None
    failed = record.with_failed() if failure else record.failed
    rule = Retention(metric=record.metric, goal=record.goal)
    entries = look(client, name, record.serve.follow, rule.metric)
    step = next_step(entries, record.serve.follow, rule, serving=record.step, failed=failed)
    if step is not None:
        serve_step(client, body, msgspec.structs.replace(record, step=step, failed=failed))
    return step


def look(client: Client, name: str, follow: str, metric: str = "") -> list[CheckpointEntry]:
    """The complete checkpoints where the replicas of a service have theirs from, with this metric of theirs."""
    answer, complaint = BoundedOutput(MOST_ANSWER), BoundedOutput(MOST_ANSWER)
    pod = asked_pod(pods_of(client, name))
    if pod is None:
        return []  # none has begun yet
    command = ["python3", "-I", "-S", LAUNCHER, "--checkpoints", ROOT, follow, *([metric] if metric else [])]
    outputs: dict[str, io.BytesIO] = {"stdout": answer, "stderr": complaint}
    code = run_in_pod(client, pod, command, container=CONTAINER, timeout_s=ANSWER_S, **outputs)  # type: ignore[arg-type]
    if code != 0:
        words = " ".join(complaint.getvalue().decode("utf-8", "replace").split())[:300]
        raise EngineError(f"{pod} cannot tell which checkpoints there are: {words or f'exit code {code}'}")
    return entries_of(answer.getvalue(), pod)


def asked_pod(pods: Sequence[Object]) -> str | None:
    """The replica that is asked: one that takes requests, else one that has begun at all."""
    begun = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp") and _is_running(pod)]
    ready = [pod for pod in begun if takes_requests(pod)]
    return min((str(pod["metadata"]["name"]) for pod in ready or begun), default=None)


def _is_running(pod: Object) -> bool:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(each.get("name") == CONTAINER and "running" in (each.get("state") or {}) for each in containers)


def entries_of(answer: bytes, pod: str) -> list[CheckpointEntry]:
    """What a replica has said. Raises EngineError for an answer that is none: a pod says what it likes."""
    try:
        known = decode(answer, KnownCheckpoints)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise EngineError(f"{pod}: the answer is not understood: {error}") from None
    promoted = set(known.promoted)
    return [
        CheckpointEntry(
            step=step,
            name=f"step-{step}",
            where=pod,
            size=0,
            files=0,
            complete=True,
            promoted=step in promoted,
            metrics=metrics,
        )
        for step, metrics in known.checkpoints
        if 0 <= step < MOST_STEP
    ]


def serve_step(client: Client, body: Object, record: ServingRecord) -> None:
    """Roll out the step of a record. Raises Conflict where somebody has changed the service since it was looked at."""
    changed = msgspec.structs.replace(
        record,
        version=record.version + 1,
        base=record.made,
        last_command=record.command,
        last_serve=record.serve,
    )
    version = str(changed.version)
    variable = {"name": FOLLOWED, "value": str(changed.step)}
    template = {
        "metadata": {"labels": {VERSION: version}, "annotations": {VERSION: version}},
        "spec": {"containers": [{"name": CONTAINER, "env": [variable]}]},
    }
    metadata: dict[str, Any] = {
        "annotations": {RECORD: msgspec.json.encode(changed).decode()},
        "resourceVersion": body["metadata"]["resourceVersion"],
    }
    patch = {"metadata": metadata, "spec": {"template": template}}
    client.patch(DEPLOYMENT, body["metadata"]["name"], patch, kind_of_patch="strategic")
