"""Draining by the eviction API, on a real cluster: budgets hold, what must stay stops it, pods move and nodes go."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.autoscaler.act.actuator import Actuator
from longboat.autoscaler.act.drain import Evictions
from longboat.autoscaler.act.pre_delete_check import SELECTED_NODE
from longboat.autoscaler.model.config import AutoscalerConfig
from longboat.autoscaler.model.provider_settings import KwokSettings
from longboat.autoscaler.model.snapshot import CORDONED, POOL_LABEL, AutoscalerSettings
from longboat.autoscaler.model.turn import ActionResult
from longboat.autoscaler.observe.orders import DELETING, OrderStore
from longboat.autoscaler.providers.kwok import KwokProvider, node_of
from longboat.autoscaler.providers.provider import Instance
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import NODE, PDB, POD, PVC
from tests.autoscaler.stages import Stage, job_of, wait_for

pytestmark = [pytest.mark.cluster]


def replicas(stage: Stage, name: str, cpu: str, count: int = 1, selector: dict[str, str] | None = None) -> None:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    spec = {
        "containers": [container],
        "nodeSelector": selector or {POOL_LABEL: stage.name("cpu")},
        "terminationGracePeriodSeconds": 0,
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    body = {"replicas": count, "selector": {"matchLabels": {"app": name}}, "template": template}
    meta = {"name": name, "namespace": stage.namespace}
    path = f"/apis/apps/v1/namespaces/{stage.namespace}/replicasets"
    stage.client.request(
        "POST", path, body={"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": body}
    )


def remove(stage: Stage, name: str) -> None:
    path = f"/apis/apps/v1/namespaces/{stage.namespace}/replicasets/{name}"
    stage.client.request("DELETE", path, body={"propagationPolicy": "Background"})


def budget(stage: Stage, app: str, allowed: int) -> None:
    spec = {"maxUnavailable": allowed, "selector": {"matchLabels": {"app": app}}}
    meta = {"name": app, "namespace": stage.namespace}
    stage.client.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})


def node(stage: Stage, name: str) -> str:
    pool = stage.pool("cpu", machine={"gpus": 0})
    full = f"{pool.name}-{name}"
    stage.client.create(node_of(pool, Instance(id=full, pool=pool.name, node=full), KwokSettings()))
    return full


def running(stage: Stage, app: str) -> list[dict[str, Any]]:
    return [one for one in stage.pods("Running") if one["metadata"]["labels"].get("app") == app]


def cordoned(stage: Stage, name: str) -> dict[str, Any]:
    marks = {CORDONED: "2026-11-15T12:00:00Z"}
    return stage.client.patch(NODE, name, {"metadata": {"annotations": marks}, "spec": {"unschedulable": True}})


def scatter(stage: Stage) -> None:
    """Under a running autoscaler: two machines, and a small pod on the second that would fit on the first."""
    replicas(stage, "large", "20")
    replicas(stage, "filler", "12")
    wait_for("the first is full", lambda: len(stage.pods("Running")) == 2)
    replicas(stage, "other", "20")
    wait_for("a second is in use", lambda: len(stage.pods("Running")) == 3)
    replicas(stage, "small", "10")
    wait_for("the small one is there too", lambda: len(stage.pods("Running")) == 4)
    assert len(stage.nodes()) == 2
    remove(stage, "filler")
    wait_for("the first has room", lambda: len(stage.pods()) == 3)
    remove(stage, "other")


def test_pods_that_survive_it_are_moved_and_the_machine_goes(stage: Stage) -> None:
    pool = stage.pool("cpu", machine={"gpus": 0}, max=3)
    budget(stage, "small", 1)
    with stage.scaling(stage.config(pool, consolidate=True)) as told:
        scatter(stage)
        wait_for("one machine is left", lambda: len(stage.machines()) == len(stage.nodes()) == 1)
        wait_for("both run there", lambda: len(stage.pods("Running")) == 2)
    assert [result for result in told.results("drain") if not result.trouble]
    assert {one["spec"]["nodeName"] for one in stage.pods("Running")} == {stage.nodes()[0]["metadata"]["name"]}
    assert not [result for result in told.results("drain") if "stays" in result.trouble]


def test_a_node_is_replaced_by_a_cheaper_machine_that_is_ready_before_it_is_drained(stage: Stage) -> None:
    """A small pod stays behind on a machine for 10 an hour; one for 2 would do."""
    label = {"class": stage.prefix}
    dear = stage.pool("dear", price=10.0, machine={"gpus": 0, "labels": label})
    cheap = stage.pool("cheap", price=2.0, machine={"gpus": 0, "cpus": 8, "labels": label})
    with stage.scaling(stage.config(dear, cheap), KwokSettings(ready_after_s=1.0)) as told:
        replicas(stage, "large", "20", selector=label)
        wait_for("the large one runs", lambda: running(stage, "large"))
        replicas(stage, "small", "4", selector=label)
        wait_for("the small one runs beside it", lambda: running(stage, "small"))
        assert [one["metadata"]["labels"][POOL_LABEL] for one in stage.nodes()] == [dear.name]
        remove(stage, "large")
        wait_for("the dear machine is gone", lambda: {one.pool for one in stage.machines()} == {cheap.name})
        wait_for("the small one runs", lambda: running(stage, "small"))
    assert [result.action.pool for result in told.results("grow") if not result.trouble] == [dear.name, cheap.name]
    (drained,) = {index for index, turn in enumerate(told.turns) for result in turn.results if is_drain(result)}
    ready = {node.pool for node in told.turns[drained].snapshot.nodes if node.is_ready}
    assert ready >= {dear.name, cheap.name}, "the new one was there before anything was moved"


def is_drain(result: ActionResult) -> bool:
    return result.action.kind == "drain" and not result.trouble


def test_a_budget_without_room_holds(stage: Stage) -> None:
    name = node(stage, "one")
    replicas(stage, "web", "1")
    budget(stage, "web", 0)
    wait_for("it runs", lambda: running(stage, "web"))
    wait_for("the budget has counted it", lambda: budget_status(stage)["currentHealthy"] == 1)
    before = running(stage, "web")[0]["metadata"]["uid"]
    trouble = Evictions(stage.client, AutoscalerSettings()).drain(cordoned(stage, name), stage.client.now())
    assert "is not evicted yet" in trouble and "disruption budget" in trouble
    assert running(stage, "web")[0]["metadata"]["uid"] == before


def budget_status(stage: Stage) -> dict[str, Any]:
    return dict(stage.client.get(PDB, "web", namespace=stage.namespace).get("status") or {"currentHealthy": 0})


def test_one_training_pod_keeps_all_pods_of_its_node(stage: Stage) -> None:
    name = node(stage, "one")
    replicas(stage, "web", "1")
    stage.client.create(job_of("train", stage.namespace, {POOL_LABEL: stage.name("cpu")}, 0))
    wait_for("both run", lambda: len(stage.pods("Running")) == 2)
    before = {one["metadata"]["uid"] for one in stage.pods()}
    evictions = Evictions(stage.client, AutoscalerSettings())
    assert "training pod" in evictions.drain(cordoned(stage, name), stage.client.now())
    assert {one["metadata"]["uid"] for one in stage.pods()} == before


def test_nothing_is_drained_without_our_cordon(stage: Stage) -> None:
    name = node(stage, "one")
    replicas(stage, "web", "1")
    wait_for("it runs", lambda: running(stage, "web"))
    evictions = Evictions(stage.client, AutoscalerSettings())
    assert evictions.drain(stage.client.get(NODE, name), 0.0) == "our cordon was lifted"
    by_hand = stage.client.patch(NODE, name, {"spec": {"unschedulable": True}})
    assert evictions.drain(by_hand, 0.0) == "our cordon was lifted"
    assert evictions.drain(cordoned(stage, name), 0.0) == ""
    gone = running(stage, "web")
    wait_for("it was evicted", lambda: not gone or stage.client.find(POD, gone[0]["metadata"]["name"]) is None)


def begun(stage: Stage, config: AutoscalerConfig) -> str:
    """A node whose deletion had begun when its autoscaler died."""
    with stage.scaling(config):
        stage.job("first", run_for="0.1s")
        wait_for("it has ended", lambda: stage.is_done("first"))
    (node,) = stage.nodes()
    marks = {CORDONED: "2026-11-15T12:00:00Z", DELETING: "2026-11-15T12:00:00Z"}
    name = str(node["metadata"]["name"])
    stage.client.patch(NODE, name, {"metadata": {"annotations": marks}, "spec": {"unschedulable": True}})
    return name


def test_a_deletion_that_had_begun_is_finished_whatever_is_wanted_now(stage: Stage) -> None:
    """A machine that is gone already must not be given work, even if somebody waits for just such a one."""
    config = stage.config(stage.pool("gpu"), idle_s=3600.0)
    before = begun(stage, config)
    KwokProvider(stage.client, stage.namespace).shrink(config.pools[0], (f"kwok://{before}",))
    stage.job("second")
    with stage.scaling(config) as told:
        wait_for("it runs", lambda: len(stage.pods("Running")) == 1)
        wait_for("the old one is gone", lambda: len(stage.machines()) == len(stage.nodes()) == 1)
    assert stage.nodes()[0]["metadata"]["name"] != before
    assert not told.results("uncordon")


def test_a_deletion_that_had_begun_stops_at_a_pod_that_came_since(stage: Stage) -> None:
    config = stage.config(stage.pool("gpu"), idle_s=3600.0)
    before = begun(stage, config)
    stage.job("second", tolerant=True)
    wait_for("it runs in spite of the cordon", lambda: len(stage.pods("Running")) == 1)
    with stage.scaling(config) as told:
        wait_for("the cordon is lifted", lambda: not stage.nodes()[0]["spec"].get("unschedulable"))
    (node,) = stage.nodes()
    assert node["metadata"]["name"] == before and DELETING not in node["metadata"]["annotations"]
    assert len(stage.pods("Running")) == 1 and not told.results("grow")


class Late(Client):
    """Another's pod is bound in the very moment in which a node is marked as being deleted."""

    def patch(self, kind: Any, name: str, body: Any, **more: Any) -> Any:
        done = super().patch(kind, name, body, **more)
        if kind is NODE and DELETING in ((body.get("metadata") or {}).get("annotations") or {}) and not self.is_late:
            self.is_late = True
            self.create(bound_pod(name))
        return done

    is_late = False


