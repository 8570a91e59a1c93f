"""Orders and refusals between loops, as data; the ConfigMap on a real cluster."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.autoscaler.model.config import AutoscalerConfig
from longboat.autoscaler.model.provider_settings import KwokSettings
from longboat.autoscaler.model.snapshot import FailureKind
from longboat.autoscaler.observe.orders import (
    LAG_S,
    NAME,
    JoinedInstances,
    OrderBook,
    OrdersChanged,
    OrderStore,
    PlacedOrder,
    failed,
    note_deletion,
    orders_of,
    orphans,
    reconcile,
    retried,
    without_machine,
    worked,
)
from longboat.autoscaler.providers.provider import Instance, ProviderAnswer, Refusal
from longboat.core.errors import EngineError
from longboat.kubeapi.kinds import CONFIG_MAP
from tests.autoscaler.stages import Stage, pool

NOW = 1_000_000.0
NOBODY = JoinedInstances([])
GPU, CPU = pool("gpu"), pool("cpu")
CONFIG = AutoscalerConfig(pools=(GPU, CPU))


def asked(token: str = "t", count: int = 2, **more: Any) -> PlacedOrder:
    return PlacedOrder(
        **{"token": token, "pool": "gpu", "count": count, "asked": NOW - 10, "is_confirmed": True, **more}
    )


def machine(name: str, **more: Any) -> Instance:
    return Instance(**{"id": name, "pool": "gpu", **more})


def after(
    book: OrderBook, *machines: Instance, joined: JoinedInstances = NOBODY, now: float = NOW, **more: Any
) -> OrderBook:
    return reconcile(book, ProviderAnswer(machines=machines, **more), joined, CONFIG, now)


def names(book: OrderBook, *machines: Instance, joined: JoinedInstances = NOBODY, now: float = NOW) -> list[str]:
    return [one.machine for one in orders_of(book, ProviderAnswer(machines=machines), joined, now)]


def test_what_is_not_made_yet_has_a_stand_in() -> None:
    book = after(OrderBook(orders=(asked(),)))
    assert names(book) == ["t/0", "t/1"]


def test_machines_belong_to_their_order_by_token() -> None:
    there = machine("a", token="t")
    book = after(OrderBook(orders=(asked(is_confirmed=False),)), there)
    assert book.orders[0].machines == ("a",) and book.orders[0].is_confirmed
    assert names(book, there) == ["a", "t/0"]


def test_machines_without_a_token_are_given_to_an_order_of_their_pool_and_zone() -> None:
    book = OrderBook(orders=(asked("x", 1, zone="a"), asked("y", 1, zone="b")))
    found = after(book, machine("m", zone="b"))
    assert {one.token: one.machines for one in found.orders} == {"x": (), "y": ("m",)}


def test_a_machine_that_nobody_ordered_is_waited_for_as_well() -> None:
    found = after(OrderBook(), machine("m", zone="a", created=5.0))
    (order,) = found.orders
    assert (order.machines, order.asked, order.zone) == (("m",), NOW, "a")
    assert after(found, machine("m", zone="a"), now=NOW + 60).orders == found.orders
    assert after(found).orders == found.orders, "it may be missing from the list for a while"
    assert after(found, now=NOW + LAG_S + 1).orders == ()


@pytest.mark.parametrize(
    "joined",
    [JoinedInstances([("node-a", "a")]), JoinedInstances([("a", None)]), JoinedInstances([("other-name", None)])],
)
def test_a_machine_that_has_joined_is_no_order_any_more(joined: JoinedInstances) -> None:
    there = machine("a", token="t", node="other-name")
    book = after(OrderBook(orders=(asked(count=1),)), there, joined=joined)
    assert book.orders == () and names(book, there, joined=joined) == []


def test_half_of_an_order_has_joined() -> None:
    there = (machine("a", token="t"), machine("b", token="t"))
    joined = JoinedInstances([("a", "a")])
    book = after(OrderBook(orders=(asked(),)), *there, joined=joined)
    assert book.orders[0].machines == ("a", "b") and names(book, *there, joined=joined) == ["b"]


def test_a_machine_that_is_promised_is_waited_for_though_the_list_lags() -> None:
    book = OrderBook(orders=(asked(count=1, machines=("a",)),))
    assert names(after(book)) == ["a"]
    assert after(book, now=NOW + LAG_S).orders == ()


def test_a_machine_that_stops_is_not_counted_and_one_that_failed_is_overdue() -> None:
    book = OrderBook(orders=(asked(machines=("a", "b")),))
    there = (machine("a", state="stopping"), machine("b", state="failed"))
    (order,) = orders_of(after(book, *there), ProviderAnswer(machines=there), NOBODY, NOW)
    assert (order.machine, order.asked) == ("b", 0.0)


def test_a_late_refusal_ends_the_rest_of_its_order_and_is_remembered() -> None:
    refusal = Refusal(pool="gpu", kind="stockout", token="t", zone="a", message="none left")
    book = after(OrderBook(orders=(asked(zone="a"),)), machine("m", token="t"), refusals=(refusal,))
    again = after(book, machine("m", token="t"), refusals=(refusal,))
    for found in (book, again):
        (failure,) = found.failures
        assert (failure.kind, failure.zone, failure.count, failure.at) == ("stockout", "a", 1, NOW)
    assert names(again, machine("m", token="t")) == ["m"]


def test_a_refusal_without_token_ends_the_oldest_order() -> None:
    refusal = Refusal(pool="gpu", kind="quota")
    book = after(OrderBook(orders=(asked(), asked("u"))), refusals=(refusal,))
    assert [one.token for one in book.orders] == ["u"] and len(book.failures) == 1


def test_refusals_in_a_row_are_counted_until_something_works() -> None:
    first = failed(OrderBook(), CONFIG.refusal("gpu", "stockout", NOW, zone="a"))
    book = failed(
        first,
        msgspec.structs.replace(CONFIG.refusal("gpu", "stockout", NOW + 1, zone="a"), message="x" * 999),
    )
    (failure,) = book.failures
    assert (failure.count, failure.kind, failure.at, len(failure.message)) == (2, "stockout", NOW + 1, 200)
    assert worked(book, GPU, "b") is book
    assert worked(book, GPU, "a").failures == ()
    assert note_deletion(book, GPU) is book, "a deletion says nothing about stock"
    assert after(book, now=NOW + 7300).failures == ()


def test_refusals_of_different_kinds_are_counted_apart() -> None:
    book = OrderBook()
    kinds: tuple[FailureKind, ...] = ("stockout", "throttled", "stockout", "auth", "throttled", "quota")
    for kind in kinds:
        book = failed(book, CONFIG.refusal("gpu", kind, NOW, zone="a"))
    found = {one.kind: (one.count, one.zone) for one in book.failures}
    assert found == {"stockout": (2, "a"), "throttled": (2, "a"), "auth": (1, None), "quota": (1, None)}
    assert worked(book, GPU, "b").failures == tuple(one for one in book.failures if one.kind == "stockout")
    assert {one.kind for one in note_deletion(book, GPU).failures} == {"stockout", "quota"}
    assert retried(book, ["gpu"]).failures == () and retried(book, ["cpu"]) is book


def test_throttling_is_counted_for_the_provider_and_forgotten_after_minutes() -> None:
    book = failed(OrderBook(), CONFIG.refusal("gpu", "throttled", NOW))
    book = failed(book, CONFIG.refusal("cpu", "throttled", NOW + 1))
    (failure,) = book.failures
    assert (failure.provider, failure.count) == ("kwok", 2)
    assert worked(book, CPU, None).failures == ()
    assert after(book, now=NOW + 100).failures and not after(book, now=NOW + 130).failures


def test_an_auth_is_remembered_until_the_pools_file_says_something_else() -> None:
    book = failed(OrderBook(), CONFIG.refusal("gpu", "auth", NOW))
    assert after(book, now=NOW + 1e8) == book, "time alone changes nothing"
    for other in (
        AutoscalerConfig(pools=(msgspec.structs.replace(GPU, max=11), CPU)),
        AutoscalerConfig(pools=(GPU, CPU), providers={"kwok": KwokSettings(ready_after_s=1.0)}),
    ):
        assert reconcile(book, ProviderAnswer(), NOBODY, other, NOW).failures == ()
    same = AutoscalerConfig(pools=(GPU, msgspec.structs.replace(CPU, max=3)))
    assert reconcile(book, ProviderAnswer(), NOBODY, same, NOW).failures == book.failures


def test_an_order_whose_pool_left_the_pools_file_is_kept_until_its_machines_are_nodes() -> None:
    book = OrderBook(orders=(asked(machines=("a", "b")), asked("u", 1, is_confirmed=False)))
    without = AutoscalerConfig(pools=(CPU,))
    late = NOW + 100 * LAG_S
    kept = reconcile(book, ProviderAnswer(), NOBODY, without, late)
    assert kept.orders == book.orders, "nobody can be asked what became of it"
    (words,) = orphans(kept, without.setups)
    assert "pool gpu is not in the pools file" in words and "3 machines" in words
    back = reconcile(kept, ProviderAnswer(machines=(machine("a"), machine("b"))), NOBODY, CONFIG, late)
    assert back.orders == book.orders and orphans(back, CONFIG.setups) == ()
    joined = JoinedInstances([("a", "a"), ("b", "b")])
    assert [one.token for one in reconcile(kept, ProviderAnswer(), joined, without, late).orders] == ["u"]


def test_a_machine_that_was_deleted_is_counted_in_no_order() -> None:
    book = OrderBook(orders=(asked(machines=("a", "b")), asked("u", 1, machines=("c",))))
    assert [(one.count, one.machines) for one in without_machine(book, "a").orders] == [(1, ("b",)), (1, ("c",))]
    assert [one.token for one in without_machine(book, "c").orders] == ["t"]
    assert without_machine(book, "x") == book


@pytest.mark.cluster
def test_the_memory_is_replaced_only_at_the_version_that_was_read(stage: Stage) -> None:
    one, other = OrderStore(stage.client, stage.namespace), OrderStore(stage.client, stage.namespace)
    one.load(), other.load()
    one.save(OrderBook(orders=(asked(),)))
    with pytest.raises(OrdersChanged):
        other.save(OrderBook())
    assert other.load() == OrderBook(orders=(asked(),))
    other.save(other.book.with_order(asked("u")))
    with pytest.raises(OrdersChanged):
        one.save(OrderBook())
    assert [order.token for order in one.load().orders] == ["t", "u"]


@pytest.mark.cluster
def test_a_memory_that_was_just_read_is_not_read_again_unless_it_has_changed(stage: Stage) -> None:
    ours, others = (OrderStore(stage.client, stage.namespace) for _ in range(2))
    ours.save(OrderBook(doubts={"gpu": 1.0}))
    others.load()
    others.save(OrderBook(doubts={"gpu": 2.0}))
    assert ours.load(within_s=3600.0).doubts == {"gpu": 1.0}
    with pytest.raises(OrdersChanged):
        ours.save(OrderBook(doubts={"gpu": 3.0}))
    assert ours.load(within_s=3600.0).doubts == {"gpu": 2.0}, "after a conflict nothing is known"


@pytest.mark.cluster
def test_what_was_noted_is_written_with_the_next_change_and_not_read_over(stage: Stage) -> None:
    ours, others = (OrderStore(stage.client, stage.namespace) for _ in range(2))
    ours.save(OrderBook(orders=(asked(is_confirmed=False),)))
    ours.note(ours.book.with_order(asked()))
    assert not others.load().orders[0].is_confirmed, "after a crash it would be sent again"
    assert ours.load().orders[0].is_confirmed
    ours.save(ours.book)
    assert others.load().orders[0].is_confirmed
    ours.note(OrderBook())
    others.save(OrderBook(doubts={"gpu": 1.0}))
    with pytest.raises(OrdersChanged):
        ours.save(ours.book)
    assert ours.load().doubts == {"gpu": 1.0}, "what was noted on an old memory is void"


@pytest.mark.cluster
def test_a_memory_that_is_not_understood_is_named(stage: Stage) -> None:
    OrderStore(stage.client, stage.namespace).save(OrderBook(orders=(asked(),)))
    stage.client.patch(CONFIG_MAP, NAME, {"data": {"memory": "{"}}, namespace=stage.namespace)
    with pytest.raises(EngineError, match=f"{stage.namespace}/{NAME} is not understood"):
        OrderStore(stage.client, stage.namespace).load()


def test_what_a_newer_version_adds_is_passed_over() -> None:
    assert msgspec.json.decode(b'{"orders": [], "new": 1}', type=OrderBook) == OrderBook()
