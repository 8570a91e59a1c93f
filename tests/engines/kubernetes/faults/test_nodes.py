"""Machines that leave the cluster under running gangs: the run is tried again elsewhere, and nothing runs twice."""

from __future__ import annotations

import os
import signal

import pytest

from testbed import api, faults, namespaces
from tests.engines.kubernetes.faults.grounds import Ground

pytestmark = [pytest.mark.pods, pytest.mark.soak, pytest.mark.xdist_group("own-cluster")]

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


def start_apart(ground: Ground) -> None:
    """A gang of two, on two machines."""
    ground.configure(pod=APART)
    ground.engine = ground.open()
    ground.submit(nodes=2, retries={"count": 1, "backoff": "0s"})
    ground.until_started(ranks=2)
    assert set(hosts(ground).values()) == {"node-0", "node-1"}


def hosts(ground: Ground) -> dict[str, str]:
    ground.api.close()  # one that was silent for a minute is closed by the other side
    items = ground.api.items(api.path_of("Pod", "v1", ground.namespace))
    return {item["metadata"]["name"]: item["spec"]["nodeName"] for item in items}


def check_retried_elsewhere(ground: Ground, causes: tuple[str, ...]) -> None:
    ground.let_go(1)
    ended = ground.wait()
    assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("succeeded", 0, 2), ended.reason
    failure = ended.attempts[0].failure
    assert failure is not None and failure.cause in causes, failure
    second = {host for pod, host in hosts(ground).items() if "-a1-" in pod}
    assert second == {"node-0"}
    ground.check_book(ranks=2, attempts=2)
    ground.remove()


def test_a_node_is_deleted_under_a_running_gang(own_ground: Ground) -> None:
    """Its machine works on, until its kubelet notices that the pods are not in the cluster any more."""
    start_apart(own_ground)
    own_ground.api.delete(api.path_of("Node", "v1", name="node-1"))
    try:
        check_retried_elsewhere(own_ground, ("preemption", "lost"))
    finally:
        faults.restart(own_ground.cluster, "node-1-kubelet")


def test_a_machine_dies_under_a_running_gang(own_ground: Ground) -> None:
    """With everything on it; then somebody takes it out of the cluster, as a cloud does."""
    start_apart(own_ground)
    holder = namespaces.holder_of(own_ground.cluster, "node-1")
    assert holder is not None
    os.kill(holder, signal.SIGKILL)
    own_ground.api.delete(api.path_of("Node", "v1", name="node-1"))
    check_retried_elsewhere(own_ground, ("lost",))