def bound_pod(node: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"}, "spec": spec}


def test_a_pod_that_is_bound_while_the_mark_is_written_keeps_the_machine(stage: Stage) -> None:
    client = Late(stage.client.transport)
    with stage.scaling(stage.config(stage.pool("gpu")), client=client) as told:
        stage.job("train", run_for="0.1s")
        wait_for("the mark was written", lambda: client.is_late)
        wait_for("it is seen", lambda: any("late is there" in one.trouble for one in told.results("delete")))
        wait_for("the mark is off", lambda: DELETING not in (stage.nodes()[0]["metadata"].get("annotations") or {}))
        assert len(stage.machines()) == len(stage.nodes()) == 1, "nothing was lost"
        client.delete(POD, "late", grace_s=0)
        wait_for("then it goes", lambda: not stage.machines() and not stage.nodes())


def test_a_node_that_was_chosen_for_a_volume_stays(stage: Stage) -> None:
    """The scheduler binds the pod when its volume is there, long after it has chosen the node."""
    with stage.scaling(stage.config(stage.pool("gpu"), idle_s=3600.0)):
        stage.job("train", run_for="0.1s")
        wait_for("it has ended", lambda: stage.is_done("train"))
    name = str(stage.nodes()[0]["metadata"]["name"])
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "slow"}
    meta = {"name": "disk", "annotations": {SELECTED_NODE: name}}
    stage.client.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    with stage.scaling(stage.config(stage.pool("gpu"))) as told:
        wait_for("it is seen", lambda: any("claim" in one.trouble for one in told.results("delete")))
        assert len(stage.machines()) == 1
        # Everybody who may have a claim can write that: it keeps a node no longer than making a volume takes.
        long_ago = {"metadata": {"annotations": {CORDONED: "2026-11-15T12:00:00Z"}}}
        stage.client.patch(NODE, name, long_ago)
        wait_for("then it goes", lambda: not stage.machines() and not stage.nodes())
        assert stage.client.find(PVC, "disk") is not None


