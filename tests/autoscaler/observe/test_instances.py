"""What is seen of providers that answer, and of those that do not: asked how often, remembered how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from longboat.autoscaler.model.backoff import pause_end
from longboat.autoscaler.model.config import DISTRUST_S, AutoscalerConfig
from longboat.autoscaler.model.snapshot import FailureKind, Pool
from longboat.autoscaler.observe.instances import InstanceList, NodeInstances, list_instances
from longboat.autoscaler.observe.observe import observe
from longboat.autoscaler.observe.orders import LAG_S, JoinedInstances, OrderBook, PlacedOrder, failed, reconcile
from longboat.autoscaler.providers.provider import Description, Instance, MachineRequest, ProviderAnswer, ProviderError
from longboat.autoscaler.purchase.offers import offers_of
from longboat.fitting.model.nodes import NodeShape

NOW = 1_000_000.0


def pool(name: str, provider: str) -> Pool:
    return Pool(name=name, machine=NodeShape(name=name, labels={}, allocatable=()), provider=provider, max=3)


CONFIG = AutoscalerConfig(pools=(pool("gpu", "cloud"), pool("spot", "cloud"), pool("metal", "rack")))


class Cloud:
    """Answers as it is told to; counts how often it is asked."""

    def __init__(self, kind: FailureKind | None = None) -> None:
        self.kind, self.asked = kind, 0

    def list(self, pools: Sequence[Pool]) -> ProviderAnswer:
        self.asked += 1
        if self.kind is not None:
            raise ProviderError(f"it says {self.kind}", kind=self.kind)
        return ProviderAnswer(machines=tuple(Instance(id=f"m-{one.name}", pool=one.name) for one in pools))

    def grow(self, pool: Pool, request: MachineRequest) -> tuple[Instance, ...]:
        raise NotImplementedError

    def shrink(self, pool: Pool, machines: Sequence[str], tokens: Sequence[str] = ()) -> None:
        raise NotImplementedError

    def describe(self, pool: Pool) -> Description:
        raise NotImplementedError


def seen(cloud: Cloud, book: OrderBook | None = None, now: float = NOW) -> InstanceList:
    return list_instances({"cloud": cloud, "rack": Cloud()}, CONFIG, book or OrderBook(), now)


@pytest.mark.parametrize(
    ("machine", "own", "is_same"),
    [
        ("aws:///us-east-1a/i-2", "aws:///us-east-1a/i-1", False),
        ("aws:///us-east-1a/i-2", "aws:///us-east-1a/i-2", True),
        ("aws:///us-east-1a/i-2", "", True),
        ("m-2", "metal://rack-1", True),
        ("gce://1234/z/gke-a", "gce://lab/z/gke-a", True),
    ],
)
def test_the_machine_of_a_node_is_no_other_one_that_has_got_its_name(machine: str, own: str, is_same: bool) -> None:
    """The former one is gone, its Node object not yet: whoever deletes that must not hit the new machine."""
    known = Instance(id=machine, pool="gpu", node="ip-10-0-0-5")
    node = {"metadata": {"name": "ip-10-0-0-5"}, "spec": {"providerID": own}}
    assert NodeInstances(ProviderAnswer(machines=(known,))).of(node) == (known if is_same else None)
    # One that is not taken for joined is still to come, and nothing else is bought in its place.
    assert JoinedInstances([("ip-10-0-0-5", own or None)]).has(machine, "ip-10-0-0-5") == is_same
    assert not JoinedInstances([("other", own or None)]).has("aws:///b/i-9", "ip-10-0-0-5")


def test_all_is_well() -> None:
    found = seen(Cloud())
    assert {one.id for one in found.seen.machines} == {"m-gpu", "m-spot", "m-metal"}
    assert (found.book, found.blind, found.blocked) == (OrderBook(), {}, ())


def test_one_that_does_not_answer_blinds_its_own_pools_for_this_moment() -> None:
    order = PlacedOrder(token="t", pool="gpu", count=1, asked=NOW, machines=("old",), is_confirmed=True)
    found = seen(Cloud("other"), OrderBook(orders=(order,)))
    assert set(found.blind) == {"gpu", "spot"} == {one.pool for one in found.blocked}
    assert all(one.is_blind for one in found.blocked)
    assert {one.id for one in found.seen.machines} == {"m-metal", "old"}, "what was promised is not forgotten"
    assert found.book.failures == ()


def test_one_that_throttles_is_not_asked_until_its_pause_is_over_and_then_less_often() -> None:
    cloud, book, now = Cloud("throttled"), OrderBook(), NOW
    for number in range(300):
        now = NOW + number
        book = seen(cloud, book, now).book
    assert 7 <= cloud.asked <= 9, "300 loops, one a second"
    (failure,) = book.failures
    assert failure.provider == "cloud" and failure.count == cloud.asked
    found = seen(cloud, book, failure.at + 1)
    assert set(found.blind) == {"gpu", "spot"} and found.blocked == ()
    assert "its provider cloud is not asked before" in found.blind["gpu"]


def test_a_list_that_works_does_not_forget_that_orders_were_throttled() -> None:
    book = failed(OrderBook(), CONFIG.refusal("gpu", "throttled", NOW - 10))
    assert seen(Cloud(), book).book == book


def test_rights_that_come_back_have_the_pools_asked_again() -> None:
    refused = failed(OrderBook(), CONFIG.refusal("gpu", "auth", NOW - 500))
    assert seen(Cloud(), refused).book == refused, "who may list may still not be allowed to order"
    lost = seen(Cloud("auth"), refused).book
    assert {(one.pool, one.is_blind) for one in lost.failures} == {("gpu", False), ("gpu", True), ("spot", True)}
    assert seen(Cloud("auth"), lost, NOW + 10).book == lost, "the same again is no news"
    assert seen(Cloud(), lost, NOW + 20).book.failures == ()


class Shrunken(Cloud):
    """A cloud whose list shows only these."""

    def __init__(self, *machines: str) -> None:
        super().__init__()
        self.machines = machines

    def list(self, pools: Sequence[Pool]) -> ProviderAnswer:
        return ProviderAnswer(machines=tuple(Instance(id=one, pool="gpu") for one in self.machines))


def ordered(count: int, **more: Any) -> OrderBook:
    machines = tuple(f"m-{number}" for number in range(count))
    order = PlacedOrder(token="t", pool="gpu", count=count, asked=NOW - LAG_S, machines=machines, is_confirmed=True)
    return OrderBook(orders=(msgspec.structs.replace(order, **more),))


def look(book: OrderBook, *machines: str, now: float = NOW, joined: JoinedInstances | None = None) -> InstanceList:
    clouds = {"cloud": Shrunken(*machines), "rack": Cloud()}
    return list_instances(clouds, CONFIG, book, now, joined or JoinedInstances(()))


def test_a_list_that_lost_everything_is_not_believed_for_a_while() -> None:
    book = ordered(8)
    for now in (NOW, NOW + 60, NOW + DISTRUST_S - 1):
        found = look(book, now=now)
        book = reconcile(found.book, found.seen, JoinedInstances(()), CONFIG, now)
        assert set(found.blind) == {"gpu"} and "lacks 8 of 8 machines" in found.blind["gpu"]
        assert [(one.pool, one.is_blind) for one in found.blocked] == [("gpu", True)]
        assert len(book.order("t").machines) == 8, "nothing is forgotten"  # type: ignore[union-attr]
        assert len([one for one in found.seen.machines if one.pool == "gpu"]) == 8
        assert book.doubts == {"gpu": NOW}, "and it is remembered since when, by whoever comes next"
    found = look(book, now=NOW + DISTRUST_S)
    assert not found.blind and not found.blocked
    after = reconcile(found.book, found.seen, JoinedInstances(()), CONFIG, NOW + DISTRUST_S)
    assert after.order("t") is None, "now it is believed"
    assert look(after, now=NOW + DISTRUST_S + 1).book.doubts == {}


def test_machines_that_are_back_end_the_doubt() -> None:
    doubted = look(ordered(4)).book
    back = look(doubted, "m-0", "m-1", "m-2", "m-3", now=NOW + 5)
    assert not back.blind and back.book.doubts == {}


CASES: list[tuple[str, OrderBook, tuple[str, ...], JoinedInstances, bool]] = [
    ("most", ordered(5), ("m-0", "m-1"), JoinedInstances(()), True),
    ("half of them", ordered(4), ("m-0", "m-1"), JoinedInstances(()), False),
    ("a single one", ordered(1), (), JoinedInstances(()), False),
    ("a list that lags", ordered(4, asked=NOW - LAG_S + 1), (), JoinedInstances(()), False),
    ("they are nodes", ordered(4), (), JoinedInstances((f"m-{number}", None) for number in range(4)), False),
    ("another pool's", ordered(4, pool="metal"), (), JoinedInstances(()), False),
]


@pytest.mark.parametrize(("what", "book", "listed", "joined", "is_doubted"), CASES, ids=[one[0] for one in CASES])
def test_what_is_doubted(
    what: str, book: OrderBook, listed: tuple[str, ...], joined: JoinedInstances, is_doubted: bool
) -> None:
    found = look(book, *listed, joined=joined)
    assert ("gpu" in found.blind) == is_doubted == ("gpu" in found.book.doubts)


def test_a_pause_that_ends_while_others_are_asked_lasts_for_this_turn() -> None:
    """Passed over at the first reading of the clock; at the second the pause is over, and still nothing is ordered."""
    throttled = CONFIG.refusal("gpu", "throttled", NOW)
    until = pause_end(throttled, CONFIG.settings)
    cloud, rack = Cloud(), Cloud()
    times = iter((until - 0.001, until + 5.0))
    node = {"metadata": {"name": "n"}}
    seen = observe(
        lambda: {"Node": [node]}, CONFIG, {"cloud": cloud, "rack": rack}, failed(OrderBook(), throttled), times.__next__
    )
    assert (cloud.asked, rack.asked) == (0, 1)
    assert until - 1e-6 < seen.now < until and set(seen.blind) == {"gpu", "spot"}
    delays = {
        offer.name: offer.delay
        for offer in offers_of(CONFIG.pools, [], seen.snapshot.failures, {}, CONFIG.settings, seen.now).values()
    }
    assert delays["gpu"] is not None and delays["spot"] is not None and delays["metal"] is None
    later = observe(dict, CONFIG, {"cloud": cloud, "rack": rack}, seen.book, lambda: until)
    assert cloud.asked == 1 and later.now == until and not later.blind


def test_a_pause_that_begins_and_ends_within_one_look_lasts_for_this_turn() -> None:
    """The list itself is throttled, and another provider takes longer than the pause."""
    cloud, times = Cloud("throttled"), iter((NOW, NOW + 60.0))
    seen = observe(dict, CONFIG, {"cloud": cloud, "rack": Cloud()}, OrderBook(), times.__next__)
    (failure,) = seen.book.failures
    assert failure.at == NOW and seen.now < pause_end(failure, CONFIG.settings) and set(seen.blind) == {"gpu", "spot"}
