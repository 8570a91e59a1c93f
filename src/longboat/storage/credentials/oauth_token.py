"""OAuth bearer tokens: sought when it is first needed, and anew before it runs out.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from longboat.storage.http import HttpRejected, HttpRequest

RENEW_S = 120.0
"""So long before they run out, credentials are asked for anew."""


class Token(NamedTuple):
    text: str
    expires: float

    def __repr__(self) -> str:
        return "Token(...)"

    @property
    def header(self) -> str:
        return f"Bearer {self.text}"


class BearerToken:
    """The token of one store. One thread looks for it, the others wait for what it finds."""

    def __init__(self, find: Callable[[], Token | None]) -> None:
        self._find = find
        self._seeking = threading.Lock()
        self._token: Token | None = None
        self._was_sought = False

    def token(self, stale: Token | None = None) -> Token | None:
        """The one to use; another than `stale`, if there is any."""
        with self._seeking:
            known = self._token
            is_old = known is not None and (known == stale or known.expires - time.time() < RENEW_S)
            if not self._was_sought or is_old:
                self._token = self._find()
                self._was_sought = True
            return self._token

    def fall_back(self, find: Callable[[], Token | None]) -> bool:
        """Look in another place, once, where there was no token. Whether there is one now."""
        with self._seeking:
            if self._token is None and self._find != find:
                self._find = find
                self._token = find()
            return self._token is not None

    def learn_from(self, rejected: HttpRejected, request: HttpRequest) -> bool:
        """Whether the same request may do better with the token that is there now."""
        token = self._token
        if rejected.status != 401 or token is None:
            return False
        if request.headers.get("Authorization") != token.header:
            return True  # another thread has a new one already
        return self.token(stale=token) != token
