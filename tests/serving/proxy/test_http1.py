"""Heads of HTTP messages: what is refused, and what reaches the next hop."""

from __future__ import annotations

import pytest

from longboat.serving.proxy.http1 import (
    BadMessage,
    Body,
    chunk_size,
    parse_request,
    parse_response,
    request_bytes,
    response_bytes,
)


def request(*headers: str, line: str = "POST /p?a=1 HTTP/1.1", host: bool = True) -> bytes:
    lines = [line, *(["Host: a"] if host else []), *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@pytest.mark.parametrize(
    "data",
    [
        request("Content-Length: 1", "Transfer-Encoding: chunked"),
        request("Content-Length: 1", "Content-Length: 2"),
        request("Content-Length: +1"),
        request("Content-Length: 1, 1"),
        request("Content-Length: 0x1"),
        request("Transfer-Encoding: gzip, chunked"),
        request("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        request("Bad Name: x"),
        request("X : y"),
        request("X: a", " folded"),
        request("X: a\0b"),
        request("X: a\nY: b"),
        request("Host: b"),
        request(host=False),
        request(line="POST  /p HTTP/1.1"),
        request(line="POST /p HTTP/2.0"),
        request(line="post /p HTTP/1.1"),
        request(line="POST /p\u00e9 HTTP/1.1"),
        request("Transfer-Encoding: chunked", line="POST /p HTTP/1.0"),
    ],
)
def test_what_two_programs_may_read_differently_is_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        parse_request(data)


@pytest.mark.parametrize(
    ("data", "body", "is_kept_alive"),
    [
        (request(), Body(0), True),
        (request("content-length: 12"), Body(12), True),
        (request("Transfer-Encoding: Chunked"), Body(None, is_chunked=True), True),
        (request("Connection: keep-alive, Close"), Body(0), False),
        (request(line="GET / HTTP/1.0"), Body(0), False),
        (request("Connection: keep-alive", line="GET / HTTP/1.0"), Body(0), True),
    ],
)
def test_bodies_and_connections(data: bytes, body: Body, is_kept_alive: bool) -> None:
    head = parse_request(data)
    assert (head.body, head.is_kept_alive) == (body, is_kept_alive)


def test_headers_of_one_connection_do_not_travel() -> None:
    head = parse_request(
        request("Connection: close, X-Own", "X-Own: 1", "TE: trailers", "X-Forwarded-For: 9.9.9.9", "Accept: */*")
    )
    sent = request_bytes(head, "1.2.3.4", b"body").decode()
    assert sent.startswith("POST /p?a=1 HTTP/1.1\r\nHost: a\r\n") and sent.endswith("\r\n\r\nbody")
    assert "X-Own" not in sent and "TE:" not in sent and "close" not in sent
    assert "X-Forwarded-For: 9.9.9.9, 1.2.3.4" in sent and "Accept: */*" in sent


def test_connection_cannot_hide_the_length() -> None:
    head = parse_request(request("Connection: content-length, host", "Content-Length: 3"))
    assert b"Content-Length: 3" in request_bytes(head, "::1", None) and b"Host: a" in request_bytes(head, "::1", None)


def test_an_upgrade_is_passed_on() -> None:
    head = parse_request(request("Connection: Upgrade", "Upgrade: websocket", line="GET /ws HTTP/1.1"))
    assert head.upgrade == b"websocket"
    assert b"Connection: Upgrade\r\nUpgrade: websocket" in request_bytes(head, "::1", b"")
    assert parse_request(request("Upgrade: h2c")).upgrade is None  # not asked for by Connection


@pytest.mark.parametrize(
    ("status", "method", "headers", "body", "is_kept_alive"),
    [
        ("200 OK", b"GET", "Content-Length: 3", Body(3), True),
        ("200 OK", b"HEAD", "Content-Length: 3", Body(0), True),
        ("204 No Content", b"GET", "X: y", Body(0), True),
        ("200 OK", b"GET", "Transfer-Encoding: chunked", Body(None, is_chunked=True), True),
        ("200 OK", b"GET", "X: y", Body(None), False),  # until it closes
        ("200 OK", b"GET", "Content-Length: 3\r\nConnection: close", Body(3), False),
        ("200", b"GET", "Content-Length: 3", Body(3), True),
    ],
)
def test_answers(status: str, method: bytes, headers: str, body: Body, is_kept_alive: bool) -> None:
    head = parse_response(f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n".encode(), method)
    assert (head.body, head.is_kept_alive) == (body, is_kept_alive)
    sent = response_bytes(head, is_kept_alive=False, minor=1)
    assert sent.startswith(f"HTTP/1.1 {status}\r\n".encode()) and sent.count(b"Connection: close") == 1


def test_sizes_of_chunks() -> None:
    assert chunk_size(b"1a;name=x\r\n") == 26
    for wrong in (
        b"\r\n",
        b"-1\r\n",
        b"0x1\r\n",
        b"1" * 16 + b"\r\n",
        b"1 2\r\n",
        b"\n1\r\n",
        b"1;a\nb\r\n",
        b"1\r\r\n",
    ):
        with pytest.raises(BadMessage):
            chunk_size(wrong)
