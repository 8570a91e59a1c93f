"""Scale sets as values: orders in tags, whose machine is whose."""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.autoscaler.providers.azure.scale_sets import (
    LONGEST_TAG,
    MOST_ORDERS,
    ScaleSet,
    SetMachine,
    SetOrder,
    ended,
    provider_id,
    read_set,
    tokens_of,
    with_cancelled,
    with_order,
)

BODY: dict[str, Any] = {
    "id": "/s",
    "name": "s",
    "location": "l",
    "sku": {"name": "t", "capacity": 2},
    "tags": {"a": "b"},
}


def machine(number: int, created: float | None, state: Any = "running") -> SetMachine:
    return SetMachine(number=str(number), path=f"/s/virtualMachines/{number}", state=state, created=created)


def orders(*pairs: tuple[int, int]) -> tuple[SetOrder, ...]:
    return tuple(SetOrder(token=f"t{number}", count=count, at=at) for number, (count, at) in enumerate(pairs))


def test_an_order_raises_the_capacity_by_what_it_lacks() -> None:
    first = with_order(read_set(BODY), "t", 3, 100)
    assert (first.capacity, first.orders) == (5, (SetOrder(token="t", count=3, at=100),)) and first.tags["a"] == "b"
    assert with_order(first, "t", 3, 200).capacity == 5
    assert with_order(first, "u", 1, 200).capacity == 6


def test_only_the_newest_orders_are_kept() -> None:
    each: ScaleSet = read_set(BODY)
    for number in range(40):
        each = with_order(each, f"t{number}", 1, number)
    assert [order.token for order in each.orders] == [f"t{number}" for number in range(40 - MOST_ORDERS, 40)]
    assert each.tags["a"] == "b" and each.capacity == 42


def test_cancelled_orders_have_room_in_one_tag() -> None:
    each = with_cancelled(read_set(BODY), [f"{number:016x}" for number in range(40)])
    assert each.cancelled[-1] == f"{39:016x}" and max(map(len, each.tags.values())) <= LONGEST_TAG


def test_a_machine_belongs_to_the_newest_order_before_it() -> None:
    placed = orders((2, 100), (1, 500))
    made = [machine(1, 130.0), machine(2, 131.0), machine(3, 530.0)]
    assert tokens_of(placed, made) == {"1": "t0", "2": "t0", "3": "t1"}
    assert tokens_of(placed, made[2:]) == {"3": "t1"}, "also when the others are deleted"
    assert tokens_of(placed, [machine(9, 20.0)]) == {}, "older than all orders"
    assert tokens_of(placed, [machine(9, None)]) == {"9": "t1"}


def test_orders_at_the_same_time_share_machines() -> None:
    placed = orders((2, 100), (2, 100))
    made = [machine(number, 130.0 + number) for number in range(4)]
    assert [*tokens_of(placed, made).values()] == ["t0", "t0", "t1", "t1"]


def test_what_failed_is_no_goal_any_more() -> None:
    each = with_order(read_set({**BODY, "sku": {"name": "t", "capacity": 0}}), "t", 3, 100)
    after = ended(each, [machine(1, 110.0), machine(2, 110.0, "stopping")], "stockout")
    assert after.capacity == 1
    assert after.orders == (SetOrder(token="t", count=2, at=100, refused="stockout"),)
    assert ended(msgspec.structs.replace(each, capacity=0), [machine(1, 110.0)], "quota").capacity == 0, "never larger"


def test_odd_tags_are_no_orders() -> None:
    tags = {"longboat-order-x": "many", "longboat-order-y": "1", "longboat-order-z": "2 100 nothing", "max": "x"}
    each = read_set({**BODY, "tags": tags})
    assert each.orders == (SetOrder(token="z", count=2, at=100),) and each.max is None


def test_provider_ids_are_as_kubelets_write_them() -> None:
    path = (
        "/subscriptions/S/resourceGroups/MC_Lab/providers/Microsoft.Compute/virtualMachineScaleSets/V/virtualMachines/0"
    )
    assert provider_id(path) == "azure://" + path.replace("MC_Lab", "mc_lab")
