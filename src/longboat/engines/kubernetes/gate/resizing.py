"""Another size for an elastic run that is in: when its gang is told to end for it, and what follows. Pure.

The gate says which size it is to have (`gate.sizes`). The gang ends at its next checkpoint, and the next attempt has
that size; the gate judges it once more, and what there was room for then may be less.
"""

from __future__ import annotations

import msgspec

from longboat.core.elastic.sizes import is_elastic
from longboat.engines.kubernetes.gate.departure import is_moving
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.records import Gate, State


def gate_look_at(snapshot: RunSnapshot) -> float | None:
    """When the gate looks again whether an elastic run that has all its pods is to have another size."""
    record, state = snapshot.record, snapshot.state
    is_in = record.gated_by == "longboat" and state.gate.let_in is not None and state.phase == "running"
    is_looked_at = is_in and is_elastic(record.job) and state.target is None and not is_moving(state)
    return state.gate.not_before if is_looked_at else None


def writer_to_ask(snapshot: RunSnapshot) -> str | None:
    """The pod that knows of new checkpoints, while another size is wanted; None: nothing is to be asked."""
    state, job = snapshot.state, snapshot.record.job
    if state.wanted is None or state.target is not None or state.phase != "running" or not is_elastic(job):
        return None
    writer = f"{job.ends[0] if job.ends else job.roles[0].name}-0"
    pods = snapshot.pods_of(state.attempt)
    return next((pod.name for pod in pods if pod.node == writer and pod.end is None), None)


def told(state: State, size: int, newest: str | None, *, waits: bool) -> State:
    """What is noted once the launcher has said which checkpoint is its newest; with `target` the gang is to end."""
    if waits and state.seen is None:
        return msgspec.structs.replace(state, seen=newest or "")
    if waits and newest in (None, "", state.seen):
        return state
    return msgspec.structs.replace(state, target=size)


def resized(state: State, last: int, now: float) -> State:
    """The attempt, which is closed, was ended for another size. `last`: its number."""
    why = state.size_reason or "it has another size"
    attempts = tuple(
        msgspec.structs.replace(each, resized=why) if each.number == last else each for each in state.attempts
    )
    return msgspec.structs.replace(
        without_wish(state),
        phase="recovering",
        reason=why,
        size=state.target,
        size_reason="",
        resizes=state.resizes + 1,
        attempt=last + 1,
        attempts=attempts,
        not_before=now,
        gate=Gate(fits=True),
        broken=0.0,
        hosts={},
        restarts=0,
    )


def without_wish(state: State) -> State:
    """The state in which no other size is wanted: another attempt is judged anew."""
    return msgspec.structs.replace(state, wanted=None, seen=None, target=None, told_when=0.0, departure=None)
