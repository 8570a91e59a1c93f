"""A real HTTP server for the tests whose answers are whatever bytes a test wants, well formed or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]  # names in small letters
    body: bytes


class Told(NamedTuple):
    """An answer; `raw` bytes instead of it, if given."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes | None = None


class Answering:
    """`requests`: all that came, in order."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Asked] = []
        self.lock = threading.Lock()


@contextmanager
def answering(answer: Callable[[Asked], Told]) -> Iterator[Answering]:
    """Serves on a free port; `answer` is called by one thread for each request."""
    found = Answering()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Asked(self.command, self.path, {n.lower(): v for n, v in self.headers.items()}, body)
            with found.lock:
                found.requests.append(asked)
            told = answer(asked)
            self.close_connection = True
            if told.raw is not None:
                self.wfile.write(told.raw)
                return
            self.send_response_only(told.status)
            for name, value in told.headers:
                self.send_header(name, value)
            if not any(name.lower() == "content-length" for name, _ in told.headers):
                self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            self.wfile.write(told.body if self.command != "HEAD" else b"")

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
