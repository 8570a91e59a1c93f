"""Traces of a run: every step that its ranks report, read from its log.

Ranks write a line for each step where `LONGBOAT_TRACE_STEPS` is set (`launcher.trainer`). Logs are complete and kept on
every engine, also those of a pod that was killed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from longboat.core.jobs import Job
from longboat.core.runs import LogLine
from longboat.core.variables import TRACE_STEPS
from longboat.sdk.drill.kills import Kill

_MARK = b"longboat-step {"


class TracedStep(NamedTuple):
    attempt: int
    rank: int
    step: int
    time: float
    pid: int
    metrics: dict[str, float]


def read_step(line: LogLine) -> TracedStep | None:
    """The step that a line of the log tells; None for any other line. What a trainer printed without a newline before
    it is passed over."""
    start = line.data.find(_MARK)
    if start < 0:
        return None
    try:
        fields = json.loads(line.data[start + len(_MARK) - 1 :])
        metrics = {str(name): float(value) for name, value in fields["metrics"].items() if value is not None}
        rank, step, pid = int(fields["rank"]), int(fields["step"]), int(fields["pid"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    if pid <= 1:  # any line of a log may look like this one, and kill takes 0 and -1 for everybody
        return None
    return TracedStep(line.attempt, rank, step, line.time, pid, metrics)


def traced(job: Job, kills: Sequence[Kill] = ()) -> Job:
    """The job with ranks that trace their steps, wait where they are to be killed, and are tried again after it."""
    holds = [f"{number}:{kill.step}" for number, kill in enumerate(kills) if kill.step is not None]
    variables = {TRACE_STEPS: ",".join(holds) or "1"}
    roles = tuple(msgspec.structs.replace(role, env={**role.env, **variables}) for role in job.roles)
    retries = msgspec.structs.replace(job.retries, count=max(job.retries.count, len(kills)))
    return msgspec.structs.replace(job, roles=roles, retries=retries if kills else job.retries)
