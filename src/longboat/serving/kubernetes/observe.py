"""What a cluster shows of a service: its Deployments, their pods, and what keeps these from taking requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longboat.core.errors import NotFound, UsageError
from longboat.engines.kubernetes.observe.termination import container_of, outcome_of
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import DEPLOYMENT, EVENT, POD
from longboat.serving.kubernetes.manifests import NAME, RECORD, TRACK, VERSION, deployment_name
from longboat.serving.kubernetes.status import GOLDEN_FAILED, failed_starts, phase_of, record_of, takes_requests

Object = dict[str, Any]

MOST_FAILURES = 3
"""Starts of a version that has never been ready, as on one machine; Kubernetes itself goes on trying."""
PROBE_MARK = "Startup probe failed: "


def find_service(client: Client, name: str) -> Object | None:
    body = client.find(DEPLOYMENT, name)
    if body is not None and RECORD not in (body["metadata"].get("annotations") or {}):
        raise UsageError(f"there is a Deployment {name} already that is no service of Longboat", hint="another --name")
    if body is not None and is_canary(body):
        raise UsageError(f"{name} is the canary of another service", hint="another --name")
    return body


def existing_service(client: Client, name: str) -> Object:
    body = find_service(client, name)
    if body is None:
        raise NotFound(f"no service named {name!r}", hint="`longboat serve ls` lists them")
    return body


def canary_of(client: Client, name: str) -> Object | None:
    body = client.find(DEPLOYMENT, deployment_name(name, "canary"))
    if body is None or not is_canary(body) or body["metadata"].get("deletionTimestamp"):
        return None
    return body if body["metadata"]["labels"].get(NAME) == name else None


def is_canary(body: Object) -> bool:
    return (body["metadata"].get("labels") or {}).get(TRACK) == "canary"


def pods_of(client: Client, name: str, version: int | None = None) -> Sequence[Object]:
    selector = f"{NAME}={name}" if version is None else f"{NAME}={name},{VERSION}={version}"
    return client.list(POD, labels=selector).items


def trouble_of(client: Client, name: str, version: int) -> str:
    """What keeps the newest pods from being ready: wrong answers, how their server ended by itself, the last failed
    probe, or what their container waits for."""
    pods = pods_of(client, name, version)
    latest: tuple[str, str] = ("", "")
    for pod in pods:
        events = client.list(EVENT, fields=f"involvedObject.uid={pod['metadata']['uid']}").items
        for event in events:
            message = str(event.get("message") or "")
            if event.get("type") == "Warning":
                latest = max(latest, (str(event.get("lastTimestamp") or ""), message.removeprefix(PROBE_MARK)))
    words = latest[1] if GOLDEN_FAILED.match(latest[1]) else last_words(pods) or latest[1]
    return " ".join(words.split())[:500] or ("is being started" if pods else "has no pods yet")


def last_words(pods: Sequence[Object]) -> str:
    """How the server of a pod that is not ready ended by itself, the latest; empty where none has. The cluster's own
    word for it is that it waits before it starts the container again."""
    latest: tuple[float, str] = (0.0, "")
    for status in (container_of(pod) for pod in pods if not takes_requests(pod)):
        for state in ("lastState", "state"):
            end = outcome_of({"state": (status or {}).get(state) or {}})
            is_own = end is not None and (end.said is None or end.said.ended_by in ("failure", None))
            if end is not None and is_own and end.message:
                latest = max(latest, (end.ended or 0.0, end.message))
    return latest[1]


def failure_of(client: Client, body: Object) -> str | None:
    """Why a version will never take requests; None where nothing is known against it."""
    if phase_of(body) in ("ready", "stopping"):
        return None
    name, version = body["metadata"]["labels"][NAME], record_of(body).version
    reason = trouble_of(client, name, version)
    if GOLDEN_FAILED.match(reason):
        return reason
    starts = failed_starts(body, pods_of(client, name, version))
    return f"{starts} starts failed; the last: {reason}" if starts >= MOST_FAILURES else None
