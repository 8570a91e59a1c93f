"""What the tests of preflight, waiting and explain share: a client, jobs from fields, pods and Jobs that go wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from longboat.core.jobs import Job
from longboat.engines.kubernetes.explain.containers import StartTrouble
from longboat.engines.kubernetes.explain.pending import PendingFacts, event_time, troubles
from longboat.kubeapi import kinds
from longboat.kubeapi.client import Client
from longboat.specs.read import read_job
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl

Object = dict[str, Any]
T = TypeVar("T")

IMAGE = "longboat.test/python:latest"
LONG_S = 300.0
"""No test waits longer for what must happen; how long it takes is no matter of these tests."""


@contextmanager
def opened(cluster: Cluster, namespace: str, kubeconfig: Path | None = None) -> Iterator[Client]:
    variables = {"KUBECONFIG": str(kubeconfig or cluster.kubeconfig)}
    with Client.open(namespace=namespace, environment=variables) as client:
        yield client


def job_of(tmp_path: Path, **fields: object) -> Job:
    given = {"name": "job", "run": ["python3", "train.py"], "image": IMAGE, **fields}
    return read_job([], fields=given, environment={}, cwd=tmp_path).job


def pod(name: str, command: list[str] | None = None, *, image: str = IMAGE, **spec: Any) -> Object:
    """A pod as the engine makes them, as far as these tests go: one container `main`, never restarted."""
    container: Object = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent"}
    container.update({"resources": spec.pop("resources", {}), "command": command or ["python3", "-c", "pass"]})
    for key in ("env", "volumeMounts", "securityContext"):
        if key in spec:
            container[key] = spec.pop(key)
    labels = {"longboat.dev/run": name, "longboat.dev/role": "worker", "longboat.dev/attempt": "0"}
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {**labels, **index}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [container],
            **spec,
        },
    }


def indexed_job(name: str, *, nodes: int = 1, suspend: bool = False, **spec: Any) -> Object:
    template = pod(name, **spec)
    labels = {**template["metadata"]["labels"]}
    labels.pop("batch.kubernetes.io/job-completion-index")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 0,
            "suspend": suspend,
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


def apply(kubectl: Kubectl, *bodies: Object) -> None:
    kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)}))


def until(what: str, ask: Callable[[], T | None], within_s: float = LONG_S) -> T:
    """The first answer that says something."""
    deadline = time.monotonic() + within_s
    while True:
        found = ask()
        if found:
            return found
        assert time.monotonic() < deadline, f"never happened: {what}; last seen: {found!r}"
        time.sleep(0.1)


def see(client: Client, run: str, *, nodes: int = 1, is_gated: bool = False, **more: Any) -> PendingFacts:
    """Everything about the pods of one run, as `explain` reads it."""
    labels = f"longboat.dev/run={run}"
    jobs = client.list(kinds.JOB, labels=labels).items
    mine = client.list(kinds.POD, labels=labels).items
    return PendingFacts(
        pods=tuple(mine),
        jobs=tuple(jobs),
        events=tuple(sorted(client.list(kinds.EVENT).items, key=event_time)),
        nodes=tuple(client.list(kinds.NODE).items),
        others=tuple(client.list(kinds.POD, everywhere=True, fields="spec.nodeName!=").items),
        claims=tuple(client.list(kinds.PVC).items),
        owners=tuple(str(one["metadata"]["uid"]) for one in jobs),
        nodes_wanted=nodes,
        is_gated=is_gated,
        now=time.time(),
        **more,
    )


def trouble(client: Client, run: str, *words: str, **more: Any) -> StartTrouble:
    """The trouble whose words these are, once it is told."""

    def found() -> StartTrouble | None:
        told = troubles(see(client, run, **more))
        return next((one for one in told if all(word in one.what for word in words)), None)

    return until(f"{run} says {words}", found)


def user_config(
    cluster: Cluster, kubectl: Kubectl, namespace: str, folder: Path, rules: list[Object], name: str = "somebody"
) -> Path:
    """A kubeconfig of somebody who may do only this in the namespace."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    apply(
        kubectl,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "subjects": [subject],
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        },
    )
    token = kubectl("create", "token", name).strip()
    target = folder / f"{name}.kubeconfig"
    shown = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    shown["users"] = [{"name": name, "user": {"token": token}}]
    shown["contexts"][0]["context"]["user"] = name
    target.write_text(json.dumps(shown))
    return target
