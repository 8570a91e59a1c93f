"""Machines that a provider takes back: which nodes are tainted for it, once, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.autoscaler.act.termination_notices import STAYS_S, our_taint, taint_changes, taint_leaving
from longboat.autoscaler.model.provider_settings import KwokSettings
from longboat.autoscaler.model.snapshot import POOL_LABEL
from longboat.autoscaler.observe.orders import DELETING
from longboat.autoscaler.providers.kwok import node_of
from longboat.autoscaler.providers.provider import Instance, ProviderAnswer
from longboat.autoscaler.report.events import line_of
from longboat.fitting.model.nodes import LEAVING
from longboat.kubeapi.errors import Conflict
from longboat.kubeapi.kinds import NODE
from tests.autoscaler.stages import Stage, wait_for
from tests.sweeps.kubernetes.memory_cluster import MemoryCluster

NOW = 1_794_744_000.0
BACK = Instance(id="aws:///a/i-1", pool="gpu", state="stopping", node="n1", message="taken back within two minutes")


class Cluster(MemoryCluster):
    def now(self) -> float:
        return NOW


def body(**fields: Any) -> dict[str, Any]:
    meta = {"name": "n1", "labels": {POOL_LABEL: "gpu"}, "annotations": {}, **fields.pop("meta", {})}
    return {"metadata": meta, "spec": {"providerID": "aws:///a/i-1", **fields}}


@pytest.mark.parametrize(
    "node",
    [
        body(taints=[{"key": LEAVING, "effect": "NoSchedule"}]),
        body(meta={"annotations": {DELETING: "now"}}),
        body(meta={"deletionTimestamp": "now"}),
        body(meta={"labels": {POOL_LABEL: "other"}}),
        {"metadata": {"name": "n2", "labels": {POOL_LABEL: "gpu"}}, "spec": {"providerID": "aws:///a/i-2"}},
    ],
)
def test_nodes_that_are_left_alone(node: dict[str, Any]) -> None:
    assert [*taint_changes([node], ProviderAnswer(machines=(BACK,)), NOW)] == []


def test_nodes_that_are_told() -> None:
    by_name = {"metadata": {"name": "n1", "labels": {POOL_LABEL: "gpu"}}}
    for node in (body(), body(taints=[{"key": "gpu", "effect": "NoSchedule"}]), by_name):
        assert [*taint_changes([node], ProviderAnswer(machines=(BACK,)), NOW)] == [("n1", BACK, True)]
    running = Instance(id="aws:///a/i-1", pool="gpu", node="n1")
    assert [*taint_changes([body()], ProviderAnswer(machines=(running,)), NOW)] == []


def test_a_new_machine_with_the_name_of_one_that_ends_is_left_alone() -> None:
    """An address, and the name made of it, is given to another machine while the former one still shuts down."""
    new = Instance(id="aws:///a/i-2", pool="gpu", node="n1")
    for node in (body(providerID="aws:///a/i-2"), {"metadata": {"name": "n1", "labels": {POOL_LABEL: "gpu"}}}):
        for machines in ((BACK, new), (new, BACK)):
            assert [*taint_changes([node], ProviderAnswer(machines=machines), NOW)] == []


def test_a_machine_that_runs_again_loses_our_taint_and_no_other() -> None:
    running = Instance(id="aws:///a/i-1", pool="gpu", node="n1", state="running")
    seen = ProviderAnswer(machines=(running,))
    ours = body(taints=[{"key": "gpu", "effect": "NoSchedule"}, our_taint(NOW - STAYS_S - 1)])
    fresh = body(taints=[our_taint(NOW - 130)])
    assert [*taint_changes([fresh], seen, NOW)] == [], "a cloud may say so right before the end"
    assert [*taint_changes([ours], seen, NOW)] == [("n1", running, False)]
    assert [*taint_changes([body(taints=[{"key": LEAVING, "effect": "NoSchedule"}])], seen, NOW)] == [], "a person's"
    client: Any = Cluster()
    client.create({"apiVersion": "v1", "kind": "Node", **ours})
    (result,) = taint_leaving(client, [ours], seen, lambda: True)
    assert line_of(result) == f"the taint {LEAVING} of node n1 was removed: its machine runs again"
    assert client.get(NODE, "n1")["spec"]["taints"] == [{"key": "gpu", "effect": "NoSchedule"}]
    assert taint_leaving(client, [ours], seen, lambda: True) == [], "what was read before is old"


def test_a_node_that_was_made_anew_for_another_machine_is_left_alone() -> None:
    client: Any = MemoryCluster()
    client.create({"apiVersion": "v1", "kind": "Node", **body(providerID="aws:///a/i-2")})
    assert taint_leaving(client, [body()], ProviderAnswer(machines=(BACK,)), lambda: True) == []
    assert "taints" not in client.get(NODE, "n1")["spec"]


@pytest.mark.parametrize(("conflicts", "trouble"), [(2, ""), (3, "the node has changed in this moment")])
def test_a_report_of_the_kubelet_puts_no_notice_off(conflicts: int, trouble: str) -> None:
    class Busy(MemoryCluster):
        def patch(self, *arguments: Any, **more: Any) -> Any:
            if (left := len(met)) < conflicts:
                met.append(left)
                raise Conflict("changed")
            return super().patch(*arguments, **more)

    met: list[int] = []
    client: Any = Busy()
    client.create({"apiVersion": "v1", "kind": "Node", **body()})
    (result,) = taint_leaving(client, [body()], ProviderAnswer(machines=(BACK,)), lambda: True)
    assert result.trouble == trouble


def test_what_is_said_of_a_node_that_is_told() -> None:
    client: Any = MemoryCluster()
    client.create({"apiVersion": "v1", "kind": "Node", **body()})
    (result,) = taint_leaving(client, [body()], ProviderAnswer(machines=(BACK,)), lambda: True)
    assert line_of(result) == f"node n1 was tainted {LEAVING}: taken back within two minutes"


@pytest.mark.cluster
def test_a_real_node_keeps_its_other_taints_and_is_told_once(stage: Stage) -> None:
    pool = stage.pool("spot", machine={"gpus": 0})
    name = f"{pool.name}-1"
    machine = Instance(id=name, pool=pool.name, node=name, state="stopping", message="taken back")
    made = node_of(pool, Instance(id=name, pool=pool.name, node=name), KwokSettings())
    made["spec"]["taints"] = [*(made["spec"].get("taints") or ()), {"key": "mine", "effect": "NoSchedule"}]
    stage.client.create(made)
    seen = ProviderAnswer(machines=(machine,))
    # A new node changes until the taint of new nodes has gone; then it only changes by its heartbeats.
    wait_for("the node takes pods", lambda: "not-ready" not in str(stage.client.get(NODE, name)["spec"]["taints"]))
    before = stage.client.get(NODE, name)
    (result,) = taint_leaving(stage.client, [before], seen, lambda: True)
    assert (result.trouble, result.action.node, result.action.reason) == ("", name, "taken back")
    taints = {taint["key"] for taint in stage.client.get(NODE, name)["spec"]["taints"]}
    assert {"mine", LEAVING} <= taints
    assert taint_leaving(stage.client, [before], seen, lambda: True) == [], "what was read before is old"
    assert taint_leaving(stage.client, [stage.client.get(NODE, name)], seen, lambda: True) == []
