"""Backfill: who may pass whom; that nobody who waits is delayed, or waits for ever; what it costs at size."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.fitting import backfill, earliest_start, packing
from longboat.fitting.backfill import Backfill, QueuedGang, UpcomingNode
from longboat.fitting.earliest_start import UNKNOWN
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod
from tests.fitting.bodies import GPU, gang, node, pod

SIZE = 8


def queued(name: str, gpus: int, count: int = 1, **fields: Any) -> QueuedGang:
    return QueuedGang(name=name, pods=tuple(gang(count, {GPU: str(gpus)}, name=name)), **fields)


def held(name: str, gpus: int, where: str) -> Pod:
    return pod(name, {GPU: str(gpus)}, nodeName=where)


def fleet(nodes: int, *pods: Pod) -> Fleet:
    return Fleet([node(f"n{number}", {GPU: str(SIZE)}) for number in range(nodes)], pods)


def judged(decision: Backfill, *gangs: QueuedGang) -> dict[str, str]:
    """`starts`, whom it would delay, or `waits`."""
    found = {}
    for one in gangs:
        verdict = decision.judge(one)
        found[one.name] = "starts" if verdict.starts else f"delays {verdict.delays}" if verdict.delays else "waits"
    return found


def test_only_the_nodes_on_which_least_has_to_end_are_kept() -> None:
    pods = [held("a", 7, "n0"), held("b", 4, "n1"), held("c", 6, "n2")]
    decision = Backfill(fleet(3, *pods), 0.0)
    found = judged(decision, queued("big", 8), queued("four", 4), queued("two", 2), queued("one", 1), queued("more", 1))
    assert found == {"big": "waits", "four": "delays big", "two": "starts", "one": "starts", "more": "delays big"}
    assert len(decision.reservations) == 1, "where no end is known, only the first keeps nodes"
    big = decision.reservations[0]
    assert (big.name, big.nodes, big.start) == ("big", ("n1",), UNKNOWN)


def test_what_others_give_back_until_then_is_not_kept() -> None:
    ends = {"a": 100.0}
    decision = Backfill(fleet(1, held("a", 4, "n0")), 0.0, end_of=lambda one: ends.get(one.name))
    found = judged(decision, queued("five", 5), queued("three", 3), queued("one", 1))
    assert found == {"five": "waits", "three": "starts", "one": "delays five"}, "five takes 4 of a's and keeps one"


def test_what_is_given_back_is_counted_once_for_all_who_wait_for_it() -> None:
    """Both fours start when the five have ended, on all of the node. A single that took one would leave seven."""
    ends = {"a": 100.0}
    decision = Backfill(fleet(1, held("a", 5, "n0")), 0.0, end_of=lambda one: ends.get(one.name))
    found = judged(decision, queued("first", 4), queued("second", 4), queued("one", 1), queued("short", 1, lasts_s=90))
    assert found == {"first": "waits", "second": "waits", "one": "delays second", "short": "starts"}
    assert [reservation.start for reservation in decision.reservations] == [100.0, 100.0]


def test_who_starts_earlier_or_later_leaves_what_one_before_it_needs() -> None:
    ends = {"a": 10.0, "b": 15.0, "c": 20.0}
    pods = [held("a", 3, "n0"), held("b", 3, "n0")]
    decision = Backfill(fleet(1, *pods), 0.0, end_of=lambda one: ends.get(one.name))
    found = judged(decision, queued("first", 4), queued("later", 4), queued("one", 1))
    assert [reservation.start for reservation in decision.reservations] == [10.0, 15.0]
    assert found["one"] == "delays first", "one is kept for each of them"
    decision = Backfill(fleet(2, *pods, held("c", 8, "n1")), 0.0, end_of=lambda one: ends.get(one.name))
    found = judged(decision, queued("both", 5, count=2), queued("earlier", 3), queued("one", 1))
    assert [reservation.start for reservation in decision.reservations] == [20.0, 15.0]
    assert found["one"] == "delays earlier"


def test_a_gang_that_waits_for_a_machine_keeps_nothing_of_the_others() -> None:
    machine = UpcomingNode(shape=node("m", {GPU: str(SIZE)}), ready=300.0)
    decision = Backfill(fleet(1, held("a", 5, "n0")), 0.0, upcoming=[machine])
    assert judged(decision, queued("big", 8), queued("three", 3)) == {"big": "waits", "three": "starts"}
    assert (decision.reservations[0].start, decision.reservations[0].nodes) == (300.0, ("m",))


def test_a_second_gang_is_planned_behind_the_first() -> None:
    pods, ends = [held("a", 4, "n0"), held("b", 5, "n1"), held("c", 6, "n2")], {"a": 10.0, "b": 20.0, "c": 30.0}
    decision = Backfill(fleet(3, *pods), 0.0, end_of=lambda one: ends.get(one.name))
    judged(decision, queued("big", 8), queued("also", 8), queued("two", 2))
    assert [(one.nodes, one.start) for one in decision.reservations] == [(("n0",), 10.0), (("n1",), 20.0)]
    assert decision.fleet.where(queued("two", 2).pods[0]) is decision.fleet.states["n2"]


def test_a_part_of_a_node_is_gathered_bit_by_bit() -> None:
    """Six of eight are in use and four are wanted: the two that are free are kept, or singles take them for ever."""
    decision = Backfill(fleet(1, held("a", 3, "n0"), held("b", 3, "n0")), 0.0)
    assert judged(decision, queued("four", 4), queued("one", 1)) == {"four": "waits", "one": "delays four"}


def test_the_fleet_is_left_as_it_was() -> None:
    place = fleet(3, held("a", 7, "n0"), held("b", 4, "n1"))
    before = {name: dict(state.free) for name, state in place.states.items()}
    decision = Backfill(place, 0.0)
    judged(decision, queued("big", 8, 2), queued("one", 1), queued("brief", 2, lasts_s=5.0))
    decision.undo()
    assert {name: state.free for name, state in place.states.items()} == before


def test_what_can_never_fit_keeps_nobody_waiting() -> None:
    decision = Backfill(fleet(2), 0.0)
    huge = decision.judge(queued("huge", 8, 3))
    assert not huge.starts and not huge.is_possible
    assert judged(decision, queued("a", 8), queued("b", 8)) == {"a": "starts", "b": "starts"}


class World:
    """Nodes, a queue and ends; each turn is one decision, and pods go where it put them."""

    def __init__(self, nodes: int, *, tells_ends: bool) -> None:
        self.nodes, self.tells_ends, self.now = nodes, tells_ends, 0.0
        self.queue: list[tuple[QueuedGang, float]] = []
        self.running: dict[str, tuple[float, list[Pod]]] = {}
        self.started: dict[str, float] = {}
        self.head: tuple[str, float, int] = ("", 0.0, 0)  # the first of the queue, its start, what has to end for it

    def turn(self) -> None:
        pods = [one for _, mine in self.running.values() for one in mine]
        ends = {one.name: end for end, mine in self.running.values() for one in mine}
        decision = Backfill(
            fleet(self.nodes, *pods), self.now, end_of=lambda one: ends.get(one.name) if self.tells_ends else None
        )
        waiting = []
        for one, lasts in self.queue:
            if decision.judge(one).starts:
                places = [decision.fleet.where(each) for each in one.pods]
                mine = [
                    msgspec.structs.replace(each, node=state.name) for each, state in zip(one.pods, places) if state
                ]
                self.running[one.name] = (self.now + lasts, mine)
                self.started[one.name] = self.now
            else:
                waiting.append((one, lasts))
        self.queue = waiting
        if decision.reservations:
            self._look(decision)

    def _look(self, decision: Backfill) -> None:
        first = decision.reservations[0]
        lack = dict.fromkeys(first.nodes, -SIZE)
        for node_name, each in zip(first.nodes, first.pods):
            lack[node_name] += each.shape.asks(GPU)
        for _, mine in self.running.values():
            for each in mine:
                if each.node in lack:
                    lack[each.node] += each.shape.asks(GPU)
        has_to_end = sum(max(amount, 0) for amount in lack.values())
        name, start, to_end = self.head
        if name == first.name:
            if self.tells_ends:
                assert first.start <= start, "somebody who passed it delays it"
            else:
                assert has_to_end <= to_end, "more has to end for it than before"
        self.head = (first.name, first.start, has_to_end)

    def pass_on(self) -> None:
        """To the next end."""
        self.now = min(end for end, _ in self.running.values())
        self.running = {name: pair for name, pair in self.running.items() if pair[0] > self.now}


JOBS = st.lists(
    st.tuples(st.sampled_from((1, 1, 1, 2, 4, 8)), st.integers(1, 2), st.integers(1, 40)), min_size=3, max_size=25
)


@pytest.mark.parametrize("tells_ends", [True, False])
@given(jobs=JOBS, nodes=st.integers(2, 4))
@settings(max_examples=60, deadline=None)
def test_nobody_is_delayed_by_those_who_pass_and_everybody_starts(
    tells_ends: bool, jobs: list[tuple[int, int, int]], nodes: int
) -> None:
    """With known ends the first of the queue starts no later than it was promised; with unknown ones what has to end
    for it only shrinks. Either way it starts, whoever comes after it, and then the next is the first."""
    world = World(nodes, tells_ends=tells_ends)
    left = list(enumerate(jobs))
    while left or world.queue or world.running:
        for number, (gpus, count, lasts) in left[:2]:
            told = float(lasts) if tells_ends else None
            world.queue.append((queued(f"j{number}", gpus, count, lasts_s=told), float(lasts)))
        left = left[2:]
        world.turn()
        if world.running:
            world.pass_on()
    assert len(world.started) == len(jobs)


def test_the_cost_grows_with_kinds_of_gangs_not_with_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    real_place, real_take = packing.place, packing.take

    def counting(real: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            return real(*arguments, **more)

        return call

    monkeypatch.setattr(backfill, "place", counting(real_place))
    monkeypatch.setattr(earliest_start, "place", counting(real_place))
    monkeypatch.setattr(backfill, "take", counting(real_take))
    pods = [held(f"p{number}", 7, f"n{number}") for number in range(500)]
    decision = Backfill(fleet(501, *pods), 0.0)
    gangs = [queued(f"g{number}", (8, 4, 2)[number % 3], (3, 2, 5)[number % 3]) for number in range(1000)]
    for one in gangs:
        decision.judge(one)
    assert calls < 400
