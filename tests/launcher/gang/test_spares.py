"""Spare nodes: who takes whose place; and the gang file of a gang whose pods play other nodes' parts, held to
the layout."""

from __future__ import annotations

import random
from typing import Any

import pytest

from longboat.core.jobs import Job, Retries, Role
from longboat.core.layouts import Layout, NodeSite, lay_out
from longboat.core.runs import Attempt
from longboat.engines.kubernetes.manifests.gang_file import gang_of, node_of
from longboat.engines.kubernetes.observe.places import places_at
from longboat.engines.kubernetes.records import all_pods
from longboat.launcher.gang.coordinator import Coordinator
from longboat.launcher.gang.messages import from_leader
from longboat.launcher.gang.spares import chosen, exchanged, pod_of
from longboat.launcher.pod.gang_file import GangError, addresses, moved
from tests.engines.kubernetes.manifest_samples import record as record_of
from tests.launcher.gang.test_coordinator import RULE, coordinator, outcome


def test_a_spare_takes_the_place_of_one_of_its_own_role() -> None:
    ready = ["ps-2", "worker-4", "worker-5"]
    assert chosen(["worker-1"], ready) == {"worker-1": "worker-4"}
    assert chosen(["worker-3", "ps-0", "worker-1", "worker-0"], ready) == {
        "worker-3": "worker-4",
        "ps-0": "ps-2",
        "worker-1": "worker-5",
    }
    assert chosen(["evaluator-0"], ready) == {}


def test_pods_exchange_their_nodes() -> None:
    once = exchanged({}, {"worker-1": "worker-4"})
    assert once == {"worker-4": "worker-1", "worker-1": "worker-4"}
    assert (pod_of("worker-1", once), pod_of("worker-0", once)) == ("worker-4", "worker-0")
    assert exchanged(once, {"worker-1": "worker-4"}) == {}, "the first pod's successor is back where it was"
    twice = exchanged(once, {"worker-2": "worker-4"})
    assert twice == {"worker-4": "worker-1", "worker-1": "worker-2", "worker-2": "worker-4"}


def test_places_stay_a_permutation_whatever_is_lost() -> None:
    choose = random.Random(7)
    nodes, spares = [f"worker-{n}" for n in range(5)], ["worker-5", "worker-6"]
    places: dict[str, str] = {}
    for _ in range(500):
        taken = chosen(choose.sample(nodes[1:], choose.randint(0, 3)), choose.sample(spares, choose.randint(0, 2)))
        places = exchanged(places, taken)
        assert sorted(places) == sorted(places.values()) and all(pod != node for pod, node in places.items())


JOBS = [
    Job(name="t", roles=(Role(name="worker", run="torchrun train.py", nodes=12, procs=2),), framework="torch"),
    Job(name="j", roles=(Role(name="worker", run="python train.py", nodes=3),), framework="jax"),
    Job(name="m", roles=(Role(name="worker", run="mpirun python t.py", nodes=4, procs=2),), framework="mpi"),
    Job(
        name="f",
        roles=(Role(name="ps", run="python t.py", nodes=2), Role(name="worker", run="python t.py", nodes=11)),
        framework="tensorflow",
        ends=("worker",),
    ),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job.framework))
def test_what_processes_see_is_what_the_layout_says_of_the_addresses(job: Job) -> None:
    """As if the job had been laid out over the pods that play its nodes now."""
    record = record_of(job)
    sites, gang = _gang(record, [])
    last = job.roles[-1]
    spare = {"role": last.name, "index": last.nodes, "address": f"{record.name}-a0-{last.name}-{last.nodes}.x"}
    gang["spares"] = [spare]
    places = exchanged({}, {f"{last.name}-1": f"{last.name}-{last.nodes}"})
    position = job.nodes - last.nodes + 1
    there = [*sites[:position], NodeSite(address=spare["address"], ports=sites[position].ports), *sites[position + 1 :]]
    _, wanted = _gang(record, there)
    got = moved(gang, places)
    assert addresses(gang, places)[sites[position].address] == spare["address"]
    for place in range(job.nodes):
        assert node_of(got, place) == node_of(wanted, place)
    assert got["spares"][0]["address"] == sites[position].address
    assert moved(got, {}) is got


