"""Chained runs: held back until the runs have succeeded that they start after. Pure, but for `drive_predecessors`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from longboat.core.errors import NotFound
from longboat.core.runs import FINAL_PHASES, Failure
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.records import State, is_chained
from longboat.engines.lifecycle.predecessors import judge_chain
from longboat.engines.shared.retry_policy import start_failure

FIRST_LOOK_S = 2.0
LONGEST_LOOK_S = 30.0
"""A chained run is looked at again after a twentieth of the time that it has waited, between these: the end of a run
before it wakes it anyway, where a controller or somebody's watch sees that."""


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
    verdict = judge_chain(snapshot.record.after, snapshot.predecessors)
    if verdict.action == "never":
        return Held(state, None, start_failure("dependency", verdict.reason))
    if verdict.action == "start":
        return Held(msgspec.structs.replace(state, released=True, waits_for=(), reason=""), now)
    return Held(
        msgspec.structs.replace(state, phase="pending", reason=verdict.reason, waits_for=verdict.waits_for), again_at
    )


def drive_predecessors(snapshot: RunSnapshot, drive: Callable[[str], object]) -> bool:
    """Take turns of those that have not ended: where no controller is, nobody else may write down that they have."""
    left = [run for run, view in (snapshot.predecessors or {}).items() if view.phase not in FINAL_PHASES]
    for run in left:
        with contextlib.suppress(NotFound):
            drive(run)
    return bool(left)
