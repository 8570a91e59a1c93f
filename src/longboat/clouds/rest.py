"""JSON requests over HTTP to the REST interfaces of clouds, with a bearer token; refusals as one exception.

Redirects are not followed, and a token goes to the host that it is meant for only. A patient client asks again where a
question found no answer; orders are never sent twice. Not for AWS, whose library signs and repeats.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

MOST_BYTES = 64 << 20  # the list of all machine types of a region has about 10 MiB
_MOST_WORDS = 1 << 20  # of an answer that says what went wrong
TIMEOUT_S = 60.0  # without a byte; changes are orders, which are answered before they are done
_TOKEN = re.compile(r"[!-~]+")
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Between questions of who is patient: half a minute in all, which a restart of a front end, or a network, takes."""
LONGEST_PAUSE_S = 60.0  # that a cloud may ask for by Retry-After: its limits are by the minute
BROKEN = "NoConnection"
"""Code of a fault: there was no answer, or only a part of it."""
_PASSING = (429, 500, 502, 503, 504)
_BUSY = ("rateLimitExceeded", "userRateLimitExceeded")
MOST_PAGE = 4096  # of a page that is no answer of the cloud: its words stand at its beginning
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
        self.pause_s = 0.0  # that the cloud asks for before the next request

    @property
    def is_passing(self) -> bool:
        """Busy or broken for a moment: the same question may have an answer soon."""
        return self.status in _PASSING or any(code in _BUSY for code in (self.code, *self.reasons))

    @property
    def is_unsettled(self) -> bool:
        """The request may have been carried out, or may be yet."""
        return self.status == 0 or self.status >= 500


class RestClient:
    """One host, asked with the token of the moment. `is_patient`: questions are asked again for half a minute."""

    def __init__(self, base: str, *, is_patient: bool = False) -> None:
        self.base = base.rstrip("/")
        self._pauses = PAUSES_S if is_patient else ()
        self._has_answered = False
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
        for pause_s in self._pauses if method == "GET" else ():
            try:
                return self._send(method, target, token, body, headers)
            except RestFault as fault:
                # Where nothing has ever answered, the address or the way there is wrong.
                if not (fault.is_passing or (fault.code == BROKEN and self._has_answered)):
                    raise
                time.sleep(max(pause_s, fault.pause_s))
        return self._send(method, target, token, body, headers)

    def _send(self, method: str, target: str, token: str, body: Body | None, headers: Mapping[str, str]) -> RestAnswer:
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
                self._has_answered = True
                return RestAnswer(answer.status, _lower(answer.headers), _decoded(answer.read(MOST_BYTES + 1)))
        except urllib.error.HTTPError as error:
            self._has_answered = True
            with error:
                fault = _fault(error.code, error.read(_MOST_WORDS))
            fault.pause_s = _pause(error.headers.get("Retry-After") or "")
            raise fault from None
        except ValueError as error:  # of an address that a variable names
            raise RestFault(0, "NoAddress", f"{self.base[:100]}: {error}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise RestFault(0, BROKEN, f"{_place(url)[1]}: {reason}") from None


def _place(url: str) -> tuple[str, str]:
    """Scheme and host."""
    try:
        return urlsplit(url)[:2]
    except ValueError as error:
        raise RestFault(0, "NoAddress", f"{url[:100]}: {error}") from None


def _pause(text: str) -> float:
    """Seconds; a date is not understood, and no cloud writes one."""
    return min(float(text), LONGEST_PAUSE_S) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


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
        return RestFault(status, f"HTTP {status}", _page_text(data[:MOST_PAGE].decode(errors="replace")))
    return fault_of(status, error)


def _page_text(page: str) -> str:
    """The words of a page that a proxy answered with, on one line."""
    return " ".join(re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL).split())[:200]


def fault_of(status: int, error: Mapping[str, Any]) -> RestFault:
    """`error` as both Azure and Google write it: a code or status, a message, and parts that have their own."""
    parts = [each for key in ("details", "errors") for each in error.get(key) or () if isinstance(each, dict)]
    reasons = tuple(str(word) for each in parts for word in (each.get("code"), each.get("reason")) if word)
    code = str(error.get("status") or error.get("code") or next(iter(reasons), f"HTTP {status}"))
    words = [str(error.get("message") or ""), *(str(each.get("message") or "") for each in parts)]
    message = "; ".join(dict.fromkeys(" ".join(text.split()) for text in words if text))
    return RestFault(status, code, message, reasons=reasons)
