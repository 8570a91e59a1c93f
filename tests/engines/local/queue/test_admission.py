"""Who may start: tables, and by property that nobody is passed or given what is taken."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.jobs import Gpus
from longboat.engines.local.queue.admission import FreeResources, decide_admission, queue_order, reserve
from longboat.engines.local.queue.machine import Gpu
from longboat.engines.local.queue.requests import RequestedResources, take_gpus
from tests.engines.local.values import GiB, ask, gpu, ticket

FOUR = tuple(gpu(f"g{n}", n) for n in range(4))
MIXED = (
    gpu("small", 0, type="T4", memory=16 * GiB),
    gpu("large", 1, type="H100", memory=80 * GiB),
    gpu("mid", 2, type="A100", memory=40 * GiB),
)


def ids(taken: list[tuple[Gpu, ...]] | None) -> list[list[str]] | None:
    return None if taken is None else [[each.id for each in node] for node in taken]


@pytest.mark.parametrize(
    ("free", "request_", "expected"),
    [
        (FOUR, ask(2), [["g0", "g1"]]),
        (FOUR, ask(1, 1), [["g0"], ["g1"]]),
        (FOUR, ask(0, 4, 0), [[], ["g0", "g1", "g2", "g3"], []]),
        (FOUR, ask(3, 2), None),
        (FOUR, ask(), []),
        ((), ask(0), [[]]),
        (MIXED, ask(1), [["small"]]),
        (MIXED, ask(Gpus(count=1, type="h100")), [["large"]]),
        (MIXED, ask(Gpus(count=1, memory=30 * GiB)), [["mid"]]),
        (MIXED, ask(1, Gpus(count=1, memory=16 * GiB)), [["mid"], ["small"]]),
        (MIXED, ask(1, Gpus(count=1, type="T4")), [["mid"], ["small"]]),
        (MIXED, ask(Gpus(count=2, memory=50 * GiB)), None),
        (FOUR, ask(Gpus(count=1, type="H100")), None),
    ],
)
def test_which_gpus_are_taken(
    free: tuple[Gpu, ...], request_: RequestedResources, expected: list[list[str]] | None
) -> None:
    assert ids(take_gpus(free, request_)) == expected


def test_the_queue_is_served_by_priority_then_by_number() -> None:
    tickets = [
        ticket("c", 3, ask()),
        ticket("a", 1, ask()),
        ticket("h", 0, ask(), holds=True),
        ticket("p", 9, ask(), priority=1),
    ]
    assert [each.run for each in queue_order(tickets)] == ["p", "a", "c"]


ALL = FreeResources(gpus=FOUR[:2], cpus=4, memory=8 * GiB)
NO_GPU = FreeResources(gpus=(), cpus=4, memory=8 * GiB)
ONE_GPU = FreeResources(gpus=FOUR[:1], cpus=4, memory=8 * GiB)


@pytest.mark.parametrize(
    ("me", "others", "free", "expected"),
    [
        (ticket("me", 5, ask(2)), [], ALL, None),
        (ticket("me", 5, ask(0)), [], NO_GPU, None),
        (ticket("me", 5, ask(1)), [ticket("h", 1, ask(2), holds=True)], NO_GPU, "waits for 1 GPU (0 free); held by h"),
        (
            ticket("me", 5, ask(1)),
            [ticket("h", 1, ask(1), holds=True), ticket("big", 2, ask(2))],
            ONE_GPU,
            "waits for 1 GPU (1 free, kept for big)",
        ),
        (
            ticket("me", 5, ask(2)),
            [ticket("h", 1, ask(1), holds=True), ticket("big", 2, ask(2))],
            ONE_GPU,
            "waits for 2 GPUs (0 free); held by h; 1 run before it",
        ),
        (ticket("me", 5, ask(0)), [ticket("big", 2, ask(2))], ONE_GPU, None),
        (ticket("me", 5, ask(1)), [ticket("later", 6, ask(2))], ONE_GPU, None),
        (ticket("me", 5, ask(1), priority=1), [ticket("before", 2, ask(2))], ONE_GPU, None),
        (ticket("me", 5, ask(1)), [ticket("before", 2, ask(1))], ALL, None),
        (
            ticket("me", 5, ask(0, cpus=3)),
            [ticket("h", 1, ask(0, cpus=2), holds=True)],
            FreeResources(gpus=(), cpus=2, memory=GiB),
            "waits for 3 CPUs (2 free); held by h",
        ),
        (
            ticket("me", 5, ask(0, memory=2 * GiB)),
            [ticket("h", 1, ask(0, memory=7 * GiB), holds=True), ticket("x", 2, ask(0, cpus=1), holds=True)],
            FreeResources(gpus=(), cpus=4, memory=GiB),
            "waits for 2Gi of memory (1Gi free); held by h",
        ),
        (
            ticket("me", 5, ask(0, cpus=0.1)),
            [ticket("b", 1, ask(0, cpus=0.2))],
            FreeResources(gpus=(), cpus=0.3, memory=0),
            None,
        ),
    ],
)
def test_who_may_start(me, others, free, expected) -> None:  # type: ignore[no-untyped-def]
    assert decide_admission(me, [*others, me], free) == expected


REQUESTS = st.builds(
    lambda gpus, cpus: ask(*gpus, cpus=float(cpus)),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.integers(0, 4),
)


@given(requests=st.lists(REQUESTS, min_size=1, max_size=6), count=st.integers(0, 6), cpus=st.integers(0, 8))
def test_no_later_run_delays_an_earlier_one(requests: list[RequestedResources], count: int, cpus: int) -> None:
    """Whoever may start leaves enough for everybody before it that could start too."""
    free = FreeResources(gpus=tuple(gpu(str(n), n) for n in range(count)), cpus=cpus, memory=0)
    tickets = [ticket(f"r{n}", n, request) for n, request in enumerate(requests)]
    left = free
    for each in tickets:
        if decide_admission(each, tickets, free) is None:
            taken = take_gpus(left.gpus, each.request)
            assert taken is not None and each.request.cpus <= left.cpus
            names = [one.id for node in taken for one in node]
            assert len(names) == len(set(names)) == each.request.gpu_count
        left = reserve(left, each.request)


@given(requests=st.lists(REQUESTS, min_size=1, max_size=6))
def test_the_first_run_that_fits_an_idle_machine_starts(requests: list[RequestedResources]) -> None:
    first = requests[0]
    free = FreeResources(
        gpus=tuple(gpu(str(n), n) for n in range(first.gpu_count)), cpus=first.cpus, memory=first.memory
    )
    tickets = [ticket(f"r{n}", n, request) for n, request in enumerate(requests)]
    assert decide_admission(tickets[0], tickets, free) is None


def test_a_run_that_a_budget_holds_back_reserves_nothing() -> None:
    first = msgspec.structs.replace(ticket("first", 1, ask(4)), is_held=True)
    second = ticket("second", 2, ask(4))
    free = FreeResources(gpus=FOUR, cpus=8, memory=GiB)
    assert queue_order([first, second]) == [second]
    assert decide_admission(second, [first, second], free) is None
