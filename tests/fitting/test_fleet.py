"""The fleet: what is added can be taken away again without a trace, and copies are independent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.core.errors import InternalError
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import NodeConstraints
from tests.fitting.bodies import GPU, affinity, node, node_affinity, pod, term, wants, why_not

HOST = "kubernetes.io/hostname"


def picture(fleet: Fleet) -> Any:
    return {
        name: (dict(state.free), state.room, dict(state.ports), set(state.pods)) for name, state in fleet.states.items()
    }


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4)), max_size=8))
def test_adding_and_removing_leaves_no_trace(pods: list[tuple[int, int, int]]) -> None:
    fleet = Fleet([node(f"n{number}", {GPU: "4"}) for number in range(3)])
    before = picture(fleet)
    watcher = pod("w", affinity=affinity("podAntiAffinity", term(HOST, {"app": "1"})))
    assert why_not(watcher, fleet, "n0") is None  # from now on it is counted who has app=1
    added = []
    for number, (where, gpus, app) in enumerate(pods):
        ports = [{"containerPort": 80, "hostPort": 8000 + app}]
        resources = {"requests": {GPU: str(gpus)}}
        one = pod(
            f"p{number}", labels={"app": str(app)}, containers=[{"name": "c", "resources": resources, "ports": ports}]
        )
        fleet.add(one, fleet.states[f"n{where}"])
        added.append(one)
    for where in range(3):
        there = any(place == where and app == 1 for place, _, app in pods)
        assert (why_not(watcher, fleet, f"n{where}") is not None) is there
    copied = fleet.copy()
    for one in added:
        fleet.remove(one)
    assert picture(fleet) == before
    assert all(why_not(watcher, fleet, name) is None for name in fleet.states)
    assert sum(len(state.pods) for state in copied.states.values()) == len(pods)
    for where in range(3):
        there = any(place == where and app == 1 for place, _, app in pods)
        assert (why_not(watcher, copied, f"n{where}") is not None) is there


def test_only_pods_that_are_bound_to_a_node_of_the_fleet_are_in_it() -> None:
    pods = [pod("a", nodeName="n"), pod("b", nodeName="gone"), pod("c")]
    fleet = Fleet([node("n")], pods)
    assert [key[1] for key in fleet.states["n"].pods] == ["a"]
    assert fleet.where(pods[0]) is fleet.states["n"] and fleet.where(pods[2]) is None


def test_a_pod_is_in_one_place() -> None:
    fleet = Fleet([node("n"), node("m")], [pod("a", nodeName="n")])
    with pytest.raises(InternalError):
        fleet.add(pod("a"), fleet.states["m"])


def test_nodes_are_added_once() -> None:
    fleet = Fleet([node("b")], [pod("p", nodeName="b")])
    assert fleet.eligible(NodeConstraints()) == ("b",)
    fleet.add_node(node("a"))
    assert fleet.eligible(NodeConstraints()) == ("a", "b")
    with pytest.raises(InternalError):
        fleet.add_node(node("a"))


def test_a_node_that_says_nothing_of_pods_takes_the_usual_number() -> None:
    bare = node("n")
    fleet = Fleet([type(bare)(name="n")])
    assert fleet.states["n"].room == 110


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(0, 300))
def test_rules_that_name_few_nodes_find_them_all(count: int, which: int) -> None:
    """Both ways of looking (few nodes by a value, or classes of nodes) give what asking every node gives."""
    fleet = Fleet(
        [node(f"n{number}", labels={"half": str(number % 2), "rare": str(number)}) for number in range(count)]
    )
    rules = [
        pod("p", nodeSelector={"rare": str(which)}),
        pod("p", nodeSelector={"half": "1"}),
        pod("p", affinity=node_affinity([wants("rare", "In", str(which), "0"), wants("half", "In", "0")])),
        pod("p", affinity=node_affinity([wants("rare", "In", str(which))], [wants("half", "In", "1")])),
        pod("p", affinity=node_affinity([wants("rare", "NotIn", str(which))])),
    ]
    for one in rules:
        asked = tuple(sorted(name for name in fleet.states if why_not(one, fleet, name) is None))
        assert fleet.eligible(one.shape.placing) == asked
