"""The hand-over of a run by its submitter: is an attempt wholly there, and how long is the first waited for. Pure.

The first attempt is made by the submitter, with the submitter's own rights, and by nobody who merely looks (`decide`).
"""

from __future__ import annotations

from longboat.engines.kubernetes.views import Snapshot

HANDOVER_S = 120.0
"""So long a submitter may take to send the code and make the first attempt: most take 2 s, a large upload a minute."""
GIVEN_UP = "its submission was interrupted before all of it was there"


def is_made(snapshot: Snapshot) -> bool:
    """Whether the attempt has all its workloads; who makes them may die after the first."""
    attempt, record = snapshot.state.attempt, snapshot.record
    wanted = 1 if record.workload == "jobset" else len(record.job.roles)
    return len(snapshot.workloads_of(attempt)) >= wanted or bool(snapshot.pods_of(attempt))


def handover_due(snapshot: Snapshot) -> float:
    """When a run without its first attempt is given up; by the server's word on when it was created."""
    return snapshot.made + HANDOVER_S
