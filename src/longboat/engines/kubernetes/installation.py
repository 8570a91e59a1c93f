"""Puts the controller's objects into a cluster and takes them out again. What they are is in `installing`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from longboat.core.errors import EngineError
from longboat.engines.kubernetes.api.client import Client
from longboat.engines.kubernetes.api.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEPLOYMENT,
    LEASE,
    NAMESPACE,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    kind_of,
)
from longboat.engines.kubernetes.installing import HOME, LABELS, served_namespace
from longboat.engines.kubernetes.lease import CONTROLLER, GATE
from longboat.engines.kubernetes.names import selector
from longboat.engines.kubernetes.observe import find_record, read_record

Object = dict[str, Any]

OURS = selector(sorted(LABELS.items()))
GONE_S = 120.0


def install(client: Client, objects: Sequence[Object], *, timeout_s: float) -> Iterator[str]:
    """Apply all of them, then wait until the controller works. Yields what was applied."""
    _check_scope(client, objects)
    for each in objects:
        client.apply(each)
        yield _shown(each)
    deadline = time.monotonic() + timeout_s
    while not _is_ready(client.get(DEPLOYMENT, CONTROLLER, namespace=HOME)):
        if time.monotonic() > deadline:
            hint = f"kubectl -n {HOME} describe pods; `longboat install --remove` takes it out again"
            raise EngineError(f"the controller is not ready after {timeout_s:g} s: {_why(client)}", hint=hint)
        time.sleep(0.2)


def _check_scope(client: Client, objects: Sequence[Object]) -> None:
    """One controller in a cluster: one that serves another scope is not replaced by accident."""
    found = client.find(DEPLOYMENT, CONTROLLER, namespace=HOME)
    wanted = next(served_namespace(each) for each in objects if each["kind"] == DEPLOYMENT.kind)
    if found is None or served_namespace(found) == wanted:
        return
    serves = served_namespace(found)
    told = f"namespace {serves}" if serves else "all namespaces"
    raise EngineError(
        f"a controller that serves {told} is installed already", hint="`longboat install --remove` takes it out first"
    )


def uninstall(client: Client) -> Iterator[str]:
    """Remove whatever `install` made, for whichever scope, and wait until it is gone. Yields what was there."""
    kinds = (DEPLOYMENT, ROLE_BINDING, ROLE, CLUSTER_ROLE_BINDING, CLUSTER_ROLE, SERVICE_ACCOUNT, NAMESPACE)
    for kind in kinds:
        for each in client.list(kind, everywhere=True, labels=OURS).items:
            named = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": each["metadata"]}
            place = each["metadata"].get("namespace")
            client.delete(kind, each["metadata"]["name"], namespace=place, propagation="Foreground")
            yield _shown(named)
            if kind == DEPLOYMENT:
                _wait_for_pods(client)
    deadline = time.monotonic() + GONE_S
    while client.find(NAMESPACE, HOME) is not None:
        if time.monotonic() > deadline:
            raise EngineError(f"namespace {HOME} is still there after {GONE_S:g} s", hint=f"kubectl describe ns {HOME}")
        time.sleep(0.1)
    # What a controller that was killed held on to; whoever else serves a gate makes its Lease again.
    for each in client.list(LEASE, everywhere=True, fields=f"metadata.name={GATE}").items:
        if CONTROLLER in str((each.get("spec") or {}).get("holderIdentity")):
            client.delete(LEASE, GATE, namespace=each["metadata"]["namespace"], uid=each["metadata"]["uid"])


def _wait_for_pods(client: Client) -> None:
    """It lets go of its Lease and of the gate while it still may."""
    deadline = time.monotonic() + GONE_S
    while client.list(POD, namespace=HOME, labels=OURS).items and time.monotonic() < deadline:
        time.sleep(0.1)


def is_installed(client: Client, namespace: str) -> bool | None:
    """Whether a controller that is installed in this cluster serves the namespace; None: that cannot be seen."""
    try:
        found = client.find(DEPLOYMENT, CONTROLLER, namespace=HOME)
    except EngineError:
        return None
    return found is not None and _is_ready(found) and served_namespace(found) in (None, namespace)


def unattended(client: Client, run: str) -> str | None:
    """What nobody will do for a run that is left alone where no controller works; None: nothing is missing."""
    record, state = read_record(find_record(client, run))
    if state.is_final:
        return None
    waits = record.gated_by == "longboat" and state.gate.let_in is None
    can_retry = record.job.retries.count > state.attempt
    if not (waits or can_retry) or is_installed(client, record.namespace) is not False:
        return None
    lacks = f"lets {run} in" if waits else f"restarts {run} after a failure"
    lacks += " or restarts it after a failure" if waits and can_retry else ""
    return f"nobody {lacks} while no command looks at it: this cluster has no controller"


def _is_ready(deployment: Object) -> bool:
    status, wanted = deployment.get("status") or {}, (deployment.get("spec") or {}).get("replicas", 1)
    is_seen = status.get("observedGeneration") == deployment["metadata"].get("generation")
    numbers = [status.get(key) or 0 for key in ("availableReplicas", "updatedReplicas")]
    return bool(is_seen and wanted and min(numbers) >= wanted)


def _why(client: Client) -> str:
    for pod in client.list(POD, namespace=HOME, labels=OURS).items:
        status = pod.get("status") or {}
        for one in status.get("containerStatuses") or []:
            waiting = (one.get("state") or {}).get("waiting") or (one.get("lastState") or {}).get("terminated")
            if waiting:
                return f"{waiting.get('reason', '')} {waiting.get('message', '')}".strip()
        for condition in status.get("conditions") or []:
            if condition.get("status") == "False" and condition.get("message"):
                return str(condition["message"])
    return "its pod does not exist"


def _shown(body: Object) -> str:
    meta = body["metadata"]
    place = f"{meta['namespace']}/" if meta.get("namespace") and kind_of(body).is_namespaced else ""
    return f"{body['kind']} {place}{meta['name']}"
