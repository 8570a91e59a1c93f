"""Which node a pod plays, from what is known of attempts: as node 0's launcher exchanges them, and believed only as far
as it can be."""

from __future__ import annotations

import random

import msgspec
import pytest

from longboat.core.jobs import Job, Retries, Role
from longboat.core.runs import Attempt, LogLine, RankStatus
from longboat.engines.kubernetes.logs.lines import of_its_node
from longboat.engines.kubernetes.observe.places import as_played, in_their_places, places_at, pod_playing
from longboat.engines.kubernetes.records import all_pods, node_of_rank, ranks_of
from longboat.launcher.gang.spares import chosen, exchanged, pod_of
from tests.engines.kubernetes.run_samples import record, running, snapshot

ROLES = (Role(name="ps", run="x", nodes=2), Role(name="worker", run="x", nodes=3, procs=2, spares=2))
JOB = Job(name="train", roles=ROLES, ends=("worker",), retries=Retries(count=9))


def again(number: int, **spares: str) -> Attempt:
    names = {node.replace("_", "-"): pod.replace("_", "-") for node, pod in spares.items()}
    return Attempt(number=number, started=float(number), restart="in-place", spares=names)


def test_who_plays_what_after_each_attempt() -> None:
    first = Attempt(number=0, started=0.0)
    attempts = [first, again(1, worker_1="worker-3"), again(2), again(3, worker_2="worker-1")]
    assert places_at(JOB, attempts, 0) == {}
    assert places_at(JOB, attempts, 1) == places_at(JOB, attempts, 2)
    assert places_at(JOB, attempts, 2) == {"worker-3": "worker-1", "worker-1": "worker-3"}
    third = places_at(JOB, attempts, 3)
    assert third == {"worker-3": "worker-1", "worker-1": "worker-2", "worker-2": "worker-3"}
    assert [pod_playing(node, third) for node in ("worker-1", "worker-2", "ps-0")] == ["worker-3", "worker-1", "ps-0"]
    assert places_at(JOB, [*attempts, Attempt(number=4, started=4.0, restart="new")], 4) == {}, "new pods"


def test_it_is_what_the_launcher_of_node_0_does() -> None:
    choose = random.Random(3)
    nodes, spares = [f"worker-{n}" for n in range(3)], ["worker-3", "worker-4"]
    for _ in range(50):
        places: dict[str, str] = {}
        attempts = [Attempt(number=0, started=0.0)]
        for number in range(1, 8):
            taken = chosen(choose.sample(nodes, choose.randint(0, 2)), choose.sample(spares, choose.randint(0, 2)))
            told = {node: pod_of(spare, places) for node, spare in taken.items()}
            places = exchanged(places, taken)
            attempts.append(Attempt(number=number, started=0.0, restart="in-place", spares=told))
            assert places_at(JOB, attempts, number) == places


@pytest.mark.parametrize(
    "spares",
    [{"worker-9": "worker-3"}, {"worker-1": "worker-99"}, {"worker-1": "ps-1"}, {"../x": "worker-3"}, {"": ""}],
)
def test_names_that_are_none_of_the_job_s_do_not_count(spares: dict[str, str]) -> None:
    assert places_at(JOB, [msgspec.structs.replace(again(1), spares=spares)], 1) == {}


def test_pods_ranks_and_lines_are_called_after_their_nodes() -> None:
    pods = [running(index, role="worker") for index in range(5)]
    seen = as_played(snapshot(*pods, record=record(JOB)), [again(1, worker_1="worker-4")], 1)
    assert [(pod.name[-1], pod.node) for pod in seen.pods] == [
        ("0", "worker-0"),
        ("1", "worker-4"),
        ("2", "worker-2"),
        ("3", "worker-3"),
        ("4", "worker-1"),
    ]
    gone = RankStatus(rank=4, role="worker", node="worker-1", alive=False, exit_code=1)
    here = RankStatus(rank=4, role="worker", node="worker-4", alive=True)
    (rank,) = in_their_places(JOB, [gone, here])
    assert (rank.node, rank.alive) == ("worker-1", True)
    line = LogLine(role="worker", node="worker-4", rank=7, stream="out", time=1.0, attempt=1, data=b"x\n")
    assert of_its_node(line, JOB).node == "worker-2"
    assert of_its_node(msgspec.structs.replace(line, rank=-1), JOB).node == "worker-4", "of the pod, not of a rank"


def test_a_spare_has_no_ranks() -> None:
    assert all_pods(JOB) == ["ps-0", "ps-1", "worker-0", "worker-1", "worker-2", "worker-3", "worker-4"]
    assert [list(ranks_of(record(JOB), "worker", index)) for index in range(4)] == [[2, 3], [4, 5], [6, 7], []]
    assert [node_of_rank(JOB, rank) for rank in (-1, 0, 7, 8)] == [
        None,
        ("ps", "ps-0"),
        ("worker", "worker-2"),
        None,
    ]
