"""A request to stop a run: a file of the local engine, an annotation of the record in a cluster. Not the stop."""

from __future__ import annotations

from longboat.core.jobs import Value


class StopRequest(Value, frozen=True):
    at: float
    grace_s: float | None = None  # None: the job's own
