"""Which taints say that a node is about to go, and which nodes of a watch bear one."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.engines.kubernetes.observe.node_notices import (
    LeavingNodes,
    TerminationNotice,
    notice_of,
    selector_of,
)
from longboat.engines.kubernetes.observe.snapshot import host_view
from longboat.fitting.model.nodes import LEAVING


def node(*taints: str, name: str = "n1", effect: str = "NoSchedule") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"taints": [{"key": key, "effect": effect} for key in taints]}}


@pytest.mark.parametrize(
    ("taint", "least_s"),
    [
        ("aws-node-termination-handler/spot-itn", 120.0),
        ("aws-node-termination-handler/rebalance-recommendation", None),
        ("karpenter.sh/disrupted", 120.0),
        ("cloud.google.com/impending-node-termination", 30.0),
        ("remediator.kubernetes.azure.com/unschedulable", 30.0),
        ("ToBeDeletedByClusterAutoscaler", 30.0),
        (LEAVING, 30.0),
    ],
)
def test_taints_that_are_notices(taint: str, least_s: float | None) -> None:
    assert notice_of(node("nvidia.com/gpu", taint)) == TerminationNotice(taint=taint, least_s=least_s)
    assert host_view("n1", node(taint)).leaving == TerminationNotice(taint=taint, least_s=least_s)
    assert notice_of(node(taint, effect="PreferNoSchedule")) is None


@pytest.mark.parametrize("taint", ["node.kubernetes.io/unschedulable", "nvidia.com/gpu", "karpenter.sh/unregistered"])
def test_taints_that_are_none(taint: str) -> None:
    assert notice_of(node(taint)) is None and notice_of({"metadata": {"name": "n1"}}) is None


def test_news_are_what_comes_and_what_is_taken_back() -> None:
    nodes = LeavingNodes()
    assert not nodes.note(node())
    assert nodes.note(node(LEAVING)) and not nodes.note(node(LEAVING, "other"))
    assert nodes.of({"n1", "n2", None}).keys() == {"n1"} and nodes.of({"n2"}) == {}
    assert nodes.note(node()) and not nodes.note(node(), is_gone=True)
    assert nodes.note(node(LEAVING)) and nodes.note(node(LEAVING), is_gone=True) and nodes.of({"n1"}) == {}


def test_a_name_that_no_label_has_spoils_no_selector() -> None:
    longest = "n" * 63
    assert selector_of(["gpu-1", longest, longest + "x"]) == f"kubernetes.io/hostname in (gpu-1,{longest})"
    assert selector_of([longest + "x"]) == selector_of([]) == ""
