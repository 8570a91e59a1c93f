"""Pods that speak as a launcher does: lines on their log in its format, the same bytes in files, a plan beside them.

They stand for a run's pods where the test is about reading them. What they say is a small Python program of the test's,
which has `say(rank, stream, text, newline=True)`.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from longboat.core.jobs import Job, Role
from longboat.core.runs import LogLine, LogQuery
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.logs.merge import RunLogs
from longboat.engines.kubernetes.observe.snapshot import FAILURES, PodView, RunSnapshot, pod_view
from longboat.engines.kubernetes.records import Record, State
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import AlreadyExists, Unreachable
from longboat.kubeapi.kinds import CONFIG_MAP, POD, VOLUME
from testbed.clusters import Cluster

IMAGE = "longboat.test/python:latest"
LONG_S = 120.0

SPEAKER = r"""
import json, os, struct, sys, time
NODE = "/longboat/node"
os.makedirs(NODE + "/logs", exist_ok=True)
os.makedirs(NODE + "/work", exist_ok=True)
counts, files = {}, {}

def say(rank, stream, text, newline=True):
    key = "%s.%s" % (rank, stream)
    data = text if isinstance(text, bytes) else text.encode()
    now = time.time_ns()
    seq = counts.get(key, 0)
    counts[key] = seq + 1
    if key not in files:
        files[key] = (open(NODE + "/logs/" + key, "ab", 0), open(NODE + "/logs/" + key + ".idx", "ab", 0))
    log, index = files[key]
    log.write(data + (b"\n" if newline else b""))
    index.write(struct.pack("<QQ", log.tell(), now))
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9)) + ".%06dZ" % (now // 1000 % 10**6)
    guard = data.endswith(b"\r")
    head = "%s%s%s %d %s " % (key, "" if newline else "~", "^" if guard else "", seq, stamp)
    sys.stdout.buffer.write(head.encode() + data + (b"|" if guard else b"") + b"\n")
    sys.stdout.buffer.flush()

def until(name):
    while not os.path.exists(NODE + "/" + name):
        time.sleep(0.05)
"""


@contextmanager
def client_of(cluster: Cluster, namespace: str, *, kubeconfig: object = None) -> Iterator[Client]:
    environment = {"KUBECONFIG": str(kubeconfig or cluster.kubeconfig)}
    with Client.open(namespace=namespace, environment=environment) as client:
        yield client


def record_of(namespace: str, *roles: Role, **fields: Any) -> Record:
    given = roles or (Role(name="worker", run="true"),)
    job = Job(name="train", roles=given, ends=tuple(role.name for role in given))
    defaults: dict[str, Any] = {
        "name": "train",
        "uid": "0123456789abcdef",
        "job": job,
        "namespace": namespace,
        "created": time.time(),
        "user": "anna",
        "images": {role.name: IMAGE for role in given},
        "checkpoint_dir": "/longboat/node/checkpoints",
        "artifacts_dir": "/longboat/node/artifacts",
    }
    return Record(**{**defaults, **fields})


def role(name: str = "worker", **fields: Any) -> Role:
    return Role(name=name, run="true", **fields)


def speak(client: Client, program: str, *, node: str = "worker-0", attempt: int = 0, **spec: Any) -> str:
    """Start a pod of the run `train`; its name. `successor`: so many of its index had failed before it."""
    kind, _, index = node.rpartition("-")
    successor = spec.pop("successor", 0)
    name = f"train-a{attempt}-{node}" + (f"-{successor}" if successor else "")
    labels = {
        names.MANAGED_BY: "longboat",
        names.RUN: "train",
        names.ROLE: kind,
        names.ATTEMPT: str(attempt),
        names.INDEX: index,
    }
    storage = spec.pop("storage", None)
    mounts = [{"name": "node", "mountPath": "/longboat/node"}]
    volumes: list[dict[str, Any]] = [{"name": "node", "emptyDir": {}}]
    if storage is not None:
        mounts.append({"name": "storage", "mountPath": "/longboat/storage"})
        volumes.append({"name": "storage", **storage})
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", SPEAKER + program],
        "env": [{"name": "FROM_POD", "value": "yes"}],
        "volumeMounts": mounts,
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": client.namespace,
            "labels": labels,
            "annotations": {FAILURES: str(successor)},
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": volumes,
            **spec,
        },
    }
    if storage is not None:
        vouch(client, storage)
    client.create(body)
    return name


def vouch(client: Client, storage: dict[str, Any]) -> None:
    """The record of the run and a Job of its with this storage: what nobody's Job mounts is not read for anybody."""
    meta = {"name": "train", "namespace": client.namespace}
    record = client.find(CONFIG_MAP, "train") or client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    )
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "train", "uid": record["metadata"]["uid"]}
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": IMAGE}],
        "volumes": [{"name": "storage", **storage}],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**meta, "labels": {names.RUN: "train"}, "ownerReferences": [owner]},
        "spec": {"suspend": True, "template": {"spec": spec}},
    }
    with contextlib.suppress(AlreadyExists):
        client.create(job)


def views(client: Client) -> list[PodView]:
    return [pod_view(pod) for pod in client.list(POD, labels=names.pods_of("train")).items]


def until(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)


def until_running(client: Client, count: int = 1) -> list[PodView]:
    until(f"{count} pods run", lambda: sum(view.is_running for view in views(client)) >= count)
    return views(client)


def until_ended(client: Client, count: int = 1) -> None:
    until(f"{count} pods have ended", lambda: sum(view.end is not None for view in views(client)) >= count)


def state_of(client: Client, *, expected: int = 1) -> State:
    """What an engine would say: ended when so many pods have."""
    found = views(client)
    attempt = max((view.attempt for view in found), default=0)
    if len(found) >= expected and all(view.end is not None for view in found):
        return State(phase="succeeded", started=1.0, attempt=attempt)
    return State(phase="running", started=1.0, attempt=attempt)


def follow_logs(
    client: Client, record: Record, query: LogQuery, look: Callable[[], State], on_notice: Any = None
) -> Iterator[LogLine]:
    """The lines of a run whose state `look` tells."""
    state = look()
    is_followed = query.follow and not state.is_final
    with RunLogs(client, record, query, on_notice=on_notice) as logs:
        if not is_followed or query.tail is not None:
            yield from logs.past(state)
        if is_followed:
            with logs.follow(state) as live:
                while not live.is_complete:
                    if live.wants_state():
                        try:
                            live.note_state(look())
                        except Unreachable as error:
                            live.note_unreachable(error)
                    yield from live.arrived()
                yield from logs.vanished(live)


def snapshot_of(client: Client, record: Record, **state: Any) -> RunSnapshot:
    found = State(**{"phase": "running", "started": 1.0, **state})
    return RunSnapshot(record=record, state=found, uid="u", version="1", pods=tuple(views(client)))


@contextmanager
def claim(client: Client, name: str) -> Iterator[str]:
    """A claim on the node's disk, ready to be mounted."""
    volume = f"test-{secrets.token_hex(4)}"
    size = {"storage": "1Gi"}
    modes = ["ReadWriteOnce"]
    spec = {
        "capacity": size,
        "accessModes": modes,
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": volume,
        "hostPath": {"path": f"/var/lib/{volume}", "type": "DirectoryOrCreate"},
    }
    client.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec})
    try:
        asked = {"accessModes": modes, "resources": {"requests": size}, "storageClassName": volume}
        meta = {"name": name, "namespace": client.namespace}
        client.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": asked})
        yield name
    finally:
        client.delete(VOLUME, volume)
