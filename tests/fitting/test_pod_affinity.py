"""Pods that want to be apart, near or spread, as one pod meets those that are there."""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.fitting.fleet import Fleet
from tests.fitting.bodies import (
    HOST,
    ZONE,
    affinity,
    at,
    node,
    pod,
    reason,
    term,
    why_not,
)

A, B = {ZONE: "a"}, {ZONE: "b"}


def test_apart_holds_both_ways() -> None:
    apart = affinity("podAntiAffinity", term(HOST, {"app": "x"}))
    shape = node("n")
    keeper, plain = pod("k", labels={"app": "x"}, affinity=apart), pod("o", labels={"app": "x"})
    assert reason(keeper, shape, plain) == "wants no pod with app=x on the same node, and one is there"
    assert reason(plain, shape, keeper) == "a pod there wants no pod with app=x on the same node"
    assert reason(keeper, shape, pod("o", labels={"app": "y"})) is None
    elsewhere = msgspec.structs.replace(plain, namespace="other")
    assert reason(keeper, shape, elsewhere) is None


def test_apart_by_zone() -> None:
    apart = affinity("podAntiAffinity", term(ZONE, {"app": "x"}))
    fleet = Fleet([node("a1", labels=A), node("a2", labels=A), node("b1", labels=B), node("c")])
    fleet.add(pod("o", labels={"app": "x"}), fleet.states["a1"])
    wanted = pod("p", affinity=apart)
    assert why_not(wanted, fleet, "a2") == "wants no pod with app=x in the same zone, and one is there"
    assert why_not(wanted, fleet, "b1") is None
    assert why_not(wanted, fleet, "c") is None, "a node in no zone is in nobody's zone"


def test_near() -> None:
    near = affinity("podAffinity", term(ZONE, {"app": "x"}))
    fleet = Fleet([node("a1", labels=A), node("b1", labels=B), node("c")])
    wanted = pod("p", affinity=near)
    assert why_not(wanted, fleet, "a1") == "wants a pod with app=x in the same zone, and none is there"
    itself = pod("q", labels={"app": "x"}, affinity=near)
    assert why_not(itself, fleet, "a1") is None, "the first of a kind may start anywhere"
    assert "a label that the node does not have" in (why_not(itself, fleet, "c") or "")
    fleet.add(pod("o", labels={"app": "x"}), fleet.states["b1"])
    assert why_not(wanted, fleet, "b1") is None
    assert why_not(itself, fleet, "a1") is not None


def test_spread() -> None:
    fleet = Fleet([node("a1", labels=A), node("b1", labels=B), node("c")])
    wanted = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread())
    assert why_not(wanted, fleet, "a1") is None
    fleet.add(pod("o", labels={"app": "x"}), fleet.states["a1"])
    assert why_not(wanted, fleet, "a1") == "is to be spread over zones: zone a would be ahead by 2, 1 allowed"
    assert why_not(wanted, fleet, "b1") is None
    assert "a label that the node does not have" in (why_not(wanted, fleet, "c") or "")
    two = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread(2))
    assert why_not(two, fleet, "a1") is None
    many = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread(minDomains=3))
    assert why_not(many, fleet, "b1") is None and why_not(many, fleet, "a1") is not None


def test_spread_counts_only_where_the_pod_may_be() -> None:
    nodes = [node("a1", labels={**A, "pool": "x"}), node("b1", labels=B)]
    fleet = Fleet(nodes, [at("a1", pod("o", labels={"app": "x"}))])
    only = {"nodeSelector": {"pool": "x"}}
    wanted = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread(), **only)
    assert why_not(wanted, fleet, "a1") is None, "zone b does not count: the pod cannot be there"
    ignoring = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread(nodeAffinityPolicy="Ignore"), **only)
    assert why_not(ignoring, fleet, "a1") is not None
    tainted = [node("a1", labels=A), node("b1", labels=B, taints=[{"key": "t", "effect": "NoSchedule"}])]
    fleet = Fleet(tainted, [at("a1", pod("o", labels={"app": "x"}))])
    by_default = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread())
    assert why_not(by_default, fleet, "a1") is not None
    honouring = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread(nodeTaintsPolicy="Honor"))
    assert why_not(honouring, fleet, "a1") is None


def test_terminating_pods_do_not_count_for_the_spread() -> None:
    leaving = msgspec.structs.replace(pod("o", labels={"app": "x"}), is_terminating=True)
    fleet = Fleet([node("a1", labels=A), node("b1", labels=B)], [at("a1", leaving)])
    wanted = pod("p", labels={"app": "x"}, topologySpreadConstraints=spread())
    assert why_not(wanted, fleet, "a1") is None


def spread(skew: int = 1, **more: Any) -> list[dict[str, Any]]:
    one = {"topologyKey": ZONE, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}
    return [{**one, "labelSelector": {"matchLabels": {"app": "x"}}, **more}]
