"""Access to the dashboard: who may ask for what. Pure rules, and the ASGI layer that applies them to every request.

Loopback is no protection by itself: every page that the user's browser shows can send requests to it, under any name
that resolves to it. So the Host must be one of ours, the Origin too, and a secret is needed for everything but files.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from html import escape
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from longboat.kubeapi.connection.impersonation import NAME

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CSRF_HEADER = "x-longboat-csrf"
PROXY_HEADER = "x-longboat-proxy"
"""The proof that a request came through the proxy: its value is the token, which nobody else knows."""
USER_HEADER, GROUPS_HEADER = "x-forwarded-user", "x-forwarded-groups"
"""Who asks, as authenticating proxies say it; believed with the proof alone."""
HEALTH = "/healthz"
USER_KEY = "longboat.user"
"""Of the scope of a request that was let in: its WebUser, or None where the dashboard has one user."""
RESERVED = "system:"
FORWARDED = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):[0-9]{1,5}")
"""Hosts of browsers that come through a forwarded port, of ssh or kubectl: whatever its number, no name of others
resolves to these."""
READING = ("GET", "HEAD")
MOST_BODY = 8 << 20
"""Bytes of a request: a trace for the simulator is the largest."""
PUBLIC = ("/static/", "/favicon.ico")
"""Files of the package: the same for everybody. The page that says how to get in uses them."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
LOCKED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Longboat</title>
<link rel="stylesheet" href="/static/style.css"><body class="locked"><main><h1>This address needs its token</h1>
<p>Open the address that <code>longboat ui</code> has printed, with everything after the question mark.</p>
<p>A dashboard that was started again has a new one.</p></main></body></html>
"""


class AccessRules(NamedTuple):
    """What one server accepts."""

    token: str
    hosts: frozenset[str]  # Host headers, with port
    scheme: str = "http"
    cookie: str = "longboat"  # browsers send cookies to every port of a host: each server has a name of its own
    origin: str | None = None  # of the proxy that browsers talk to, whatever Host it passes on; None: the Host's own
    has_users: bool = False  # a proxy says who asks; its word, and no cookie, lets people in
    groups: frozenset[str] = frozenset()  # of users, that are passed on to clusters

    @property
    def session(self) -> str:
        """What the cookie holds: not the token itself, which stays in the terminal."""
        return _derived(self.token, "session")

    def csrf(self, user: str = "") -> str:
        """Each user's own: with one's own nobody can make a page of another act."""
        return _derived(self.token, f"csrf {user}" if user else "csrf")


class WebUser(NamedTuple):
    """Who asks, by the word of the proxy."""

    name: str
    groups: tuple[str, ...] = ()


class AccessVerdict(NamedTuple):
    status: int  # 200: go on
    error: str = ""
    hint: str | None = None


def _derived(token: str, use: str) -> str:
    return hmac.new(token.encode(), use.encode(), hashlib.sha256).hexdigest()


def _equal(given: str | None, expected: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


GO_ON = AccessVerdict(200)


def check_address(rules: AccessRules, headers: Mapping[str, str]) -> AccessVerdict:
    """Whether a request was meant for this server, and by a page of it."""
    host = headers.get("host", "").lower()
    if host not in rules.hosts and not FORWARDED.fullmatch(host):
        return AccessVerdict(
            421, "this is not the address of the dashboard", "open the address that longboat ui has printed"
        )
    origin = headers.get("origin")
    if origin is not None and origin.lower() != (rules.origin or f"{rules.scheme}://{host}"):
        return AccessVerdict(403, "a page of another origin asked for this")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _is_navigation(headers):
        return AccessVerdict(403, "a page of another origin asked for this")
    return GO_ON


def _is_navigation(headers: Mapping[str, str]) -> bool:
    """A link that somebody clicked elsewhere: the answer is a page of its own, which the other one cannot read."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def check_user(rules: AccessRules, method: str, path: str, headers: Mapping[str, str]) -> AccessVerdict:
    """Whether the sender knows the secret; for changes also that a page of ours made the request."""
    if method not in (*READING, "POST"):
        return AccessVerdict(405, f"{method} is not known here")
    if path.startswith(PUBLIC) and method in READING:
        return GO_ON
    if rules.has_users:
        return check_proxy(rules, method, headers)
    has_bearer = _equal(headers.get("authorization"), f"Bearer {rules.token}")
    if not has_bearer and not _equal(cookie_of(headers.get("cookie", ""), rules.cookie), rules.session):
        return AccessVerdict(401, "no token, or a wrong one", "open the address that longboat ui has printed")
    if method == "POST" and not has_bearer and not _equal(headers.get(CSRF_HEADER), rules.csrf()):
        return NO_CSRF
    return GO_ON


NO_CSRF = AccessVerdict(403, f"the header {CSRF_HEADER} is missing or wrong", "its value is `csrf` of /api/state")


def check_proxy(rules: AccessRules, method: str, headers: Mapping[str, str]) -> AccessVerdict:
    """Whether the proxy vouches for the user that a request names; for changes also that a page of ours made it."""
    if not _equal(headers.get(PROXY_HEADER), rules.token):
        return AccessVerdict(401, "this did not come through the proxy", f"the proxy sets {PROXY_HEADER} to the token")
    user = user_of(rules, headers)
    if user is None:
        return AccessVerdict(401, "the proxy names no user that a cluster could know", f"it sets {USER_HEADER}")
    if method == "POST" and not _equal(headers.get(CSRF_HEADER), rules.csrf(user.name)):
        return NO_CSRF
    return GO_ON


