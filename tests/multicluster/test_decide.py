"""The choice of a cluster as data: what each answered in, the order and the reasons out."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.engines.lifecycle.outlook import Answer, Outlook
from longboat.multicluster.decide import AskedPlace, choose


def place(name: str, answer: Answer, **fields: Any) -> AskedPlace:
    return AskedPlace(name=name, outlook=Outlook(answer=answer, **fields))


NOW = place("lab", "now", price=0.0)
SOON = place("soon", "waits", wait_s=60.0, price=9.0, reason="waits for 1 GPU")
LATER = place("later", "waits", wait_s=3600.0)
BUYS = place("cloud", "buys", wait_s=300.0, price=32.77)
SOME_TIME = place("queue", "waits", price=0.0)
NEVER = place("small", "never", reason="there is no claim data")
SILENT = place("away", "unknown", reason="no answer in 30 s")


@pytest.mark.parametrize(
    ("asked", "order"),
    [
        ([SOON, NOW], ["lab", "soon"]),
        ([LATER, BUYS, SOON], ["soon", "cloud", "later"]),
        ([SOME_TIME, BUYS], ["cloud", "queue"]),  # a wait that nobody knows is longer than one that is known
        ([place("a", "now", price=5.0), place("b", "now", price=2.0)], ["b", "a"]),
        ([place("a", "now"), place("b", "now", price=200.0)], ["b", "a"]),  # a price that is not known is not cheap
        ([place("a", "now", price=1.0), place("b", "now", price=1.0)], ["a", "b"]),
        ([NEVER, SILENT, SOON], ["soon"]),
        ([NEVER, SILENT], []),
    ],
)
def test_room_then_waiting_then_cost_then_the_users_order(asked: list[AskedPlace], order: list[str]) -> None:
    choice = choose(asked)
    assert list(choice.order) == order
    assert {name for name, _ in choice.against} | set(order[:1]) == {each.name for each in asked}


def test_each_of_the_others_has_its_reason() -> None:
    choice = choose([NEVER, SILENT, BUYS, SOON, place("dear", "now", price=40.0), NOW])
    assert (choice.order[0], choice.chosen) == ("lab", "room now, own machines")
    assert dict(choice.against) == {
        "small": "can never run it (there is no claim data)",
        "away": "not known (no answer in 30 s)",
        "cloud": "would buy machines and wait about 5m, 32.77 USD per hour",
        "soon": "would wait about 1m (waits for 1 GPU), 9.00 USD per hour",
        "dear": "room now, 40.00 USD per hour: dearer than lab",
    }
    assert dict(choose([NOW, place("twin", "now", price=0.0)]).against) == {
        "twin": "room now, own machines: no cheaper than lab"
    }
