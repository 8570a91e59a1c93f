"""Installs the controller's objects into a cluster and uninstalls them. What they are is in `controller_manifests`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from longboat.core.errors import EngineError
from longboat.engines.kubernetes.install.autoscaler_manifests import AUTOSCALER
from longboat.engines.kubernetes.install.controller_manifests import HOME, served_namespaces
from longboat.engines.kubernetes.install.dashboard_manifests import DASHBOARD
from longboat.engines.kubernetes.install.dashboard_manifests import LABELS as DASHBOARD_LABELS
from longboat.engines.kubernetes.names import selector
from longboat.engines.kubernetes.record_store import find_record, read_record
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    DEPLOYMENT,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    kind_of,
)
from longboat.kubeapi.leases import CONTROLLER, GATE, MANAGED_BY

Object = dict[str, Any]

OURS = f"{selector(list(MANAGED_BY.items()))},app.kubernetes.io/name in ({CONTROLLER},{AUTOSCALER},{DASHBOARD})"
CORDONED, DELETING = "longboat.dev/cordoned-at", "longboat.dev/deleting-at"
"""The autoscaler's marks on nodes: out of use by it, and on the way out for good."""
GONE_S = 120.0  # a namespace goes when its last pod has: 30 s of grace, and a slow node


def install(client: Client, objects: Sequence[Object], *, timeout_s: float, is_chosen: bool = True) -> Iterator[str]:
    """Apply all of them, take away rights of an earlier installation, then wait until what they deploy works. Yields
    what was applied. `is_chosen`: the namespaces were named, and did not just follow from the context.
    """
    if not is_chosen:
        _check_scope(client, objects)
    _check_namespaces(client, objects)
    for each in objects:
        if (each["kind"], each["metadata"]["name"]) == (DEPLOYMENT.kind, DASHBOARD):
            make_token(client)
        client.apply(each)
        yield _shown(each)
    _withdraw(client, objects)
    deadline = time.monotonic() + timeout_s
    for name in [each["metadata"]["name"] for each in objects if each["kind"] == DEPLOYMENT.kind]:
        while not is_rolled_out(client.get(DEPLOYMENT, name, namespace=HOME)):
            if time.monotonic() > deadline:
                part = name.removeprefix("longboat-")
                reason = why_not_ready(client, HOME, f"app.kubernetes.io/name={name}")
                hint = f"kubectl -n {HOME} describe pods; `longboat install --remove` takes it out again"
                raise EngineError(f"the {part} is not ready after {timeout_s:g} s: {reason}", hint=hint)
            time.sleep(0.2)


def _check_scope(client: Client, objects: Sequence[Object]) -> None:
    """One controller in a cluster: one that serves other namespaces is not taken away from them by accident."""
    deployment = find_controller(client)
    wanted = next(served_namespaces(each) for each in objects if each["kind"] == DEPLOYMENT.kind)
    if deployment is None or served_namespaces(deployment) == wanted:
        return
    serves = served_namespaces(deployment)
    scope = f"namespace {', '.join(serves)}" if serves else "all namespaces"
    keeps = f"--only {','.join(serves)}" if serves else "--all-namespaces"
    raise EngineError(
        f"a controller that serves {scope} is installed already",
        hint=f"{keeps} keeps that, --only {','.join(wanted or ())} makes it serve that instead",
    )


def _check_namespaces(client: Client, objects: Sequence[Object]) -> None:
    """A namespace that is not there is a slip of the pen, and half an installation would be left."""
    served = {each["metadata"]["namespace"] for each in objects if each["kind"] == ROLE_BINDING.kind} - {HOME}
    missing = [name for name in sorted(served) if client.find(NAMESPACE, name) is None]
    if missing:
        raise EngineError(f"there is no namespace {', '.join(missing)}", hint=f"kubectl create namespace {missing[0]}")


def _withdraw(client: Client, objects: Sequence[Object]) -> None:
    """Rights that an earlier installation gave and this one does not."""
    wanted = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects}
    installed = [CONTROLLER, *([DASHBOARD] if (DEPLOYMENT.kind, HOME, DASHBOARD) in wanted else [])]
    own = f"{selector(list(MANAGED_BY.items()))},app.kubernetes.io/name in ({','.join(installed)})"
    for kind in (ROLE_BINDING, ROLE, CLUSTER_ROLE_BINDING):
        for each in client.list(kind, everywhere=True, labels=own).items:
            meta = each["metadata"]
            if (kind.kind, meta.get("namespace"), meta["name"]) not in wanted:
                client.delete(kind, meta["name"], namespace=meta.get("namespace"), uid=meta["uid"])


def make_token(client: Client) -> None:
    """The dashboard's token, once: it is in its Secret alone, and stays when the dashboard is installed again."""
    if client.find(SECRET, DASHBOARD, namespace=HOME) is None:
        meta = {"name": DASHBOARD, "namespace": HOME, "labels": DASHBOARD_LABELS}
        body = {"apiVersion": SECRET.api_version, "kind": SECRET.kind, "metadata": meta, "type": "Opaque"}
        client.create({**body, "stringData": {"token": secrets.token_urlsafe(32)}})


