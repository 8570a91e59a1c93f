"""The retry policy, the same on every engine: whether a failed run is tried again, and when; how that is told. Pure."""

from __future__ import annotations

from longboat.core.errors import RUN_SETUP_EXIT, EngineError
from longboat.core.jobs import NEVER_RETRIED, Retries
from longboat.core.runs import Failure
from longboat.engines.shared.explanations import shortened, with_cause

BACKOFF_LIMIT_S = 60.0
MESSAGE_LIMIT = 160
"""Characters of a failure's message in the run's reason; `explain` shows all of it."""


class InputFailed(EngineError):
    """What the ranks need cannot be had; they never started. `cause` is one of jobs.CAUSES."""

    cause = "setup"


class TimeLimit:
    """What is left of a run's `timeout`. It counts from the first start of its ranks on, over all attempts; the time in
    which a later attempt is made ready does not count, as that of the first does not."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._since: float | None = None
        self._preparing_since: float | None = None

    def prepare(self, now: float) -> None:
        """An attempt begins: it waits for its turn, images, data, setup."""
        self._preparing_since = now

    def start(self, now: float, *, earlier_s: float = 0.0) -> None:
        """Its ranks have started. `earlier_s`: how long ago ranks of this run first did, as far as others noted it."""
        if self._since is None:
            self._since = now - earlier_s
        elif self._preparing_since is not None:
            self._since += now - self._preparing_since
        self._preparing_since = None

    def left_s(self, now: float) -> float:
        if self._limit_s is None or self._since is None or self._preparing_since is not None:
            return float("inf")
        return max(0.0, self._since + self._limit_s - now)


def retry_after(failure: Failure, *, attempt: int, retries: Retries) -> float | None:
    """Seconds to wait before the next attempt, or None when the run has failed for good."""
    if attempt >= retries.count or failure.cause in NEVER_RETRIED:
        return None
    if retries.on and failure.cause not in retries.on and failure.exit_code not in retries.on:
        return None
    return min(BACKOFF_LIMIT_S, retries.backoff_s * 2.0 ** min(attempt, 63))


def start_failure(cause: str, message: str) -> Failure:
    """The ranks never started: data, secrets, the image or files of the run were not to be had."""
    return Failure(cause=cause, exit_code=RUN_SETUP_EXIT, message=message)


def describe(failure: Failure) -> str:
    """A failure as the reason of a run."""
    where = ""
    if failure.rank is not None:
        where = f"rank {failure.rank.rank} ({failure.rank.node}) "
    text = shortened(failure.message, MESSAGE_LIMIT) or f"exit code {failure.exit_code}"
    return where + with_cause(failure.cause, text)


def retry_note(failure: Failure, *, number: int, retries: Retries) -> str:
    """The reason of a run that is about to be tried again."""
    return f"{describe(failure)}; retry {number} of {retries.count}"


def stop_note(started: float | None) -> str:
    """The reason of a run that was stopped; `started` is when its ranks did."""
    return "stopped before its ranks started" if started is None else "stopped on request"
