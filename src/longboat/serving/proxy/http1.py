"""HTTP/1.1 message heads as a proxy sees them: parsed strictly, rewritten for the next hop. Pure.

What two programs may read differently (two lengths, a length and chunks, folded lines, control characters) is refused:
a proxy that guesses lets requests be smuggled past it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_HEAD = 64 << 10
"""Bytes of a head; what larger servers allow is between 8 and 64 KiB."""
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REQUEST = re.compile(rb"([A-Z][A-Z-]{0,31}) ([!-~]+) HTTP/1\.([01])")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\r\n\0]*)?")
_VALUE = re.compile(rb"[^\r\n\0]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?\r\n")
_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
    )
    + (b"upgrade", b"expect")
)
"""Headers that are for one connection only; `transfer-encoding` stays, because bodies are passed on as they come."""

Headers = list[tuple[bytes, bytes]]


class BadMessage(Exception):
    """A message that is not passed on; `status` is the answer to whoever sent it."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class Body(NamedTuple):
    """How long a body is: so many bytes, chunks, or until the connection closes."""

    length: int | None = 0
    is_chunked: bool = False


class RequestHead(NamedTuple):
    method: bytes
    target: bytes
    minor: int  # HTTP/1.minor
    headers: Headers
    body: Body
    is_kept_alive: bool
    upgrade: bytes | None  # the protocol that the client wants to go on with
    expects_continue: bool


class ResponseHead(NamedTuple):
    line: bytes
    status: int
    headers: Headers
    body: Body
    is_kept_alive: bool


def parse_request(data: bytes) -> RequestHead:
    line, headers, options = _split(data)
    match = _REQUEST.fullmatch(line)
    if match is None:
        raise BadMessage("not an HTTP/1.1 request")
    minor = int(match[3])
    names = [name.lower() for name, _ in headers]
    if minor == 1 and names.count(b"host") != 1:
        raise BadMessage("a request has one Host header")
    body = _body(headers, Body(0))
    if minor == 0 and body.is_chunked:
        raise BadMessage("HTTP/1.0 has no chunks")
    upgrade = _value(headers, b"upgrade") if b"upgrade" in options else None
    expects = (_value(headers, b"expect") or b"").lower() == b"100-continue"
    return RequestHead(
        match[1], match[2], minor, headers, body, _is_kept(minor, options), upgrade, expects and minor == 1
    )


def parse_response(data: bytes, method: bytes) -> ResponseHead:
    line, headers, options = _split(data)
    match = _STATUS.fullmatch(line)
    if match is None:
        raise BadMessage("not an HTTP/1.1 response", 502)
    status = int(match[2])
    has_none = method == b"HEAD" or status < 200 or status in (204, 304)
    body = Body(0) if has_none else _body(headers, Body(None))
    has_end = body.length is not None or body.is_chunked
    return ResponseHead(line, status, headers, body, has_end and _is_kept(int(match[1]), options))


def request_bytes(head: RequestHead, peer: str, body: bytes | None) -> bytes:
    """The head for a replica. `body`: the whole of it, where it was read already."""
    lines = [b"%s %s HTTP/1.%d" % (head.method, head.target, head.minor)]
    passed = _passed(head.headers)
    before = [value for name, value in passed if name.lower() == b"x-forwarded-for"]
    lines += [
        b"%s: %s" % (name, value)
        for name, value in passed
        if name.lower() not in (b"x-forwarded-for", b"x-forwarded-proto")
    ]
    lines.append(b"X-Forwarded-For: " + b", ".join([*before, peer.encode()]))
    lines.append(b"X-Forwarded-Proto: http")
    if head.upgrade is not None:
        lines += [b"Connection: Upgrade", b"Upgrade: " + head.upgrade]
    elif head.minor == 0:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def response_bytes(head: ResponseHead, *, is_kept_alive: bool, minor: int, upgrade: bytes | None = None) -> bytes:
    """The head for the client."""
    lines = [head.line, *(b"%s: %s" % pair for pair in _passed(head.headers))]
    if upgrade is not None:
        lines += [b"Connection: Upgrade", b"Upgrade: " + upgrade]
    elif not is_kept_alive:
        lines.append(b"Connection: close")
    elif minor == 0:
        lines.append(b"Connection: keep-alive")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def plain_response(status: int, reason: str, text: str, *, retry_after_s: int | None = None) -> bytes:
    """An answer of the proxy itself; the connection is closed after it."""
    body = (text + "\n").encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    if retry_after_s is not None:
        head += f"Retry-After: {retry_after_s}\r\n"
    return (head + "Connection: close\r\n\r\n").encode() + body


def chunk_size(line: bytes) -> int:
    """Size of a chunk from its first line, extensions ignored."""
    match = _CHUNK.fullmatch(line)
    if match is None:
        raise BadMessage("the size of a chunk cannot be read")
    return int(match[1], 16)


def leaves_quiet(head: RequestHead, status: int) -> bool:
    """Whether a connection may be used again after this exchange. A server that does not read the body of a request
    which needs none, or which it refuses, takes that body for the next request."""
    has_body = head.body.is_chunked or bool(head.body.length)
    return not has_body or (head.method in (b"POST", b"PUT", b"PATCH") and status < 400)


def _split(data: bytes) -> tuple[bytes, Headers, set[bytes]]:
    first, *lines = data[:-4].split(b"\r\n")
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadMessage("a header cannot be read")
        headers.append((name, value))
    options = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    return first, headers, options


def _body(headers: Headers, without: Body) -> Body:
    lengths = {value for name, value in headers if name.lower() == b"content-length"}
    codings = [value.lower() for name, value in headers if name.lower() == b"transfer-encoding"]
    if codings:
        if lengths or codings != [b"chunked"]:
            raise BadMessage("a length and chunks, or an unknown transfer coding", 400 if lengths else 501)
        return Body(None, is_chunked=True)
    if not lengths:
        return without
    text = lengths.pop()
    if lengths or not re.fullmatch(rb"[0-9]{1,18}", text):
        raise BadMessage("the length of the body cannot be read")
    return Body(int(text))


def _is_kept(minor: int, options: set[bytes]) -> bool:
    return b"close" not in options and (minor == 1 or b"keep-alive" in options)


def _value(headers: Headers, name: bytes) -> bytes | None:
    return next((value for key, value in headers if key.lower() == name), None)


def _passed(headers: Headers) -> Headers:
    """Headers that go on to the next hop: not those of this connection, nor those that it names as such."""
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    } - {b"content-length", b"transfer-encoding", b"host"}
    return [(name, value) for name, value in headers if name.lower() not in _HOP and name.lower() not in named]
