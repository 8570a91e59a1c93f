"""Departure from nodes that are about to go: a gang on one with a notice of termination saves, and moves if elastic.
Pure.

All ranks are asked for a checkpoint at once. An elastic run ends at that checkpoint, or shortly before the first of the
nodes goes, and its next attempt has what fits elsewhere: the nodes bear a taint that keeps new pods away. A run of one
size goes on until the node is really gone, with a checkpoint that is hardly older.
"""

from __future__ import annotations

import msgspec

from longboat.core.elastic.sizes import is_elastic, size_of
from longboat.core.words import listing
from longboat.engines.kubernetes.observe.node_notices import TerminationNotice
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.records import NodeDeparture, State

CLOSING_S = 5.0
"""Besides the grace of its ranks a gang needs so long to end, because the stop goes over the line, and the last lines
and the verdict are written before its pods are over."""
ASKED_FOR_S = 60.0
"""A launcher that could not be told to save for so long is not told any more: most nodes have gone by then, and a taint
that stays for days would have it tried for days."""
MOST_NAMED = 3  # nodes, and taints: it is one line of a status


def departing(state: State, snapshot: RunSnapshot, now: float) -> State:
    """The state of a run whose ranks run, with what is known of nodes that are about to go."""
    notices = _notices(snapshot)
    known = state.departure
    if not notices:
        return state if known is None else _undone(state, snapshot)
    if known is not None and notices.keys() <= set(known.hosts):
        return state
    job = snapshot.record.job
    ends = [notice.least_s for notice in notices.values() if notice.least_s is not None]
    due = now + max(0.0, min(ends) - job.grace_s - CLOSING_S) if ends else None
    if known is not None and known.due is not None:
        due = known.due if due is None else min(due, known.due)
    noted = msgspec.structs.replace(state, departure=NodeDeparture(hosts=tuple(sorted(notices)), since=now, due=due))
    if due is None or not is_elastic(job) or state.target is not None:
        return noted
    size = size_of(job) if state.wanted is None else min(size_of(job), state.wanted)
    return msgspec.structs.replace(noted, wanted=size, seen=None, size_reason=f"moves: {_words(notices)}")


def _notices(snapshot: RunSnapshot) -> dict[str, TerminationNotice]:
    hosts = {pod.host for pod in snapshot.pods_of(snapshot.state.attempt) if pod.end is None}
    return {name: host.leaving for name, host in snapshot.hosts.items() if name in hosts and host.leaving is not None}


def _undone(state: State, snapshot: RunSnapshot) -> State:
    """The notice was taken back, if its nodes were really looked at."""
    if state.departure is None or any(name not in snapshot.hosts for name in state.departure.hosts):
        return state
    if state.target is not None or state.departure.due is None:
        return msgspec.structs.replace(state, departure=None)
    return msgspec.structs.replace(state, departure=None, wanted=None, seen=None, size_reason="")


def _words(notices: dict[str, TerminationNotice]) -> str:
    verb = "is" if len(notices) == 1 else "are"
    named = listing(sorted(notices), MOST_NAMED)
    taints = listing(sorted({notice.taint for notice in notices.values()}), MOST_NAMED)
    return f"{'node' if len(notices) == 1 else 'nodes'} {named} {verb} about to go (taint {taints})"


def reason_of(snapshot: RunSnapshot) -> str:
    """What is said of a run that goes on although nodes of it are about to go; empty: none is."""
    notices = _notices(snapshot)
    return f"{_words(notices)}: its ranks are asked for a checkpoint" if notices else ""


def asks_to_save(snapshot: RunSnapshot, now: float) -> bool:
    """Whether the ranks are still to be asked for a checkpoint; of an elastic run once it is known which it has, and
    until it has to move without a new one."""
    state, departure = snapshot.state, snapshot.state.departure
    if departure is None or departure.told or state.phase != "running" or state.target is not None:
        return False
    if now >= departure.since + ASKED_FOR_S or (state.wanted is not None and is_due(state, now)):
        return False
    return state.wanted is None or state.seen is not None


def is_moving(state: State) -> bool:
    """Whether an elastic run is to end for nodes that go: the gate wants no other size of it meanwhile."""
    return state.departure is not None and state.departure.due is not None


def is_due(state: State, now: float) -> bool:
    """Whether an elastic run waits no longer for a checkpoint, since a node of it goes."""
    return state.departure is not None and state.departure.due is not None and now >= state.departure.due
