"""Hand-over of a run by its submitter: whether an attempt is wholly there, how long the first is waited for. Pure.

The first attempt is made by the submitter, with the submitter's own rights, and by nobody who merely looks (`decide`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from longboat.core.elastic.sizes import is_elastic, size_of
from longboat.core.runs import Attempt
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.records import State

HANDOVER_S = 120.0
"""So long nothing may be heard of a submitter that has not made the first attempt. Most have after 2 s; one that takes
longer, with a large upload, says that it is alive (`submission_heartbeat`)."""
GIVEN_UP = "its submission was interrupted before all of it was there"


def is_made(snapshot: RunSnapshot) -> bool:
    """Whether the attempt has all its workloads; who makes them may die after the first."""
    attempt, record = snapshot.state.attempt, snapshot.record
    wanted = 1 if record.workload == "jobset" else len(record.job.roles)
    return len(snapshot.workloads_of(attempt)) >= wanted or bool(snapshot.pods_of(attempt))


def handover_due(snapshot: RunSnapshot) -> float:
    """When a run without its first attempt is given up: long after it was created, by the server's word, and after the
    last sign of life of its submitter."""
    return max(snapshot.made, snapshot.submitter_alive) + HANDOVER_S


def opened(snapshot: RunSnapshot) -> State:
    """The state with the attempt in its list: its objects are there."""
    state = snapshot.state
    made = [workload.created for workload in snapshot.workloads_of(state.attempt) if workload.created]
    made += [pod.created for pod in snapshot.pods_of(state.attempt) if pod.created]
    way: Literal["", "new"] = "new" if state.attempt else ""
    job = snapshot.record.job
    started = Attempt(
        number=state.attempt,
        started=max(min(made, default=snapshot.record.created), state.gate.let_in or 0.0),
        restart=way,
        size=size_of(job) if is_elastic(job) else None,
        gpus=job.gpus if is_elastic(job) else None,
    )
    return msgspec.structs.replace(state, attempts=(*state.attempts, started))