def uninstall(client: Client) -> Iterator[str]:
    """Remove whatever `install` made, for whichever scope, and wait until it is gone. Yields what was there."""
    roles = (ROLE_BINDING, ROLE, CLUSTER_ROLE_BINDING, CLUSTER_ROLE)
    for kind in (DEPLOYMENT, *roles, CONFIG_MAP, SERVICE_ACCOUNT, SERVICE, SECRET, NAMESPACE):
        bodies = client.list(kind, everywhere=True, labels=OURS).items
        for each in bodies:
            named = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": each["metadata"]}
            place = each["metadata"].get("namespace")
            client.delete(kind, each["metadata"]["name"], namespace=place, propagation="Foreground")
            yield _shown(named)
        if kind == DEPLOYMENT and bodies:
            _wait_for_pods(client)
            if AUTOSCALER in [each["metadata"]["name"] for each in bodies]:
                lift_cordons(client)
    deadline = time.monotonic() + GONE_S
    while client.find(NAMESPACE, HOME) is not None:
        if time.monotonic() > deadline:
            raise EngineError(f"namespace {HOME} is still there after {GONE_S:g} s", hint=f"kubectl describe ns {HOME}")
        time.sleep(0.1)
    release_gates(client)


def release_gates(client: Client) -> None:
    """What a controller that was killed held on to; whoever else serves a gate makes its Lease again."""
    for each in client.list(LEASE, everywhere=True, fields=f"metadata.name={GATE}").items:
        if CONTROLLER in str((each.get("spec") or {}).get("holderIdentity")):
            client.delete(LEASE, GATE, namespace=each["metadata"]["namespace"], uid=each["metadata"]["uid"])


def _wait_for_pods(client: Client) -> None:
    """Wait until the pods are gone: they release their Leases while they still have the rights."""
    deadline = time.monotonic() + GONE_S
    while client.list(POD, namespace=HOME, labels=OURS).items and time.monotonic() < deadline:
        time.sleep(0.1)


def lift_cordons(client: Client) -> None:
    """Uncordon nodes that the autoscaler was about to drain: without it they would stay cordoned."""
    for node in client.list(NODE).items:
        marks = node["metadata"].get("annotations") or {}
        if CORDONED in marks and DELETING not in marks and (node.get("spec") or {}).get("unschedulable"):
            lifted = {"metadata": {"annotations": {CORDONED: None}}, "spec": {"unschedulable": None}}
            client.patch(NODE, node["metadata"]["name"], lifted)


def lease_namespace(client: Client) -> str:
    """Namespace of the Leases: that of the installation, else the client's own."""
    try:
        return HOME if client.find(NAMESPACE, HOME) is not None else client.namespace
    except ApiError:
        return HOME


def find_controller(client: Client) -> Object | None:
    """The Deployment that `longboat install` made, if it did."""
    return client.find(DEPLOYMENT, CONTROLLER, namespace=HOME)


def absence(deployment: Object | None, namespace: str) -> tuple[str, str] | None:
    """Why no controller serves the namespace, and what helps; None: one does. Pure."""
    if deployment is None:
        return "this cluster has no controller", "`longboat install --image IMAGE` puts a controller there"
    if not _is_ready(deployment):
        return "the controller of this cluster is not ready", f"`kubectl -n {HOME} describe pods` says why it is not"
    served = served_namespaces(deployment)
    if served is None or namespace in served:
        return None
    wider = f"`longboat install --image IMAGE --only {','.join((*served, namespace))}` has it serve this one too"
    return f"the controller of this cluster does not serve namespace {namespace}", wider


def without_controller(client: Client, run: str) -> tuple[str, str] | None:
    """What a detached run lacks without a controller (admission, retries), and the hint; None: nothing."""
    record, state = read_record(find_record(client, run))
    if state.is_final:
        return None
    waits = record.gated_by == "longboat" and state.gate.let_in is None
    can_retry = record.job.retries.last_attempt > state.attempt
    if not (waits or can_retry):
        return None
    try:
        lacking = absence(find_controller(client), client.namespace)
    except EngineError:
        return None
    if lacking is None:
        return None
    lacks = f"lets {run} in" if waits else f"restarts {run} after a failure"
    lacks += " or restarts it after a failure" if waits and can_retry else ""
    return f"nobody {lacks} while no command looks at it: {lacking[0]}", lacking[1]


def _is_ready(deployment: Object) -> bool:
    status, wanted = deployment.get("status") or {}, (deployment.get("spec") or {}).get("replicas", 1)
    is_seen = status.get("observedGeneration") == deployment["metadata"].get("generation")
    numbers = [status.get(key) or 0 for key in ("availableReplicas", "updatedReplicas")]
    return bool(is_seen and wanted and min(numbers) >= wanted)


def is_rolled_out(deployment: Object) -> bool:
    """Whether the rollout is complete: ready, and no pod of an earlier revision left."""
    status = deployment.get("status") or {}
    return _is_ready(deployment) and status.get("replicas") == status.get("updatedReplicas")


def why_not_ready(client: Client, namespace: str, labels: str) -> str:
    """What keeps the first pod of these labels that says so from being ready."""
    for pod in client.list(POD, namespace=namespace, labels=labels).items:
        status = pod.get("status") or {}
        for container in status.get("containerStatuses") or []:
            ended = (container.get("lastState") or {}).get("terminated") or {}
            waiting = (container.get("state") or {}).get("waiting") or ended
            if waiting:
                words = ended.get("message") or waiting.get("message") or ""
                return f"{waiting.get('reason', '')} {_last_words(words)}".strip()
        for condition in status.get("conditions") or []:
            if condition.get("status") == "False" and condition.get("message"):
                return str(condition["message"])
    return "its pod does not exist"


def _last_words(text: str) -> str:
    """The error of a program that has ended, without the lines before and the hint after it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return " ".join((errors or lines)[-1:])


def _shown(body: Object) -> str:
    meta = body["metadata"]
    place = f"{meta['namespace']}/" if meta.get("namespace") and kind_of(body).is_namespaced else ""
    return f"{body['kind']} {place}{meta['name']}"