@pytest.mark.parametrize("places", [{"worker-9": "worker-1"}, {"worker-1": "worker-9"}, {"": ""}])
def test_places_of_nodes_that_there_are_not_are_no_crash(places: dict[str, str]) -> None:
    _, gang = _gang(record_of(JOBS[1]), [])
    with pytest.raises(GangError, match="not a node of this run"):
        moved(gang, places)


def lost_members(*lost: str, replaced: tuple[str, ...] = (), nodes: int = 4) -> Coordinator:
    """A gang that has ended because it lost these."""
    gang = coordinator([f"a-{index}" for index in range(nodes)])
    for node in gang.members:
        gang.heard(node, 0.0)
        gang.ready(node, None)
    for node in lost:
        gang.lost(node, 0.5, "silent", 1.0)
    for node in replaced:
        gang.replaced(node, 0.5, "another one", 1.0)
    for node, member in gang.members.items():
        if not member.is_over:
            gang.ended(node, outcome(143, by="failure", stays=True, arrival=2.0), 2.0)
    return gang


@pytest.mark.parametrize(
    ("gang", "ready", "spares"),
    [
        (lost_members("a-1"), ["a-4"], {"a-1": "a-4"}),
        (lost_members("a-1"), ["b-4", "a-5", "a-4"], {"a-1": "a-5"}),
        (lost_members("a-1", "a-3"), ["a-4", "a-5"], {"a-1": "a-4", "a-3": "a-5"}),
        (lost_members("a-3", replaced=("a-1",)), ["a-4"], {"a-3": "a-4"}),
        (lost_members(replaced=("a-1", "a-2")), ["a-4"], {"a-1": "a-4"}),
        (lost_members("a-1", "a-3"), ["a-4"], None),
        (lost_members("a-1"), ["b-4"], None),
        (lost_members("a-1"), [], None),
        (lost_members("a-0"), ["a-4"], None),
        (lost_members("a-0", "a-1"), ["a-4", "a-5"], None),
    ],
    ids=["one", "first of its role", "two", "lost ones first", "the other is waited for"]
    + ["too few", "of another role", "none", "node 0", "node 0 and another"],
)
def test_spares_take_places_of_lost_members(gang: Coordinator, ready: list[str], spares: dict[str, str] | None) -> None:
    order = gang.restart(RULE, 0, gang.verdict(), ready, {})
    assert (order and order["spares"]) == spares
    if order is not None and spares is not None:
        assert from_leader(order) == order and set(order["replaced"]) >= set(spares)
        assert {order["places"][spare] for spare in spares.values()} == set(spares)
        assert gang.restart(RULE, 2, gang.verdict(), ready, {}) is None, "it costs a retry"


def test_whoever_looks_from_outside_knows_who_plays_what_when_a_whole_rack_is_lost() -> None:
    job = Job(name="t", roles=(Role(name="a", run="x", nodes=33, spares=16),), retries=Retries(count=3))
    lost = [f"a-{index}" for index in range(7, 23)]
    gang = lost_members(*lost, nodes=33)
    order = gang.restart(RULE, 0, gang.verdict(), all_pods(job)[33:], {})
    assert order is not None and order["replaced"] == lost and from_leader(order) == order
    attempts = [
        Attempt(number=0, started=0.0),
        Attempt(number=1, started=1.0, restart="in-place", spares=order["spares"]),
    ]
    assert places_at(job, attempts, 1) == order["places"]


def test_a_spare_s_pod_is_told_by_the_name_it_was_made_with() -> None:
    order = lost_members("a-2").restart(
        RULE, 0, {**lost_members("a-2").verdict()}, ["a-4"], {"a-4": "a-1", "a-1": "a-4"}
    )
    assert order is not None and order["spares"] == {"a-2": "a-1"}
    assert order["places"] == {"a-4": "a-1", "a-1": "a-2", "a-2": "a-4"}


def _gang(record: Any, sites: list[NodeSite]) -> tuple[list[NodeSite], dict[str, Any]]:
    from longboat.engines.kubernetes.manifests.gang_file import layout_of

    layout: Layout = layout_of(record, 0)
    if sites:
        layout = lay_out(record.job, run=record.name, uid=record.uid, attempt=0, sites=sites)
    own = [NodeSite(address=node.address, ports=node.ports) for node in layout.nodes]
    return own, gang_of(record, layout, timeout_s=None, code=None)
