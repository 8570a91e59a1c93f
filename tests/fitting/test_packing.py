"""Packing: examples, then properties against a search through all ways."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod
from longboat.fitting.packing import Placement, Shortfall, place, take, take_each
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
    why_not,
)


def test_all_or_nothing() -> None:
    fleet = Fleet(gpu_nodes(8, 8))
    found = place(gang(5, {GPU: "4"}), fleet)
    assert isinstance(found, Shortfall)
    assert (found.placed, found.wanted) == (4, 5)
    (lack,) = found.lacks
    assert (lack.resource, lack.each, lack.free, lack.total) == (GPU, 4, 16, 16)
    assert str(lack) == "16 free of 16"
    assert all(not state.pods for state in fleet.states.values()), "a refusal leaves no trace"


def test_place_leaves_the_fleet_and_take_fills_it() -> None:
    fleet = Fleet(gpu_nodes(8))
    pods = gang(2, {GPU: "4"})
    assert nodes_of(place(pods, fleet)) == ("n0", "n0") and not fleet.states["n0"].pods
    assert nodes_of(take(pods, fleet)) == ("n0", "n0") and fleet.states["n0"].free[GPU] == 0
    assert isinstance(place([pod("x", {GPU: "1"})], fleet), Shortfall)


def test_whole_nodes_stay_whole() -> None:
    fleet = Fleet(gpu_nodes(8, 8, 8), [pod("old", {GPU: "5"}, nodeName="n1")])
    assert nodes_of(place([pod("x", {GPU: "2"})], fleet)) == ("n1",)
    assert nodes_of(place([pod("x", {GPU: "4"})], fleet)) == ("n0",)


def test_gpus_are_kept_for_who_needs_them() -> None:
    fleet = Fleet([node("a-gpu", {GPU: "8"}), node("b-cpu")])
    assert nodes_of(place([pod("x", {"cpu": "1"})], fleet)) == ("b-cpu",)
    mixed = [pod("cpu", {"cpu": "6"}), pod("gpu", {"cpu": "6", GPU: "1"})]
    assert nodes_of(place(mixed, fleet)) == ("b-cpu", "a-gpu"), "whoever needs GPUs chooses first"


def test_a_small_mixed_gang_is_searched_through() -> None:
    """Kind by kind, both of 4 go on one node and one of 3 is left over; 4 + 3 + 3 on each is the only way."""
    pods = [*gang(2, {"cpu": "4"}, name="a"), *gang(4, {"cpu": "3"}, name="b")]
    fleet = Fleet([node("n0", {"cpu": "10"}), node("n1", {"cpu": "10"})])
    check_sound(pods, nodes_of(place(pods, fleet)), fleet)
    assert isinstance(place([*pods, pod("one-more", {"cpu": "1"})], fleet), Shortfall)
    assert all(not state.pods for state in fleet.states.values())


def test_each_on_its_own() -> None:
    fleet = Fleet(gpu_nodes(4))
    left = take_each([pod("a", {GPU: "3"}), pod("b", {GPU: "8"}), pod("c", {GPU: "1"})], fleet)
    assert [one.name for one in left] == ["b"] and fleet.states["n0"].free[GPU] == 0


def check_sound(pods: Sequence[Pod], names: Sequence[str], fleet: Fleet) -> None:
    """One by one, in some order that works, and nothing is over-committed at the end."""
    assert len(names) == len(pods)
    trial = fleet.copy()
    left = list(zip(pods, names))
    while left:
        now = next((pair for pair in left if why_not(pair[0], trial, pair[1]) is None), None)
        assert now is not None, f"none of {[(one.name, name) for one, name in left]} can be placed"
        left.remove(now)
        trial.add(now[0], trial.states[now[1]])
    for state in trial.states.values():
        assert state.room >= 0 and all(free >= 0 for free in state.free.values())


def fits_in_any_way(pods: Sequence[Pod], fleet: Fleet) -> bool:
    """Every assignment in every order."""
    if not pods:
        return True
    for number, one in enumerate(pods):
        if one.shape in {other.shape for other in pods[:number]}:
            continue
        rest = [*pods[:number], *pods[number + 1 :]]
        for state in fleet.states.values():
            if why_not(one, fleet, state.name) is None:
                fleet.add(one, state)
                found = fits_in_any_way(rest, fleet)
                fleet.remove(one)
                if found:
                    return True
    return False


ROOMS = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["1", "2", "3", "4"]),
        "memory": st.sampled_from(["1Gi", "3Gi", "8Gi"]),
        "pods": st.sampled_from(["1", "2", "5"]),
        GPU: st.sampled_from(["0", "2", "4"]),
    }
)
ASKS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["500m", "1", "1500m", "2"]),
        "memory": st.sampled_from(["512Mi", "1Gi", "2Gi"]),
        GPU: st.sampled_from(["1", "2", "3"]),
    },
)
RULES: dict[str, dict[str, Any]] = {
    "none": {},
    "pool": {"nodeSelector": {"pool": "x"}},
    "tolerant": {"tolerations": [{"operator": "Exists"}]},
    "apart": {"affinity": affinity("podAntiAffinity", term(HOST, {"gang": "g"}))},
    "apart by zone": {"affinity": affinity("podAntiAffinity", term(ZONE, {"gang": "g"}))},
    "near": {"affinity": affinity("podAffinity", term(ZONE, {"gang": "g"}))},
    "port": {"hostNetwork": True},
    "spread": {
        "topologySpreadConstraints": [
            {
                "topologyKey": ZONE,
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"gang": "g"}},
            }
        ]
    },
}


@st.composite
def fleets(draw: st.DrawFn, most: int = 4) -> Fleet:
    nodes = []
    for number in range(draw(st.integers(1, most))):
        labels = {ZONE: draw(st.sampled_from("ab"))}
        if draw(st.booleans()):
            labels["pool"] = "x"
        taints = [{"key": "t", "effect": "NoSchedule"}] if draw(st.integers(0, 3)) == 0 else []
        nodes.append(node(f"n{number}", draw(ROOMS), labels=labels, taints=taints))
    return Fleet(nodes)


def member(number: int, requests: dict[str, str], rule: str) -> Pod:
    spec = dict(RULES[rule])
    container: dict[str, Any] = {"name": "c", "resources": {"requests": requests}}
    if rule == "port":
        container["ports"] = [{"containerPort": 29500}]
    return pod(f"g-{number}", labels={"gang": "g", "index": str(number)}, containers=[container], **spec)


GANGS_OF_ONE_KIND = st.builds(
    lambda count, requests, rule: [member(number, requests, rule) for number in range(count)],
    st.integers(1, 5),
    ASKS,
    st.sampled_from(sorted(RULES)),
)
MIXED = st.lists(st.tuples(ASKS, st.sampled_from(sorted(set(RULES) - {"near", "spread"}))), min_size=1, max_size=5).map(
    lambda parts: [member(number, *part) for number, part in enumerate(parts)]
)


@given(fleets(), GANGS_OF_ONE_KIND)
@settings(max_examples=400, deadline=None)
def test_gangs_of_one_kind_are_answered_exactly(fleet: Fleet, pods: list[Pod]) -> None:
    found = place(pods, fleet)
    assert isinstance(found, Placement) is fits_in_any_way(pods, fleet)
    if isinstance(found, Placement):
        check_sound(pods, found.nodes, fleet)


@given(fleets(3), MIXED)
@settings(max_examples=200, deadline=None)
def test_small_mixed_gangs_are_answered_exactly(fleet: Fleet, pods: list[Pod]) -> None:
    found = place(pods, fleet)
    assert isinstance(found, Placement) is fits_in_any_way(pods, fleet)
    if isinstance(found, Placement):
        check_sound(pods, found.nodes, fleet)


@given(fleets(8), MIXED, st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_the_order_of_the_input_makes_no_difference(fleet: Fleet, pods: list[Pod], chance: random.Random) -> None:
    found = place(pods, fleet)
    shapes = [state.shape for state in fleet.states.values()]
    chance.shuffle(shapes)
    order = list(range(len(pods)))
    chance.shuffle(order)
    again = place([pods[number] for number in order], Fleet(shapes))
    assert isinstance(found, Placement) is isinstance(again, Placement)
    if isinstance(found, Placement) and isinstance(again, Placement):
        assert sorted(found.nodes) == sorted(again.nodes)
    elif isinstance(found, Shortfall) and isinstance(again, Shortfall):
        assert (found.placed, found.wanted, found.lacks) == (again.placed, again.wanted, again.lacks)


@given(fleets(8), st.lists(MIXED, min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_nothing_is_ever_over_committed(fleet: Fleet, gangs: list[list[Pod]]) -> None:
    """Gang after gang, as the gate does it; the index is kept up to date all the while."""
    for number, pods in enumerate(gangs):
        named = [msgspec.structs.replace(one, name=f"{number}/{one.name}") for one in pods]
        before = fleet.copy()
        found = take(named, fleet)
        if isinstance(found, Placement):
            check_sound(named, found.nodes, before)
        fresh = Fleet([state.shape for state in fleet.states.values()])
        for state in fleet.states.values():
            for one in state.pods.values():
                fresh.add(one, fresh.states[state.name])
        trial = [msgspec.structs.replace(one, name=f"trial/{one.name}") for one in pods]
        assert place(trial, fleet) == place(trial, fresh), "what is remembered makes no difference"


@pytest.mark.parametrize("seed", range(3))
def test_a_large_fleet_is_filled_to_the_last_gpu(seed: int) -> None:
    chance = random.Random(seed)
    fleet = Fleet([node(f"n{number:03}", {GPU: "8", "cpu": "64"}) for number in range(200)])
    placed = 0
    for number in itertools.count():
        each = chance.choice([1, 2, 4, 8])
        found = take(gang(chance.randint(1, 8), {GPU: str(each), "cpu": "1"}, name=f"g{number}"), fleet)
        if isinstance(found, Shortfall):
            free = [state.free[GPU] for state in fleet.states.values()]
            assert sum(one // each for one in free) < found.wanted
            break
        placed += len(found.nodes)
    assert sum(state.free[GPU] for state in fleet.states.values()) < 64, "powers of two leave no gaps"
