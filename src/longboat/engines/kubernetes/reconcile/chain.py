"""Chained runs: held back until the runs have succeeded that they start after. Pure, but for `drive_predecessors`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from longboat.core.errors import NotFound
from longboat.core.jobs import MOST_AFTER
from longboat.core.runs import FINAL_PHASES, Failure
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.record_store import BadRecord, find_record, read_record, read_stop
from longboat.engines.kubernetes.records import Record, State, is_chained
from longboat.engines.lifecycle.predecessors import PredecessorView, judge_chain
from longboat.engines.shared.retry_policy import start_failure
from longboat.kubeapi.client import Client

FIRST_LOOK_S = 2.0  # chains of short steps go on at once
LONGEST_LOOK_S = 30.0
"""A chained run is looked at again after a twentieth of the time that it has waited, between these: the end of a run
before it wakes it anyway, where a controller or somebody's watch sees that."""
MOST_DRIVEN = 500
"""Runs before a chained one that are read each time it is looked at, one request for each: seconds. Whoever has longer
chains follows an earlier run of them, or has a controller."""


class Held(NamedTuple):
    state: State
    again_at: float | None
    failure: Failure | None = None  # it can never start


def hold_back(snapshot: RunSnapshot, now: float) -> Held | None:
    """None for a run that waits for no other one. Without a look at the others it stays as it is."""
    state = snapshot.state
    if not is_chained(snapshot.record, state):
        return None
    waited_s = max(0.0, now - snapshot.made)
    again_at = now + min(max(FIRST_LOOK_S, waited_s / 20), LONGEST_LOOK_S)
    if snapshot.predecessors is None:
        return Held(state, again_at)
    verdict = judge_chain(snapshot.record.after, snapshot.predecessors, state.succeeded)
    if verdict.action == "never":
        return Held(state, None, start_failure("dependency", verdict.reason))
    if verdict.action == "start":
        return Held(msgspec.structs.replace(state, released=True, waits_for=(), succeeded=(), reason=""), now)
    waiting = {"reason": verdict.reason, "waits_for": verdict.waits_for, "succeeded": verdict.succeeded}
    return Held(msgspec.structs.replace(state, phase="pending", **waiting), again_at)


def drive_predecessors(
    client: Client, snapshot: RunSnapshot, may_act: Callable[[Record], bool], drive: Callable[[str], State]
) -> bool:
    """Take turns of the runs before a chained one that have not ended, those first that are before the others: where
    no controller is, nobody else may write down that they have. Whether there were any.

    Each is read and driven once, by however many ways it is reached: a circle that somebody forged comes to an end.
    Those that only wait for others need no turn. `drive` takes a turn of one and returns its state.
    """
    left = _unfinished(snapshot.predecessors or {})
    seen = {snapshot.record.name}
    views: dict[str, PredecessorView] = {}
    path: list[tuple[_Link | None, Iterator[str]]] = [(None, iter(left))]
    while path:
        link, before = path[-1]
        following = next((run for run in before if run not in seen), None)
        if following is None or len(seen) > MOST_DRIVEN:
            path.pop()
            if link is not None and not link.only_waits(views):
                with contextlib.suppress(NotFound):
                    views[link.record.name] = _view(link.record, drive(link.record.name))
            continue
        seen.add(following)
        with contextlib.suppress(NotFound, BadRecord):
            read = _read_link(client, following)
            views[following] = _view(read.record, read.state)
            if not read.state.is_final and may_act(read.record):
                after = read.record.after if is_chained(read.record, read.state) else ()
                path.append((read, iter([predecessor.run for predecessor in after[:MOST_AFTER]])))
    return bool(left)


class _Link(NamedTuple):
    """A run of a chain, as its ConfigMap tells."""

    record: Record
    state: State
    is_stopped: bool

    def only_waits(self, views: Mapping[str, PredecessorView]) -> bool:
        """Whether a turn would change nothing, for all that is known of those before it."""
        if self.is_stopped or not self.state.attempts or not is_chained(self.record, self.state):
            return False
        verdict = judge_chain(self.record.after, views, self.state.succeeded)
        noted = (self.state.reason, self.state.succeeded)
        return verdict.action == "wait" and (verdict.reason, verdict.succeeded) == noted


def _read_link(client: Client, run: str) -> _Link:
    body = find_record(client, run)
    return _Link(*read_record(body), is_stopped=read_stop(body) is not None)


def _view(record: Record, state: State) -> PredecessorView:
    return PredecessorView(uid=record.uid, phase=state.phase, exit_code=state.exit_code)


def _unfinished(views: Mapping[str, PredecessorView]) -> list[str]:
    return [run for run, view in views.items() if view.phase not in FINAL_PHASES]