def test_a_heartbeat_does_not_put_a_change_off(stage: Stage) -> None:
    name = node(stage, "one")
    actor = Actuator(stage.client, stage.config(stage.pool("cpu")), {}, OrderStore(stage.client, stage.namespace))
    nodes = [stage.client.get(NODE, name)]

    def only_its_heart_beats() -> bool:
        """Not so while controllers are still at work on a node this new."""
        nodes.append(stage.client.get(NODE, name))
        beat = {**nodes[-1]["status"]["conditions"][0], "lastHeartbeatTime": f"2026-11-15T12:00:{len(nodes) % 60:02}Z"}
        body = {"status": {"conditions": [beat]}}
        stage.client.patch(NODE, name, body, subresource="status", kind_of_patch="strategic")
        nodes.append(stage.client.get(NODE, name))
        lasting = [
            (one["spec"], one["metadata"].get("labels"), one["metadata"].get("annotations")) for one in nodes[-3:]
        ]
        return not nodes[-1]["spec"].get("taints") and lasting == lasting[:1] * 3

    wait_for("a node at rest", only_its_heart_beats)
    old = nodes[-2]
    assert actor._cordon(old) == ""
    cordoned_now = stage.client.get(NODE, name)
    assert cordoned_now["spec"]["unschedulable"] is True
    assert "has changed in this moment" in actor._change(old, {}, {"x": "y"}), "another's change is another matter"