def user_of(rules: AccessRules, headers: Mapping[str, str]) -> WebUser | None:
    """The user that a proxy names; None for no name, and for those of Kubernetes itself, which no person has. Pure."""
    name = headers.get(USER_HEADER, "")
    if not NAME.fullmatch(name) or name.startswith(RESERVED):
        return None
    named = [group.strip() for group in headers.get(GROUPS_HEADER, "").split(",")]
    groups = sorted({group for group in named if group in rules.groups and not group.startswith(RESERVED)})
    return WebUser(name, tuple(groups))


def cookie_of(text: str, name: str) -> str | None:
    """Its value. Cookies of other servers on this host come along in any form, and must not hide ours: http.cookies
    drops all of them for one that it cannot read."""
    pairs = (pair.partition("=") for pair in text.split(";"))
    return next((value.strip() for key, _, value in pairs if key.strip() == name), None)


def without_token(query: str) -> tuple[str | None, str]:
    """The token of a query, and the query without it."""
    pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=100)  # pages send a dozen
    tokens = [value for name, value in pairs if name == "token"]
    rest = urlencode([(name, value) for name, value in pairs if name != "token"])
    return (tokens[0] if tokens else None), rest


class AccessLayer:
    """Refuses what the rules refuse, trades the token for a cookie, bounds bodies and adds headers to all answers."""

    def __init__(self, app: App, rules: AccessRules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no websockets here
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path, method = str(scope["path"]), str(scope["method"])
        if path == HEALTH and method in READING:  # asked by a kubelet, under the address of the pod
            await _refuse(send, AccessVerdict(200), is_page=False)
            return
        sender = _with_headers(send, {} if path.startswith("/static/") else {"cache-control": "no-store"})
        verdict = check_address(self._rules, headers)
        if self._rules.has_users and _is_ambiguous(scope["headers"]):
            verdict = AccessVerdict(400, "a header that says who asks is there twice")
        if verdict.status == 200 and method in READING and not path.startswith(("/api/", *PUBLIC)):
            location = self._entered(path, scope["query_string"].decode("latin-1"))
            if location is not None:
                is_foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
                await _let_in(sender, location, self._cookie(), is_foreign=is_foreign)
                return
        if verdict.status == 200:
            verdict = check_user(self._rules, method, path, headers)
        if verdict.status == 200 and _length(headers) > MOST_BODY:
            verdict = AccessVerdict(413, f"more than {MOST_BODY >> 20} MiB")
        if verdict.status != 200:
            await _refuse(sender, verdict, is_page=not path.startswith("/api/"))
            return
        user = user_of(self._rules, headers) if self._rules.has_users else None
        await self._app({**scope, USER_KEY: user}, _bounded(receive), sender)

    def _entered(self, path: str, query: str) -> str | None:
        """Where to go on after a good token; None without one."""
        try:
            token, rest = without_token(query)
        except ValueError:
            return None
        if self._rules.has_users or not _equal(token, self._rules.token):
            return None
        place = quote("/" + path.lstrip("/\\"))  # `//elsewhere` would be another host
        return f"{place}?{rest}" if rest else place

    def _cookie(self) -> str:
        secure = "; Secure" if self._rules.scheme == "https" else ""
        return f"{self._rules.cookie}={self._rules.session}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _is_ambiguous(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """A proxy that adds its word to what a client sent, instead of replacing it: whose word is the last?"""
    names = [name.lower().decode("latin-1") for name, _ in headers]
    return any(names.count(name) > 1 for name in (PROXY_HEADER, USER_HEADER, GROUPS_HEADER))


def _length(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() else MOST_BODY + 1


def _bounded(receive: Receive) -> Receive:
    """A body without a length is bounded too: what comes after the limit is a client that went away."""
    count = 0

    async def bounded() -> Message:
        nonlocal count
        message = await receive()
        count += len(message.get("body", b""))
        return {"type": "http.disconnect"} if count > MOST_BODY else message

    return bounded


def _with_headers(send: Send, more: Mapping[str, str]) -> Send:
    extra = [(name.encode(), value.encode()) for name, value in {**HEADERS, **more}.items()]

    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sender


async def _refuse(send: Send, verdict: AccessVerdict, *, is_page: bool) -> None:
    body = msgspec.json.encode(
        {"error": verdict.error, "hint": verdict.hint} if verdict.status != 200 else {"ok": True}
    )
    kind = b"application/json"
    if is_page and verdict.status == 401:
        body, kind = LOCKED.encode(), b"text/html; charset=utf-8"
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": verdict.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _let_in(send: Send, location: str, cookie: str, *, is_foreign: bool) -> None:
    """Set the cookie and lead to the page. After a link from elsewhere (the file that opens the browser, a mail) a
    strict cookie is not sent on a redirect: there a page of ours goes on."""
    body = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(location)}">'
    content = body.encode() if is_foreign else b""
    headers = [(b"set-cookie", cookie.encode()), (b"content-length", str(len(content)).encode())]
    headers.append((b"content-type", b"text/html; charset=utf-8") if is_foreign else (b"location", location.encode()))
    await send({"type": "http.response.start", "status": 200 if is_foreign else 303, "headers": headers})
    await send({"type": "http.response.body", "body": content})
