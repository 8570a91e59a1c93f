"""Machines that a provider takes back: which nodes are tainted for it, once, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.autoscaler.act.termination_notices import taint_leaving, taken_back
from longboat.autoscaler.model.provider_settings import KwokSettings
from longboat.autoscaler.model.snapshot import POOL_LABEL
from longboat.autoscaler.observe.orders import DELETING
from longboat.autoscaler.providers.kwok import node_of
from longboat.autoscaler.providers.provider import Instance, ProviderAnswer
from longboat.fitting.model.nodes import LEAVING
from longboat.kubeapi.kinds import NODE
from tests.autoscaler.stages import Stage

BACK = Instance(id="aws:///a/i-1", pool="gpu", state="stopping", node="n1", message="taken back within two minutes")


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
    assert [*taken_back([node], ProviderAnswer(machines=(BACK,)))] == []


def test_nodes_that_are_told() -> None:
    by_name = {"metadata": {"name": "n1", "labels": {POOL_LABEL: "gpu"}}}
    for node in (body(), body(taints=[{"key": "gpu", "effect": "NoSchedule"}]), by_name):
        assert [*taken_back([node], ProviderAnswer(machines=(BACK,)))] == [("n1", BACK)]
    running = Instance(id="aws:///a/i-1", pool="gpu", node="n1")
    assert [*taken_back([body()], ProviderAnswer(machines=(running,)))] == []


@pytest.mark.cluster
def test_a_real_node_keeps_its_other_taints_and_is_told_once(stage: Stage) -> None:
    pool = stage.pool("spot", machine={"gpus": 0})
    name = f"{pool.name}-1"
    machine = Instance(id=name, pool=pool.name, node=name, state="stopping", message="taken back")
    made = node_of(pool, Instance(id=name, pool=pool.name, node=name), KwokSettings())
    made["spec"]["taints"] = [*(made["spec"].get("taints") or ()), {"key": "mine", "effect": "NoSchedule"}]
    stage.client.create(made)
    seen = ProviderAnswer(machines=(machine,))
    before = stage.client.get(NODE, name)
    (result,) = taint_leaving(stage.client, [before], seen, lambda: True)
    assert (result.trouble, result.action.node, result.action.reason) == ("", name, "taken back")
    taints = {taint["key"] for taint in stage.client.get(NODE, name)["spec"]["taints"]}
    assert {"mine", LEAVING} <= taints
    assert taint_leaving(stage.client, [before], seen, lambda: True) == [], "what was read before is old"
    assert taint_leaving(stage.client, [stage.client.get(NODE, name)], seen, lambda: True) == []
