"""What would let a waiting run start: tables, and by property that what is said is so."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.engines.local.queue.admission import FreeResources, Ticket, decide_admission
from longboat.engines.local.queue.openings import openings
from tests.engines.local.values import GiB, ask, gpu, ticket

FOUR = {f"g{n}": gpu(f"g{n}", n) for n in range(4)}


def holding(run: str, number: int, *names: str, **sizes: float) -> Ticket:
    request = ask(len(names), **sizes)  # type: ignore[arg-type]
    return msgspec.structs.replace(ticket(run, number, request, holds=True), gpus=names)


def told(me: Ticket, *others: Ticket, cpus: float = 8, memory: int = 8 * GiB) -> tuple[str, ...]:
    held = {name for other in others for name in other.gpus}
    free = FreeResources(gpus=tuple(each for name, each in FOUR.items() if name not in held), cpus=cpus, memory=memory)
    return openings(me, [*others, me], free, FOUR)


@pytest.mark.parametrize(
    ("me", "others", "expected"),
    [
        (ticket("me", 5, ask(2)), [holding("h", 1, "g0", "g1")], ()),
        (
            ticket("me", 5, ask(4)),
            [holding("h", 1, "g0", "g1")],
            ("it would start now with --gpus 2", "it starts when h ends"),
        ),
        (
            ticket("me", 5, ask(1)),
            [holding("a", 1, "g0", "g1"), holding("b", 2, "g2", "g3")],
            ("it starts when a or b ends",),
        ),
        (
            ticket("me", 5, ask(4)),
            [holding("a", 1, "g0", "g1"), holding("b", 2, "g2", "g3")],
            ("it starts when a and b have ended",),
        ),
        (
            ticket("me", 5, ask(4)),
            [holding("a", 1, "g0", "g1"), ticket("no-gpu", 2, ask(0, cpus=1), holds=True), holding("b", 3, "g2", "g3")],
            ("it starts when a and b have ended",),
        ),
        (
            ticket("me", 5, ask(2, 2)),
            [holding("a", 1, "g0", "g1")],
            ("it would start now with --gpus 1", "it starts when a ends"),
        ),
        (
            ticket("me", 5, ask(1, 1, 1)),
            [holding("a", 1, "g0", "g1")],
            ("it would start now with --nodes 2", "it starts when a ends"),
        ),
        (
            ticket("me", 5, ask(1)),
            [holding("h", 1, "g0", "g1"), ticket("big", 2, ask(4), priority=3)],
            (
                "it would start now with a higher priority: longboat priority me 4",
                "it starts when big before it has ended",
            ),
        ),
        (
            ticket("me", 5, ask(0, cpus=6)),
            [ticket("h", 1, ask(0, cpus=4), holds=True)],
            ("it starts when h ends",),
        ),
    ],
)
def test_what_lets_it_in(me: Ticket, others: list[Ticket], expected: tuple[str, ...]) -> None:
    assert told(me, *others, cpus=8 - sum(other.request.cpus for other in others)) == expected


@given(
    st.integers(1, 4),
    st.lists(st.integers(1, 2), max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=3),
)
def test_what_is_said_is_so(wanted: int, held: list[int], waiting: list[tuple[int, int]]) -> None:
    names = iter(FOUR)
    holders = [holding(f"h{at}", at, *[name for _, name in zip(range(count), names)]) for at, count in enumerate(held)]
    others = [ticket(f"w{at}", 10 + at, ask(count), priority=more) for at, (count, more) in enumerate(waiting)]
    me = ticket("me", 20, ask(wanted))
    taken = {name for holder in holders for name in holder.gpus}
    free = FreeResources(gpus=tuple(each for name, each in FOUR.items() if name not in taken), cpus=0, memory=0)
    everyone = [*holders, *others, me]
    said = openings(me, everyone, free, FOUR)
    assert bool(said) == (decide_admission(me, everyone, free) is not None) or not (holders or waiting)
    for sentence in said:
        words = sentence.split()
        if "--gpus" in words:
            changed = ticket("me", 20, ask(int(words[-1])))
        elif "priority" in words:
            changed = ticket("me", 20, ask(wanted), priority=int(words[-1]))
        else:
            continue
        assert decide_admission(changed, [*holders, *others, changed], free) is None, sentence
