"""Gangs that want one zone, different zones or nodes, or an even spread."""

from __future__ import annotations

from longboat.fitting.fleet import Fleet
from longboat.fitting.packing import Shortfall, place
from tests.fitting.bodies import (
    GPU,
    HOST,
    ZONE,
    affinity,
    gang,
    gpu_nodes,
    node,
    nodes_of,
    pod,
    term,
)


def test_one_per_node_and_one_per_zone() -> None:
    apart = affinity("podAntiAffinity", term(HOST, {"app": "x"}))
    alone = gang(3, {"cpu": "1"}, labels={"app": "x"}, affinity=apart)
    assert sorted(nodes_of(place(alone, Fleet(gpu_nodes(0, 0, 0))))) == ["n0", "n1", "n2"]
    assert isinstance(place(alone, Fleet(gpu_nodes(0, 0))), Shortfall)
    zones = [node(f"{zone}{number}", labels={ZONE: zone}) for zone in "ab" for number in range(2)]
    by_zone = affinity("podAntiAffinity", term(ZONE, {"app": "x"}))
    pods = gang(2, {"cpu": "1"}, labels={"app": "x"}, affinity=by_zone)
    assert {name[0] for name in nodes_of(place(pods, Fleet(zones)))} == {"a", "b"}
    assert isinstance(place(gang(3, labels={"app": "x"}, affinity=by_zone), Fleet(zones)), Shortfall)


def test_a_gang_that_wants_one_zone_finds_the_one_with_room() -> None:
    zones = [node("a0", {GPU: "8"}, labels={ZONE: "a"})]
    zones += [node(f"b{number}", {GPU: "8"}, labels={ZONE: "b"}) for number in range(2)]
    near = affinity("podAffinity", term(ZONE, {"gang": "g"}))
    pods = gang(2, {GPU: "8"}, labels={"gang": "g"}, affinity=near)
    assert sorted(nodes_of(place(pods, Fleet(zones)))) == ["b0", "b1"]
    assert isinstance(place(gang(3, {GPU: "8"}, labels={"gang": "g"}, affinity=near), Fleet(zones)), Shortfall)
    held = Fleet(zones, [pod("old", labels={"gang": "g"}, nodeName="a0")])
    assert isinstance(place(pods, held), Shortfall), "where one of them is already, the others must be too"


def test_spread_over_zones() -> None:
    zones = [node(f"{zone}{number}", {"cpu": "2"}, labels={ZONE: zone}) for zone in "abc" for number in range(2)]
    even = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    even["labelSelector"] = {"matchLabels": {"app": "x"}}
    pods = gang(6, {"cpu": "1"}, labels={"app": "x"}, topologySpreadConstraints=[even])
    found = nodes_of(place(pods, Fleet(zones)))
    assert sorted(name[0] for name in found) == list("aabbcc")
