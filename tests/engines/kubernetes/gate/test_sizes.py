"""Sizes at the gate, as data: the largest that fits, growth into what nobody waits for, nodes given back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.engines.kubernetes.gate.decide import Admission, ClusterUsage, GateCandidate, decide_gate
from longboat.engines.kubernetes.gate.sizes import ElasticPods, largest
from longboat.fitting.model.pods import Pod
from tests.fitting.bodies import GPU, gang, node, pod

NOW = 1_000_000.0


def rigid(name: str, count: int, **fields: Any) -> GateCandidate:
    pods = tuple(gang(count, {GPU: "1"}, name="worker"))
    return GateCandidate(run=name, uid=f"uid-{name}", pods=pods, **{"created": NOW, **fields})


def elastic(name: str, size: int, low: int, high: int, **fields: Any) -> GateCandidate:
    """A run of which the gate knows all sizes; with `let_in` all its pods are bound."""
    fits, grows = fields.pop("fits", False), fields.pop("grows", True)
    one = rigid(name, size, **fields)
    every = tuple(gang(high, {GPU: "1"}, name="worker"))
    sizes = ElasticPods(role="worker", size=size, offered=tuple(range(low, high + 1)), pods=every, fits=fits,
                        grows=grows)  # fmt: skip
    placed = tuple(each.name for each in one.pods) if one.let_in is not None else ()
    return msgspec.structs.replace(one, elastic=sizes, placed=placed, made=len(placed), ready=len(placed))


def room(gpus: int, *held: tuple[str, int]) -> ClusterUsage:
    """One node, and runs that hold so many of its GPUs."""
    pods: list[Pod] = []
    for holder, count in held:
        labels = {"longboat.dev/run": holder}
        pods += [pod(f"{holder}-{n}", {GPU: "1"}, labels=labels, nodeName="n0") for n in range(count)]
    return ClusterUsage(nodes=(node("n0", {GPU: str(gpus)}),), pods=tuple(pods))


def verdicts(candidates: list[GateCandidate], usage: ClusterUsage | None) -> dict[str, Admission]:
    return {each.run: each for each in decide_gate(candidates, usage, NOW)}


@pytest.mark.parametrize(
    ("size", "fits", "gpus", "action", "chosen"),
    [
        (2, False, 8, "resize", 6),  # submitted with its smallest, gets its largest
        (2, False, 4, "resize", 4),
        (2, False, 2, "let_in", 2),
        (4, True, 6, "let_in", 4),  # was made for the room there was
        (6, True, 4, "resize", 4),  # which has become less
        (6, False, 1, "resize", 2),  # waits with its smallest: no more is bought for it
        (2, False, 1, "wait", 2),
    ],
)
def test_a_run_gets_the_largest_size_that_fits(size: int, fits: bool, gpus: int, action: str, chosen: int) -> None:
    candidate = elastic("run", size, 2, 6, fits=fits)
    usage = room(8, ("holder", 8 - gpus))
    verdict = verdicts([candidate], usage)["run"]
    assert (verdict.action, verdict.size) == (action, chosen)
    assert verdict.fits is (gpus >= 2)


def test_it_says_why_it_is_no_larger_and_for_which_size_it_waits() -> None:
    usage = room(4, ("holder", 1))
    assert verdicts([elastic("run", 3, 2, 6, fits=True)], usage)["run"].size_reason == (
        "1 more node: waits for 1 GPU: 0 free of 4"
    )
    waits = verdicts([elastic("run", 2, 2, 6)], room(4, ("holder", 3)))["run"]
    assert waits.reason == "waits for 2 GPUs (2 x 1): 1 free of 4; held by holder"


def test_it_takes_no_more_than_those_before_it_leave() -> None:
    first = rigid("first", 3, created=NOW - 9)
    judged = verdicts([first, elastic("run", 1, 1, 8)], room(8, ("holder", 4)))
    assert judged["first"].action == "let_in" and (judged["run"].action, judged["run"].size) == ("let_in", 1)
    blocked = rigid("first", 6, created=NOW - 9)
    judged = verdicts([blocked, elastic("run", 1, 1, 8)], room(8, ("holder", 4)))
    assert judged["first"].action == "wait" and judged["run"].action == "wait"


@pytest.mark.parametrize(
    ("free", "others", "wanted"),
    [
        (0, [], None),
        (1, [], 3),
        (9, [], 6),
        (2, [rigid("later", 3)], None),  # what is free is kept for it
        (5, [rigid("later", 2)], 5),  # starts now; the rest is idle
        (2, [rigid("never", 40)], 4),  # these nodes could never hold it
    ],
)
def test_it_grows_into_what_nobody_waits_for(free: int, others: list[GateCandidate], wanted: int | None) -> None:
    run = elastic("run", 2, 2, 6, let_in=NOW - 60)
    usage = room(16, ("run", 2), ("holder", 14 - free))
    verdict = verdicts([run, *others], usage)["run"]
    assert (verdict.action, verdict.size) == ("keep", wanted)
    assert verdict.size_reason == ("" if wanted is None else f"grows from 2 to {wanted} nodes")
    never = elastic("run", 2, 2, 6, let_in=NOW - 60, grows=False)
    assert verdicts([never, *others], usage)["run"].size is None


def test_what_a_run_without_a_reservation_waits_for_is_not_taken_either() -> None:
    """Of those that wait for ends that nobody knows, only the first has a reservation."""
    usage = ClusterUsage(
        nodes=tuple(node(f"n{n}", {GPU: "4"}) for n in range(2)),
        pods=tuple(pod(f"h{n}", {GPU: "2"}, labels={"longboat.dev/run": "h"}, nodeName=f"n{n}") for n in range(2)),
    )
    run = elastic("run", 2, 2, 6, let_in=NOW - 60)
    inside = msgspec.structs.replace(run, placed=tuple(each.name for each in run.pods))
    assert verdicts([inside], usage)["run"].size == 6
    first, second = (
        GateCandidate(run=name, uid=name, created=NOW + at, pods=tuple(gang(1, {GPU: count}, name="worker")))
        for name, at, count in (("first", 1, "3"), ("second", 2, "4"))
    )
    assert verdicts([inside, first], usage)["run"].size == 4
    assert verdicts([inside, first, second], usage)["run"].size is None


@pytest.mark.parametrize(
    ("other", "wanted", "why"),
    [
        (rigid("urgent", 3, priority=1), 2, "goes from 6 to 2 nodes for urgent"),
        (rigid("earlier", 3, created=NOW - 99), 2, "goes from 6 to 2 nodes for earlier"),
        (rigid("later", 3, created=NOW + 9), None, ""),
        (rigid("large", 5, priority=1), None, ""),  # it would not help
        (rigid("far", 3, priority=1, namespace="other"), 2, "goes from 6 to 2 nodes for a run of another namespace"),
    ],
)  # fmt: skip
def test_it_gives_nodes_back_to_who_comes_first(other: GateCandidate, wanted: int | None, why: str) -> None:
    run = elastic("run", 6, 2, 6, let_in=NOW - 60)
    verdict = verdicts([run, other], room(6, ("run", 6)))["run"]
    assert (verdict.action, verdict.size, verdict.size_reason) == ("keep", wanted, why)


def test_who_has_the_lowest_claim_gives_first() -> None:
    runs = [elastic("a", 3, 1, 3, let_in=NOW - 60, created=NOW - 50), elastic("b", 3, 1, 3, let_in=NOW - 60)]
    usage = room(6, ("a", 3), ("b", 3))
    assert {run: each.size for run, each in verdicts([*runs, rigid("u", 2, priority=1)], usage).items()} == {
        "a": None, "b": 1, "u": None,
    }  # fmt: skip
    assert {run: each.size for run, each in verdicts([*runs, rigid("u", 4, priority=1)], usage).items()} == {
        "a": 1, "b": 1, "u": None,
    }  # fmt: skip


def test_a_retry_keeps_as_much_of_what_it_had_as_there_is() -> None:
    run = elastic("run", 6, 2, 6, is_recovering=True)
    judged = verdicts([run, rigid("urgent", 4, priority=9)], room(8, ("holder", 3)))
    assert (judged["run"].action, judged["run"].size, judged["urgent"].action) == ("resize", 5, "wait")
    judged = verdicts([run], room(8, ("holder", 2)))
    assert (judged["run"].action, judged["run"].size) == ("let_in", 6)


def test_where_nodes_may_not_be_listed_it_has_the_size_it_has() -> None:
    assert verdicts([elastic("run", 2, 2, 6)], None)["run"].action == "let_in"


@given(st.lists(st.integers(0, 100), min_size=1, unique=True).map(sorted), st.integers(0, 100))
def test_the_largest_that_fits(sizes: list[int], most: int) -> None:
    asked: list[int] = []

    def fits(size: int) -> bool:
        asked.append(size)
        return size <= most

    assert largest(sizes, fits) == max((size for size in sizes if size <= most), default=None)
    assert len(asked) <= 2 + len(sizes).bit_length()


waiting_runs = st.lists(
    st.tuples(st.integers(1, 6), st.integers(-1, 1), st.integers(-60, 60), st.sampled_from([None, 100.0, 900.0])),
    max_size=5,
)


@given(st.integers(1, 3), st.integers(1, 5), st.integers(2, 12), st.integers(0, 8), waiting_runs)
@settings(deadline=None, max_examples=60)
def test_an_elastic_run_delays_nobody_and_keeps_its_bounds(
    low: int, more: int, gpus: int, held: int, others: list[tuple[int, int, int, float | None]]
) -> None:
    """Those before it start as without it, and who is let in beside one that cannot grow is so beside one that can."""
    runs = [
        rigid(f"r{place}", count, priority=priority, created=NOW + shift, lasts_s=lasts)
        for place, (count, priority, shift, lasts) in enumerate(others)
    ]
    held = min(held, gpus)
    high = low + more
    new = elastic("new", low, low, high)
    judged = verdicts([new, *runs], room(gpus, ("holder", held)))
    alone = verdicts(runs, room(gpus, ("holder", held)))
    before = [run for run in runs if run.order < new.order]
    assert {run.run: judged[run.run].action for run in before} == {run.run: alone[run.run].action for run in before}
    assert judged["new"].size is None or low <= judged["new"].size <= high
    if held + low <= gpus:
        inside = elastic("in", low, low, high, let_in=NOW - 60)
        usage = room(gpus, ("holder", held), ("in", low))
        stays = msgspec.structs.replace(inside, elastic=None)
        with_growth, without = verdicts([inside, *runs], usage), verdicts([stays, *runs], usage)
        wanted = with_growth["in"].size
        assert wanted is None or low < wanted <= high
        assert all(with_growth[run.run].action == without[run.run].action for run in runs)
        if wanted is not None:
            grown = elastic("in", wanted, low, high, let_in=NOW - 60)
            after = verdicts([grown, *runs], room(gpus, ("holder", held), ("in", wanted)))
            started = [run.run for run in runs if without[run.run].action == "let_in"]
            assert all(after[run].action == "let_in" for run in started)
