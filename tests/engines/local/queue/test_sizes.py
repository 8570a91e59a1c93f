"""Sizes of elastic runs on this machine: tables, and by property that nobody who waits loses anything by a growth."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.jobs import Job
from longboat.engines.local.queue.admission import FreeResources, Ticket, decide_admission, queue_order, reserve
from longboat.engines.local.queue.requests import RequestedResources, local_sizes, requests_of
from longboat.engines.local.queue.sizes import choose_size, gives_back, kept_gpus, room_to_grow
from tests.engines.local.values import GiB, ask, gpu, job, role, ticket

GPUS = {f"g{number}": gpu(f"g{number}", number) for number in range(8)}


def free(count: int, *, skip: int = 0, cpus: float = 64) -> FreeResources:
    return FreeResources(gpus=tuple(GPUS.values())[skip : skip + count], cpus=cpus, memory=64 * GiB)


def requests(low: int, high: int) -> tuple[RequestedResources, ...]:
    return requests_of(elastic(low, high))


def elastic(low: int, high: int, gpus: int = 1) -> Job:
    worker = msgspec.structs.replace(role("worker", nodes=high, gpus=gpus), min_nodes=low, max_nodes=high)
    return job(roles=(worker,))


def holding(run: str, number: int, size: int, low: int, high: int, *, priority: int = 0, skip: int = 0) -> Ticket:
    """An elastic run that holds `size` GPUs."""
    sizes = requests(low, high)
    ids = tuple(GPUS)[skip : skip + size]
    held = ticket(run, number, sizes[size - low], holds=True, priority=priority)
    return msgspec.structs.replace(held, least=sizes[0], gpus=ids)


@pytest.mark.parametrize(
    ("room", "others", "place", "reason"),
    [
        (8, [], 2, ""),
        (3, [], 1, "waits for 4 GPUs (3 free)"),
        (1, [], None, "waits for 2 GPUs (1 free)"),
        (4, [ticket("first", 1, ask(2))], 0, "waits for 3 GPUs (4 free, kept for first)"),
        (4, [ticket("later", 9, ask(2))], 2, ""),
    ],
)
def test_the_largest_size_that_fits_behind_all_before_it(
    room: int, others: list[Ticket], place: int | None, reason: str
) -> None:
    sizes = requests(2, 4)
    me = ticket("me", 5, sizes[0])
    choice = choose_size(me, [me, *others], free(room), sizes)
    assert (choice.place, choice.reason) == (place, reason)


@pytest.mark.parametrize(
    ("room", "others", "place"),
    [
        (0, [], None),
        (1, [], 1),
        (6, [], 2),
        (2, [ticket("later", 9, ask(2))], None),
        (3, [ticket("later", 9, ask(2))], 1),
        (2, [ticket("lower", 9, ask(1), priority=-5)], 1),
    ],
)
def test_it_grows_into_what_nobody_waits_for(room: int, others: list[Ticket], place: int | None) -> None:
    me = holding("me", 5, 2, 2, 4)
    assert room_to_grow(me, [me, *others], free(room, skip=2), requests(2, 4)) == place


@pytest.mark.parametrize(
    ("me", "others", "room", "expected"),
    [
        (holding("me", 5, 4, 1, 4), [ticket("urgent", 9, ask(2), priority=1)], 0, "urgent"),
        (holding("me", 5, 4, 1, 4), [ticket("later", 9, ask(2))], 0, None),
        (holding("me", 5, 4, 1, 4), [ticket("earlier", 3, ask(2))], 0, "earlier"),
        (holding("me", 5, 1, 1, 4), [ticket("urgent", 9, ask(2), priority=1)], 0, None),
        (holding("me", 5, 4, 1, 4), [ticket("urgent", 9, ask(4), priority=1)], 0, None),  # it would not help
        (holding("me", 5, 4, 1, 4), [ticket("urgent", 9, ask(4), priority=1)], 1, "urgent"),
        (holding("me", 5, 4, 1, 4), [ticket("urgent", 9, ask(1), priority=1)], 1, None),  # it starts by itself
        (  # who has the lower claim gives first, and that is enough
            holding("me", 5, 4, 1, 4),
            [holding("behind", 6, 4, 1, 4, skip=4), ticket("urgent", 9, ask(3), priority=1)],
            0,
            None,
        ),
        (
            holding("me", 5, 4, 1, 4),
            [holding("behind", 6, 4, 1, 4, skip=4), ticket("urgent", 9, ask(5), priority=1)],
            0,
            "urgent",
        ),
        (  # both are needed, and the last of the queue gives too
            holding("me", 7, 4, 1, 4),
            [holding("ahead", 6, 4, 1, 4, skip=4), ticket("urgent", 9, ask(5), priority=1)],
            0,
            "urgent",
        ),
    ],
)
def test_who_gives_nodes_back(me: Ticket, others: list[Ticket], room: int, expected: str | None) -> None:
    assert gives_back(me, [me, *others], free(room, skip=7), GPUS) == expected


def test_a_job_that_asks_for_nothing_has_its_largest_size() -> None:
    assert local_sizes(elastic(2, 5, gpus=0)) == (5,) and len(requests_of(elastic(2, 5, gpus=0))) == 1
    assert local_sizes(elastic(2, 5)) == (2, 3, 4, 5)
    assert len(kept_gpus(holding("me", 5, 4, 1, 4), requests(1, 4)[0], GPUS)) == 1


@given(
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(0, 6),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(-1, 1)), max_size=5),
)
def test_a_growth_delays_nobody(low: int, more: int, room: int, waiting: list[tuple[int, int, int]]) -> None:
    """Whoever could start before could start after, and what a waiting run has reserved is still there."""
    me = holding("me", 5, low, low, low + more)
    sizes = requests(low, low + more)
    others = [ticket(f"w{place}", number, ask(count), priority=priority)
              for place, (number, count, priority) in enumerate(waiting)]  # fmt: skip
    before = free(room, skip=low)
    place = room_to_grow(me, [me, *others], before, sizes)
    if place is None:
        return
    assert 0 < place < len(sizes)
    taken = sizes[place].gpu_count - sizes[0].gpu_count
    after = msgspec.structs.replace(before, gpus=before.gpus[: len(before.gpus) - taken])
    assert len(before.gpus) >= taken
    for other in others:
        if decide_admission(other, [me, *others], before) is None:
            assert decide_admission(other, [me, *others], after) is None
    assert kept(others, before) == kept(others, after)


def kept(others: list[Ticket], left: FreeResources) -> list[int]:
    """GPUs that are reserved for each waiting run."""
    counts = []
    for other in queue_order(others):
        counts.append(len(left.gpus))
        left = reserve(left, other.request)
        counts[-1] -= len(left.gpus)
    return counts
