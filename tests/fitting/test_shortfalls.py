"""What is said when a gang finds no place."""

from __future__ import annotations

from longboat.fitting.fleet import Fleet
from longboat.fitting.packing import Shortfall, place
from tests.fitting.bodies import (
    GPU,
    gpu_nodes,
    node,
    pod,
)


def test_fragmentation_is_seen() -> None:
    fleet = Fleet(gpu_nodes(8, 8), [pod(f"o{n}", {GPU: "4"}, nodeName=f"n{n}") for n in range(2)])
    found = place([pod("x", {GPU: "8"})], fleet)
    assert isinstance(found, Shortfall)
    assert str(found.lacks[0]) == "8 free of 16, at most 4 on one node"
    assert found.reason == "2 nodes: needs 8 nvidia.com/gpu, 4 free"


def test_what_is_short_only_together_is_named() -> None:
    nodes = [node("a", {"cpu": "8", "memory": "1Gi"}), node("b", {"cpu": "1", "memory": "64Gi"})]
    found = place([pod("x", {"cpu": "4", "memory": "8Gi"})], Fleet(nodes))
    assert isinstance(found, Shortfall)
    assert [lack.resource for lack in found.lacks] == ["memory", "cpu"]


def test_no_node_would_do() -> None:
    tainted = gpu_nodes(8, taints=[{"key": "t", "effect": "NoSchedule"}])
    found = place([pod("x", {GPU: "1"})], Fleet([*tainted, node("b")]))
    assert isinstance(found, Shortfall)
    reasons = "1 node: needs 1 nvidia.com/gpu, the node has none; 1 node: taint t:NoSchedule is not tolerated"
    assert found.reason == reasons
    assert place([pod("x")], Fleet([])) == Shortfall(pod=pod("x"), placed=0, wanted=1)
    assert Shortfall(pod=pod("x"), placed=0, wanted=1).reason == "there are no nodes"
