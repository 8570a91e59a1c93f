"""The size of an elastic run on this machine: with which it starts, when it grows, when it gives nodes back. Pure.

Requests are those of all its sizes, the smallest first; a size is its place among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from longboat.core.jobs import Value
from longboat.engines.local.queue.admission import (
    FreeResources,
    Ticket,
    decide_admission,
    lacking_of,
    queue_order,
    reserve,
)
from longboat.engines.local.queue.machine import Gpu
from longboat.engines.local.queue.requests import RequestedResources, take_gpus


class SizeChoice(Value, frozen=True):
    place: int | None  # None: not even the smallest fits
    reason: str = ""  # why it waits; of one that may start, why it is no larger


def choose_size(
    me: Ticket, tickets: Sequence[Ticket], free: FreeResources, requests: Sequence[RequestedResources]
) -> SizeChoice:
    """The largest size that may start now, behind all that earlier runs wait for."""
    reason = ""
    for place in reversed(range(len(requests))):
        waits = decide_admission(msgspec.structs.replace(me, request=requests[place]), tickets, free)
        if waits is None:
            return SizeChoice(place=place, reason=reason)
        reason = waits
    return SizeChoice(place=None, reason=reason)


def room_to_grow(
    me: Ticket, tickets: Sequence[Ticket], free: FreeResources, requests: Sequence[RequestedResources]
) -> int | None:
    """The largest size of a run for which there is room beside what it has; None: for none that is larger.

    Whoever waits comes first, whatever his place in the queue: a run that grows takes only what would be idle.
    """
    left = free
    for other in queue_order(tickets):
        left = reserve(left, other.request)
    larger = range(len(requests) - 1, requests.index(me.request), -1)
    return next((place for place in larger if not lacking_of(added(me.request, requests[place]), left)), None)


def added(before: RequestedResources, after: RequestedResources) -> RequestedResources:
    """What a larger size needs besides."""
    more = Counter(after.gpus) - Counter(before.gpus)
    return RequestedResources(
        gpus=tuple(more.elements()), cpus=after.cpus - before.cpus, memory=after.memory - before.memory
    )


def gives_back(me: Ticket, tickets: Sequence[Ticket], free: FreeResources, gpus: Mapping[str, Gpu]) -> str | None:
    """The waiting run for which this elastic one goes down to its smallest size; None: for nobody.

    That run has the higher claim, and can start with what elastic runs of a lower claim give back. Those of the lowest
    claim give first, and no more of them than are needed: everybody decides the same. `gpus`: of this machine, by id.
    """
    waiting = next((each for each in queue_order(tickets) if decide_admission(each, tickets, free)), None)
    if waiting is None or not _has_surplus(me) or me.claim <= waiting.claim:
        return None
    giving = [each for each in tickets if each.holds and _has_surplus(each) and each.claim > waiting.claim]
    for each in sorted(giving, key=lambda ticket: ticket.claim, reverse=True):
        free = _with_surplus(free, each, gpus)
        is_enough = decide_admission(waiting, tickets, free) is None
        if each.run == me.run:
            return waiting.run if is_enough or _helps(waiting, tickets, free, giving, gpus, me) else None
        if is_enough:
            return None
    return None


def _helps(
    waiting: Ticket,
    tickets: Sequence[Ticket],
    free: FreeResources,
    giving: Sequence[Ticket],
    gpus: Mapping[str, Gpu],
    me: Ticket,
) -> bool:
    """Whether those who give after this one make it enough."""
    for each in giving:
        free = _with_surplus(free, each, gpus) if each.claim < me.claim else free
    return decide_admission(waiting, tickets, free) is None


def _has_surplus(ticket: Ticket) -> bool:
    return ticket.least is not None and ticket.least != ticket.request


def kept_gpus(ticket: Ticket, request: RequestedResources, gpus: Mapping[str, Gpu]) -> list[tuple[Gpu, ...]]:
    """Of those that it holds, the GPUs for each node of a smaller size."""
    held = [gpus[id] for id in ticket.gpus if id in gpus]
    return take_gpus(held, request) or []


def _with_surplus(free: FreeResources, ticket: Ticket, gpus: Mapping[str, Gpu]) -> FreeResources:
    assert ticket.least is not None
    kept = {gpu.id for node in kept_gpus(ticket, ticket.least, gpus) for gpu in node}
    given = tuple(gpus[id] for id in ticket.gpus if id in gpus and id not in kept)
    return FreeResources(
        gpus=(*free.gpus, *given),
        cpus=free.cpus + ticket.request.cpus - ticket.least.cpus,
        memory=free.memory + ticket.request.memory - ticket.least.memory,
    )
