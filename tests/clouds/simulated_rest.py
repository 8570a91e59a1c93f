"""Plumbing of servers that simulate clouds over HTTP: one thread, tokens, a log of requests, answers that go wrong."""

from __future__ import annotations

import functools
import itertools
import json
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

Body = dict[str, Any]


class SimulatedRefusal(Exception):
    def __init__(self, status: int, error: Body, headers: dict[str, str] | None = None) -> None:
        super().__init__(error.get("message"))
        self.status, self.error, self.headers = status, error, headers or {}


class SimulatedRest:
    """`answer(method, path, query, body, headers)` gives status, body, headers; it may raise SimulatedRefusal."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.requests: list[tuple[str, str]] = []
        self.violations: list[str] = []
        self.hiccups: list[tuple[str, str, int, str]] = []
        """Method, part of the path, status, `before` or `after` it was carried out; each happens once."""
        self._lock = threading.Lock()
        simulated = self

        class Handler(BaseHTTPRequestHandler):
            def _handle(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                simulated._serve(self, self.rfile.read(length))

            do_GET = do_PATCH = do_POST = do_PUT = do_DELETE = _handle

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Body | None, headers: Any
    ) -> tuple[int, Body, dict[str, str]]:
        raise NotImplementedError

    def give_token(self, path: str, query: dict[str, str], data: bytes) -> Body | None:
        """The answer to who asks for a token; None: it is no such request."""
        raise NotImplementedError

    def taken(self) -> list[str]:
        """Requests since the last question, as `METHOD last/part`, without tokens."""
        requests, self.requests = self.requests, []
        return [f"{method} {path.rpartition('/')[2]}" for method, path in requests]

    def _serve(self, handler: BaseHTTPRequestHandler, data: bytes) -> None:
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        method = handler.command
        with self._lock:
            token = self.give_token(parts.path, query, data)
            if token is not None:
                return _reply(handler, 200, token, {})
            self.requests.append((method, parts.path))
            try:
                if handler.headers.get("Authorization") != f"Bearer {self.token}":
                    raise SimulatedRefusal(401, {"code": "ExpiredAuthenticationToken", "message": "The token expired"})
                after = self._hiccup(method, parts.path)
                body = json.loads(data) if data else None
                status, answer, headers = self.answer(method, parts.path, query, body, handler.headers)
                after()
            except SimulatedRefusal as refusal:
                status, answer, headers = refusal.status, {"error": refusal.error}, refusal.headers
        return _reply(handler, status, answer, headers)

    def _hiccup(self, method: str, path: str) -> Callable[[], None]:
        for hiccup in self.hiccups:
            if hiccup[0] == method and hiccup[1] in path:
                self.hiccups.remove(hiccup)
                refusal = SimulatedRefusal(
                    hiccup[2], {"code": hiccup[2], "message": "an error that passes"}, {"Retry-After": "1"}
                )
                if hiccup[3] == "before":
                    raise refusal
                return functools.partial(_fail, refusal)
        return lambda: None


def stumbling(patch: pytest.MonkeyPatch, simulated: SimulatedRest) -> None:
    """Every second question is answered with 503."""
    answer = simulated.answer
    asked = itertools.count()

    def every_second(method: str, *rest: Any) -> tuple[int, Body, dict[str, str]]:
        if method == "GET" and next(asked) % 2 == 0:
            raise SimulatedRefusal(503, {"code": 503, "status": "UNAVAILABLE", "message": "busy for a moment"})
        return answer(method, *rest)

    patch.setattr(simulated, "answer", every_second)


def _fail(refusal: SimulatedRefusal) -> None:
    raise refusal


def _reply(handler: BaseHTTPRequestHandler, status: int, body: Body, headers: dict[str, str]) -> None:
    data = json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(data))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)
