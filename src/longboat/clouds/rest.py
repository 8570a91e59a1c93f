"""JSON requests over HTTP to the REST interfaces of clouds, with a bearer token; refusals as one exception.

Redirects are not followed, and a token goes to the host that it is meant for only. Not for AWS, whose library signs.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

MOST_BYTES = 64 << 20  # the list of all machine types of a region has about 10 MiB
_MOST_WORDS = 1 << 20  # of an answer that says what went wrong
TIMEOUT_S = 60.0  # without a byte; changes are orders, which are answered before they are done
_TOKEN = re.compile(r"[!-~]+")
Body = dict[str, Any]


class RestAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: Body


class RestFault(Exception):
    """What a cloud answered instead of a result, in its own words; `status` 0: there was no answer."""

    def __init__(self, status: int, code: str, message: str, *, reasons: tuple[str, ...] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.status, self.code, self.message = status, code, message
        self.reasons = reasons  # codes of its parts

    @property
    def is_unsettled(self) -> bool:
        """The request may have been carried out, or may be yet."""
        return self.status == 0 or self.status >= 500


class RestClient:
    """One host, asked with the token of the moment."""

    def __init__(self, base: str) -> None:
        self.base = base.rstrip("/")
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
        ):
            self._opener.add_handler(handler)

    def send(
        self, method: str, target: str, token: str, *, body: Body | None = None, headers: Mapping[str, str] = {}
    ) -> RestAnswer:
        """`target`: a path, or an address that this host gave. Raises RestFault."""
        url = target if "://" in target else self.base + target
        if _place(url) != _place(self.base):
            raise RestFault(0, "OtherHost", f"{self.base} names another host: {_place(url)[1][:100]}")
        if not _TOKEN.fullmatch(token):  # urllib would print it
            raise RestFault(401, "NoToken", "what the credentials gave is no token: it has other than plain characters")
        data = None if body is None else json.dumps(body).encode()
        sent = {"User-Agent": "longboat", "Accept": "application/json", "Authorization": f"Bearer {token}", **headers}
        if data is not None:
            sent["Content-Type"] = "application/json"
        try:
            request = urllib.request.Request(url, data, sent, method=method)
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return RestAnswer(answer.status, _lower(answer.headers), _decoded(answer.read(MOST_BYTES + 1)))
        except urllib.error.HTTPError as error:
            with error:
                raise _fault(error.code, error.read(_MOST_WORDS)) from None
        except ValueError as error:  # of an address that a variable names
            raise RestFault(0, "NoAddress", f"{self.base[:100]}: {error}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise RestFault(0, type(error).__name__, f"{_place(url)[1]}: {reason}") from None


def _place(url: str) -> tuple[str, str]:
    """Scheme and host."""
    try:
        return urlsplit(url)[:2]
    except ValueError as error:
        raise RestFault(0, "NoAddress", f"{url[:100]}: {error}") from None


def _lower(headers: Any) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _decoded(data: bytes) -> Body:
    if len(data) > MOST_BYTES:
        raise RestFault(0, "TooLong", f"the answer is longer than {MOST_BYTES >> 20} MiB")
    try:
        body = json.loads(data) if data.strip() else {}
    except ValueError:
        raise RestFault(0, "NoJson", f"the answer is not JSON: {data[:80]!r}") from None
    return body if isinstance(body, dict) else {"value": body}


def _fault(status: int, data: bytes) -> RestFault:
    try:
        body = json.loads(data)
        error = body["error"] if isinstance(body["error"], dict) else body
    except (ValueError, KeyError, TypeError):
        return RestFault(status, f"HTTP {status}", data[:200].decode(errors="replace"))
    return fault_of(status, error)


def fault_of(status: int, error: Mapping[str, Any]) -> RestFault:
    """`error` as both Azure and Google write it: a code or status, a message, and parts that have their own."""
    parts = [each for key in ("details", "errors") for each in error.get(key) or () if isinstance(each, dict)]
    reasons = tuple(str(word) for each in parts for word in (each.get("code"), each.get("reason")) if word)
    code = str(error.get("status") or error.get("code") or next(iter(reasons), f"HTTP {status}"))
    words = [str(error.get("message") or ""), *(str(each.get("message") or "") for each in parts)]
    message = "; ".join(dict.fromkeys(" ".join(text.split()) for text in words if text))
    return RestFault(status, code, message, reasons=reasons)
