"""PodGroups of another scheduler, on a real cluster: a kind that the cluster begins to serve is followed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from longboat.autoscaler.model.config import LoopPace
from longboat.autoscaler.model.snapshot import POOL_LABEL
from longboat.autoscaler.observe import watch
from longboat.kubeapi.kinds import Kind
from tests.autoscaler.stages import GPU, Stage, Told, wait_for

pytestmark = [pytest.mark.cluster]

POD_GROUP = Kind("PodGroup", "scheduling.x-k8s.io/v1alpha1", "podgroups")
DEFINITION = Kind(
    "CustomResourceDefinition", "apiextensions.k8s.io/v1", "customresourcedefinitions", is_namespaced=False
)
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NAME = "podgroups.scheduling.x-k8s.io"


@pytest.fixture
def definition(stage: Stage) -> Iterator[dict[str, Any]]:
    yield {
        "apiVersion": DEFINITION.api_version,
        "kind": DEFINITION.kind,
        # An unapproved group of *.k8s.io needs a word about it.
        "metadata": {"name": NAME, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {
            "group": "scheduling.x-k8s.io",
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": OPEN}}],
        },
    }
    stage.client.delete(DEFINITION, NAME)


def pod(stage: Stage, name: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1", GPU: "8"}, "limits": {GPU: "8"}}
    labels = {"scheduling.x-k8s.io/pod-group": "team"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": stage.namespace, "labels": labels},
        "spec": {
            "nodeSelector": {POOL_LABEL: stage.name("gpu")},
            "containers": [{"name": "main", "image": "x", "resources": resources}],
            "terminationGracePeriodSeconds": 0,
        },
    }


def reason(told: Told) -> str:
    return " ".join(one.reason for one in told.turns[-1].plan.waiting)


def test_a_pod_group_waits_until_its_pods_exist(
    stage: Stage, definition: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_FOR_KINDS_S", 0.2)
    pace = LoopPace(interval_s=0.5, least_s=0.05, settle_s=0.0)
    with stage.scaling(stage.config(stage.pool("gpu"), pace=pace, idle_s=3600.0)) as told:
        wait_for("it has looked", lambda: told.turns)
        stage.client.request("POST", DEFINITION.path(), body=definition)
        wait_for("it is served", lambda: stage.client.list(POD_GROUP, namespace=stage.namespace).items == [])
        meta = {"name": "team", "namespace": stage.namespace}
        body = {"apiVersion": POD_GROUP.api_version, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": 3}}
        stage.client.request("POST", POD_GROUP.path(stage.namespace), body=body)
        wait_for("the group is followed", lambda: stage.client.list(POD_GROUP, namespace=stage.namespace).items)
        before = len(told.turns)
        wait_for("some loops", lambda: len(told.turns) > before + 2)
        for number in range(2):
            stage.client.create(pod(stage, f"p-{number}"))
        wait_for("it is held", lambda: "2 of the gang's 3 pods exist" in reason(told))
        assert not stage.machines()
        stage.client.create(pod(stage, "p-2"))
        wait_for("all run", lambda: len(stage.pods("Running")) == 3)
    assert sum(result.action.count for result in told.results("grow")) == 3


def test_changes_that_come_together_are_gathered(stage: Stage) -> None:
    """Until nothing has changed for a while; what never ends changing is not waited for."""
    watcher = watch.ClusterWatcher(stage.client)
    ending = threading.Event()
    try:
        watcher.sync()

        def change_on() -> None:
            while not ending.is_set():
                watcher.wake()
                ending.wait(0.01)

        busy = threading.Thread(target=change_on)
        busy.start()
        watcher.gather(quiet_s=60.0, most_s=0.3)  # ends although changes go on
        ending.set()
        busy.join()
        stage.client.create(pod(stage, "p-0"))
        assert watcher.wait(60.0)
        watcher.gather(quiet_s=0.1, most_s=60.0)
        assert any(body["metadata"]["name"] == "p-0" for body in watcher.objects()["Pod"])
    finally:
        ending.set()
        watcher.close()
