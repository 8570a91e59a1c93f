"""Nodes from the API's JSON; taints and every form of toleration."""

from __future__ import annotations

import pytest

from longboat.fitting.model.nodes import Taint, Toleration, taints_of, tolerations_of, untolerated
from tests.fitting.bodies import node

TAINT = Taint(key="dedicated", value="x", effect="NoSchedule")


def test_a_node() -> None:
    found = node("n", {"nvidia.com/gpu": "8"}, labels={"topology.kubernetes.io/zone": "a"}, unschedulable=True)
    assert found.zone == "a" and found.is_unschedulable
    assert found.has("nvidia.com/gpu") == found.devices == 8
    assert found.has("cpu") == 8000 and found.has("no.such/thing") == 0


def test_only_taints_that_keep_pods_away_are_kept() -> None:
    bodies = [{"key": "a", "effect": effect} for effect in ("NoSchedule", "PreferNoSchedule", "NoExecute")]
    assert [str(taint) for taint in taints_of(bodies)] == ["a:NoSchedule", "a:NoExecute"]


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": "dedicated", "operator": "Equal", "value": "x", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "value": "x"}, True),  # Equal is the default, no effect means all
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "value": "y"}, False),
        ({"key": "dedicated"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], tolerates: bool) -> None:
    found = untolerated((TAINT,), tolerations_of([toleration]))
    assert found == (None if tolerates else TAINT)


@pytest.mark.parametrize(
    ("operator", "value", "taint", "tolerates"),
    [("Gt", "900", "950", True), ("Gt", "950", "950", False), ("Lt", "10", "5", True), ("Lt", "x", "5", False)],
)
def test_tolerations_that_compare_numbers(operator: str, value: str, taint: str, tolerates: bool) -> None:
    one = Toleration(key="sla", operator=operator, value=value)
    assert one.tolerates(Taint(key="sla", value=taint, effect="NoSchedule")) is tolerates


def test_every_taint_needs_a_toleration() -> None:
    other = Taint(key="gpu", effect="NoExecute")
    assert untolerated((TAINT, other), tolerations_of([{"key": "dedicated", "operator": "Exists"}])) == other
