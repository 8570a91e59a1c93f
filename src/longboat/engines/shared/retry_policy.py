"""The retry policy, the same on every engine: whether a failed run is tried again, and when; how that is told. Pure."""

from __future__ import annotations

from longboat.core.errors import RUN_SETUP_EXIT, EngineError
from longboat.core.first_failure import retry_delay
from longboat.core.jobs import Retries
from longboat.core.runs import Failure
from longboat.engines.shared.explanations import shortened, with_cause

MESSAGE_LIMIT = 160
"""Characters of a failure's message in the run's reason; `explain` shows all of it."""


class InputFailed(EngineError):
    """Data, secrets, image or files of a run are not available; its ranks never started. `cause`: see jobs.CAUSES."""

    cause = "setup"


class TimeLimit:
    """The remaining `timeout` of a run: counts from the first start of its ranks over all attempts, without the time in
    which later attempts are prepared.
    """

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._since: float | None = None
        self._preparing_since: float | None = None

    def prepare(self, now: float) -> None:
        """Pause the clock: an attempt waits for its place, image, data and setup."""
        self._preparing_since = now

    def start(self, now: float, *, earlier_s: float = 0.0) -> None:
        """Start or resume the clock: the ranks run. `earlier_s`: seconds since the run's ranks first started, as
        recorded.
        """
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
    """Seconds until the next attempt; None when the run has failed for good."""
    return retry_delay(
        failure.cause,
        failure.exit_code,
        attempt=attempt,
        count=retries.last_attempt,
        on=retries.on,
        backoff_s=retries.backoff_s,
    )


def start_failure(cause: str, message: str) -> Failure:
    """The failure of an attempt whose ranks never started."""
    return Failure(cause=cause, exit_code=RUN_SETUP_EXIT, message=message)


def describe(failure: Failure) -> str:
    """Format a failure as a run's reason."""
    where = ""
    if failure.rank is not None:
        where = f"rank {failure.rank.rank} ({failure.rank.node}) "
    text = shortened(failure.message, MESSAGE_LIMIT) or f"exit code {failure.exit_code}"
    return where + with_cause(failure.cause, text)


def retry_note(failure: Failure, *, number: int, retries: Retries) -> str:
    """The reason of a run that is about to be retried."""
    return f"{describe(failure)}; retry {number - retries.resizes} of {retries.count}"


def stop_note(started: float | None) -> str:
    """The reason of a stopped run; `started`: when its ranks started."""
    return "stopped before its ranks started" if started is None else "stopped on request"
