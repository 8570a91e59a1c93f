"""Refusals that pass: an API server that has just restarted answers 403 to everybody until it has read its roles."""

from __future__ import annotations

import time

SYNC_S = 10.0
"""It takes a second or two, more on a busy machine. Who has really lost a right learns it this much later."""


class Refusals:
    """Of one who asks again and again. Not for several threads."""

    def __init__(self, *, was_allowed: bool = False) -> None:
        self.was_allowed = was_allowed
        self._since: float | None = None

    def note_answer(self) -> None:
        self.was_allowed, self._since = True, None

    def may_pass(self) -> bool:
        """Note a refusal; whether to ask again, as one who was allowed before and is not refused for long."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return self.was_allowed and now - self._since < SYNC_S
