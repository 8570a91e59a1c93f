"""HTTP server for probes and metrics: GET /healthz and the like answer `ok`, or 503 with the reason.

What is told is the caller's; anybody who reaches the port may read it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from longboat.core.errors import EngineError

Check = Callable[[], str]
"""What is wrong, in one line; empty: all is well."""
LONGEST = 500  # of what is wrong: kubelets put it into an event, which holds 1 KiB
MOST_CONNECTIONS = 32
"""At once, each with a thread. Probes and scrapes are one or two; more are a flood, in which the oldest goes first."""


class TextPage(NamedTuple):
    """A page rendered on request, with its media type."""

    text: Callable[[], str]
    kind: str


class BoundedServer(ThreadingHTTPServer):
    """An HTTP server for untrusted clients: limits connections by closing the oldest, and survives their errors."""

    daemon_threads = True
    request_queue_size = 256  # of the kernel: with Python's five, a small burst makes probes wait for seconds

    def __init__(self, *args: Any) -> None:
        self._open: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = next(iter(self._open.values())) if len(self._open) >= MOST_CONNECTIONS else None
            if oldest is not None:
                self._open.pop(id(oldest))
            self._open[id(request)] = request
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # its thread reads an end, and closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a single connection."""


def answer_of(check: Check) -> tuple[int, str]:
    """HTTP status and text for a check; an exception in the check is reported as its failure."""
    try:
        trouble = check()
    except Exception as error:
        trouble = f"{type(error).__name__}: {error}"
    return (503, " ".join(trouble.split())[:LONGEST] + "\n") if trouble else (200, "ok\n")


def serve(
    port: int, checks: Mapping[str, Check], *, option: str, pages: Mapping[str, TextPage] | None = None
) -> ThreadingHTTPServer:
    """Serve probes and pages on all addresses of the pod; port 0: any free one.

    `checks`: path to a function that returns the problem; `pages`: path to a page; `option`: the flag that names the
    port.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            page, check = (pages or {}).get(self.path), checks.get(self.path)
            kind = "text/plain; charset=utf-8" if page is None else page.kind
            if page is not None:
                status, text = 200, page.text()
            else:
                status, text = (404, "not found\n") if check is None else answer_of(check)
            content = text.encode(errors="replace")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes and scrapes would fill the log."""

    try:
        server = BoundedServer(("", port), Handler)
    except OSError as error:
        raise EngineError(f"cannot answer on port {port}: {error.strerror}", hint=option) from None
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
    return server
