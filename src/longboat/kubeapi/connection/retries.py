"""Retry rules for API requests: whether to ask again, and after which pause. Pure.

What a server surely did not do may be asked again at any time. What it may have done is asked again only where doing it
twice is the same as doing it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from longboat.kubeapi.errors import BROKEN, LeaseExpired

TOTAL_S = 30.0
"""All attempts at one request together, pauses included."""
FIRST_S = 0.1  # a connection that broke is made anew at once
LONGEST_S = 3.0
"""Between two attempts: from, doubling up to."""


class FailedRequest(NamedTuple):
    """One attempt that came to nothing. `status` 0: no answer at all; `sent`: the server may have seen the request."""

    status: int = 0
    retry_after_s: float | None = None
    sent: bool = True


def is_worth_repeating(failure: FailedRequest, *, may_repeat: bool) -> bool:
    """`may_repeat`: doing it twice is the same as doing it once."""
    if failure.status == 0:
        return may_repeat or not failure.sent
    if failure.status == 429 or (failure.status == 503 and failure.retry_after_s is not None):
        return True
    return may_repeat and failure.status in BROKEN


def pause_s(failure: FailedRequest, attempt: int, *, spent_s: float, total_s: float = TOTAL_S) -> float | None:
    """Seconds to wait before attempt number `attempt` + 1 (the first is 1), or None when patience is over."""
    import random

    pause = min(LONGEST_S, FIRST_S * 2 ** (attempt - 1)) * random.uniform(0.75, 1.25)
    if failure.retry_after_s is not None:
        # Everybody is told the same number: spread, or all of us come back in the same moment.
        pause = max(pause, failure.retry_after_s + random.uniform(0.0, 0.25))
    return pause if spent_s + pause < total_s else None


def allowed_s(timeout_s: float, left_s: Callable[[], float] | None, action: str) -> float:
    """How long an attempt may take that is made now; LeaseExpired where none may be made any more."""
    left = timeout_s if left_s is None else left_s()
    if left <= 0:
        raise LeaseExpired(f"{action} was not sent: the Lease that allowed it has run out")
    return min(timeout_s, left)


def seconds(retry_after: str | None) -> float | None:
    """The header's value; dates are not used by API servers."""
    try:
        return max(0.0, float(retry_after)) if retry_after else None
    except ValueError:
        return None
