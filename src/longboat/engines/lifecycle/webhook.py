"""One POST to a webhook of the user's. Not: what is told, and how often it is tried.

The address is a secret often: it is in no error of here. A receiver that leads elsewhere is not followed: what is
told is meant for this one, and on the way to another it would become a GET without a body, which any page answers.
"""

from __future__ import annotations

import threading
import urllib.request
from typing import Any


class _Unmoved(urllib.request.HTTPRedirectHandler):
    """Makes an answer that leads elsewhere an HTTPError like any other that is no success."""

    def redirect_request(self, *_: Any) -> None:
        return None


def post(url: str, body: bytes, timeout_s: float) -> None:
    """Send a body as JSON; it is answered within this time, all of it. Raises OSError, ValueError, HTTPException.

    In a thread: the timeout of a socket begins anew with every byte, and a receiver may send one each second.
    """
    headers = {"Content-Type": "application/json", "User-Agent": "longboat"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    errors: list[Exception] = []

    def send() -> None:
        try:
            with urllib.request.build_opener(_Unmoved).open(request, timeout=timeout_s):
                return
        except Exception as error:  # whoever waits for it gets it
            errors.append(error)

    sender = threading.Thread(target=send, name="webhook", daemon=True)
    sender.start()
    sender.join(timeout_s)
    if sender.is_alive():
        raise TimeoutError("timed out")
    if errors:
        raise errors[0]
