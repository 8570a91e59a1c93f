"""Ways for a waiting run to start sooner on this machine: ends of other runs, a smaller request, a priority. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from longboat.core.words import listing
from longboat.engines.local.queue.admission import FreeResources, Ticket, decide_admission, queue_order
from longboat.engines.local.queue.machine import Gpu
from longboat.engines.shared.explanations import fewest

MOST_NAMES = 4  # in one sentence; `longboat ps` lists all


def openings(me: Ticket, tickets: Sequence[Ticket], free: FreeResources, gpus: Mapping[str, Gpu]) -> tuple[str, ...]:
    """Sentences, what helps at once first; none for a run that may start. `gpus`: of the machine, by id."""
    if decide_admission(me, tickets, free) is None:
        return ()
    return (*_at_once(me, tickets, free), *_ends(me, tickets, free, gpus))


def _at_once(me: Ticket, tickets: Sequence[Ticket], free: FreeResources) -> Iterator[str]:
    for option, smaller in _smaller(me):
        if decide_admission(smaller, tickets, free) is None:
            yield f"it would start now with {option}"
            break
    ahead = _ahead(me, tickets)
    urgent = msgspec.structs.replace(me, priority=max((other.priority for other in ahead), default=0) + 1)
    others = [other for other in tickets if other.run != me.run]
    if ahead and decide_admission(urgent, [*others, urgent], free) is None:
        yield f"it would start now with a higher priority: longboat priority {me.run} {urgent.priority}"


def _smaller(me: Ticket) -> Iterator[tuple[str, Ticket]]:
    """The same request with fewer GPUs on each node, then with fewer nodes: the largest first."""
    nodes = me.request.gpus
    if me.least is not None or not nodes or any(node != nodes[0] for node in nodes) or not nodes[0].count:
        return
    for count in range(nodes[0].count - 1, 0, -1):
        yield f"--gpus {count}", _asking(me, (msgspec.structs.replace(nodes[0], count=count),) * len(nodes))
    for number in range(len(nodes) - 1, 0, -1):
        yield f"--nodes {number}", _asking(me, nodes[:number])


def _asking(me: Ticket, gpus: tuple[object, ...]) -> Ticket:
    return msgspec.structs.replace(me, request=msgspec.structs.replace(me.request, gpus=gpus))


def _ends(me: Ticket, tickets: Sequence[Ticket], free: FreeResources, gpus: Mapping[str, Gpu]) -> Iterator[str]:
    """The end of each run that would be enough by itself; else of the fewest in the order of the queue."""
    holders = sorted((ticket for ticket in tickets if ticket.holds), key=lambda ticket: ticket.claim)
    alone = [each.run for each in holders if _starts_without([each], me, tickets, free, gpus)]
    if alone:
        yield f"it starts when {listing(alone, MOST_NAMES, separator=' or ')} ends"
        return
    names = [each.run for each in fewest(holders, lambda ended: _starts_without(ended, me, tickets, free, gpus))]
    if names:
        yield f"it starts when {', '.join(names[:-1])} and {names[-1]} have ended"
        return
    ahead = [other.run for other in _ahead(me, tickets)]
    if ahead:
        yield f"it starts when {listing(ahead, MOST_NAMES)} before it {'has' if len(ahead) == 1 else 'have'} ended"


def _starts_without(
    ended: Sequence[Ticket], me: Ticket, tickets: Sequence[Ticket], free: FreeResources, gpus: Mapping[str, Gpu]
) -> bool:
    given = [gpus[name] for ticket in ended for name in ticket.gpus if name in gpus]
    left = FreeResources(
        gpus=(*free.gpus, *given),
        cpus=free.cpus + sum(ticket.request.cpus for ticket in ended),
        memory=free.memory + sum(ticket.request.memory for ticket in ended),
    )
    gone = {ticket.run for ticket in ended}
    return decide_admission(me, [ticket for ticket in tickets if ticket.run not in gone], left) is None


def _ahead(me: Ticket, tickets: Sequence[Ticket]) -> list[Ticket]:
    return [other for other in queue_order(tickets) if other.claim < me.claim]
