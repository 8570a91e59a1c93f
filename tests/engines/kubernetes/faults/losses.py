"""Ways to lose a node of the cluster, and ways in which a run is driven meanwhile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from longboat.core.runs import RunStatus
from testbed import api, faults
from tests.engines.kubernetes.controlling import controlled
from tests.engines.kubernetes.faults.grounds import LONG_S, Ground

LOST = "25s"
"""The testbed's node controller says Unknown after 20 s, and tests need not take much longer than that."""

APART = {
    "spec": {
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchExpressions": [{"key": "longboat.dev/run", "operator": "Exists"}]},
                        },
                    }
                ]
            }
        }
    }
}
"""Pods of runs share a machine only where there is no other."""


def prepare(ground: Ground, pod: Mapping[str, Any], **settings: Any) -> None:
    """Two machines that are well, and an engine that puts pods on them in this way."""
    ground.until(lambda: len(_ready_nodes(ground)) == 2, "both nodes are ready, whatever the test before did to them")
    ground.configure(pod=pod, **settings)
    ground.engine = ground.open()


def start_apart(ground: Ground, lost: str = LOST, **fields: Any) -> None:
    """A gang of two, on two machines."""
    prepare(ground, APART, node_lost=lost)
    ground.submit(**{"nodes": 2, "retries": {"count": 1, "backoff": "0s"}, **fields})
    ground.until_started(ranks=2)
    assert set(hosts(ground).values()) == {"node-0", "node-1"}


def _ready_nodes(ground: Ground) -> list[str]:
    """Those that the scheduler uses: ready, and no taint left of a time when they were not."""
    ground.api.close()
    items = ground.api.items(api.path_of("Node", "v1"))
    conditions = {
        item["metadata"]["name"]: {one["type"]: one["status"] for one in item["status"].get("conditions", ())}
        for item in items
        if not item["spec"].get("taints")
    }
    return [name for name, states in conditions.items() if states.get("Ready") == "True"]


def pods(ground: Ground) -> list[dict[str, Any]]:
    ground.api.close()  # one that was silent for a minute is closed by the other side
    return ground.api.items(api.path_of("Pod", "v1", ground.namespace))


def hosts(ground: Ground) -> dict[str, str]:
    return {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in pods(ground)}


def unfinished(ground: Ground, attempt: int) -> list[str]:
    """Pods of an attempt that have not ended. One that did may stay, with its log."""
    return [
        item["metadata"]["name"]
        for item in pods(ground)
        if f"-a{attempt}-" in item["metadata"]["name"] and item["status"].get("phase") not in ("Succeeded", "Failed")
    ]


@contextlib.contextmanager
def kubelet_killed(ground: Ground) -> Iterator[None]:
    """The ranks work on, and the launchers still hear each other."""
    faults.kill(ground.cluster, "node-1-kubelet")
    try:
        yield
    finally:
        faults.start(ground.cluster, "node-1-kubelet")


@contextlib.contextmanager
def switched_off(ground: Ground) -> Iterator[None]:
    faults.switch_off(ground.cluster, 1)
    yield


@contextlib.contextmanager
def cut_off(ground: Ground) -> Iterator[None]:
    with faults.cut_off(ground.cluster, 1):
        yield


@contextlib.contextmanager
def deleted(ground: Ground) -> Iterator[None]:
    """Its machine works on, until its kubelet notices that the pods are not in the cluster any more."""
    ground.api.delete(api.path_of("Node", "v1", name="node-1"))
    try:
        yield
    finally:
        faults.restart(ground.cluster, "node-1-kubelet")


@contextlib.contextmanager
def off_and_deleted(ground: Ground) -> Iterator[None]:
    """As a cloud does."""
    faults.switch_off(ground.cluster, 1)
    ground.api.delete(api.path_of("Node", "v1", name="node-1"))
    yield


@contextlib.contextmanager
def off_with_the_control_plane(ground: Ground) -> Iterator[None]:
    faults.switch_off(ground.cluster, 1)
    for part in ("controller-manager", "apiserver"):
        faults.kill(ground.cluster, part)
    for part in ("apiserver", "controller-manager"):
        faults.start(ground.cluster, part)
    yield


FAULTS: dict[str, Callable[[Ground], contextlib.AbstractContextManager[None]]] = {
    one.__name__: one
    for one in (kubelet_killed, switched_off, cut_off, deleted, off_and_deleted, off_with_the_control_plane)
}


@contextlib.contextmanager
def driven(ground: Ground, how: str) -> Iterator[list[RunStatus]]:
    """Who looks after the run: a client that waits, the controller, or a client that comes later."""
    ended: list[RunStatus] = []
    if how == "controller":
        said: list[str] = []
        with controlled(ground.environment, ground.namespace, said):
            yield ended
        return

    def wait() -> None:
        engine = ground.open()
        ended.append(engine.wait("job", timeout_s=LONG_S))
        engine.close()

    waiting = threading.Thread(target=wait, daemon=True)
    if how == "attached":
        waiting.start()
    yield ended
    if how != "attached":
        waiting.start()
    waiting.join(LONG_S)
