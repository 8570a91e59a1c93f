"""The door for probes answers what it is asked, and nothing else."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from longboat.core.errors import EngineError
from longboat.engines.shared.probe_server import MOST_CONNECTIONS, serve

TROUBLE = {"/healthz": "", "/readyz": ""}


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    server = serve(number, {path: lambda path=path: TROUBLE[path] for path in TROUBLE}, option="--port")  # type: ignore[misc]
    yield number
    server.shutdown()
    server.server_close()


def ask(port: int, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_answers(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(port, "/healthz") == (200, b"ok\n")
    monkeypatch.setitem(TROUBLE, "/readyz", "cannot watch pods: no\nway")
    assert ask(port, "/readyz") == (503, b"cannot watch pods: no way\n")
    assert ask(port, "/healthz")[0] == 200
    assert ask(port, "/../etc/passwd")[0] == 404


def test_a_check_that_fails_is_an_answer(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TROUBLE, "/healthz")
    assert ask(port, "/healthz") == (503, b"KeyError: '/healthz'\n")


def test_a_port_that_is_taken_is_an_error_of_ours(port: int) -> None:
    with pytest.raises(EngineError, match=str(port)):
        serve(port, {}, option="--port")


def test_a_flood_of_silent_connections_keeps_no_probe_out(port: int) -> None:
    """Each would hold a thread until it times out; the oldest go instead, and the server stays."""
    silent = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(3 * MOST_CONNECTIONS)]
    try:
        for _ in range(3):
            assert ask(port, "/healthz") == (200, b"ok\n")
        assert silent[0].recv(1) == b""
        threads = [each for each in threading.enumerate() if "process_request" in each.name]
        assert len(threads) <= MOST_CONNECTIONS + 4  # some have read their end, and are about to go
    finally:
        for each in silent:
            each.close()


@pytest.mark.parametrize(
    "data", [b"\0" * 200, b"GET /" + b"x" * 70_000, b"GET / HTTP/9.9\r\n\r\n", b"\xff\xfe\r\n\r\n"]
)
def test_invalid_requests_do_not_stop_the_server(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        stranger.sendall(data)
    assert ask(port, "/healthz")[0] == 200
