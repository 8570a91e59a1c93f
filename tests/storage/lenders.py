"""A server that hands out credentials, as those of clouds do: what it is told to answer, to whom asks for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Lender:
    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, Any] = {}  # "GET /path" -> text, a mapping (JSON), or a list of those, in turn
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []


@contextmanager
def lending() -> Iterator[Lender]:
    lender = Lender()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = f"{self.command} {self.path.partition('?')[0]}"
            lender.requests.append(asked)
            lender.headers.append({name.lower(): value for name, value in self.headers.items()})
            lender.bodies.append(body)
            answer = lender.answers.get(asked)
            if isinstance(answer, list):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
            self.send_response(404 if answer is None else 200)
            self.end_headers()
            if answer is not None:
                self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

        do_GET = do_PUT = do_POST = handle_any

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    lender.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield lender
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
