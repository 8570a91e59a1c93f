"""A machine between a client and a store that fails on demand: cuts answers, refuses, or lets somebody in between."""

from __future__ import annotations

import http.client
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ERROR = '<?xml version="1.0"?><Error><Code>{}</Code><Message>secret words</Message></Error>'


class Between:
    """What happens to coming requests, and those that came."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, str, dict[str, str]]] = []  # method, path, headers
        self.cuts: list[int] = []  # of coming reads of objects: after how many bytes the answer breaks off
        self.answers: list[tuple[int, str]] = []  # of coming requests: status and code, instead of the store's own
        self.expired = ""  # of requests with this in their authorization: it has expired
        self.after_cut: Callable[[], None] = lambda: None
        self.lock = threading.Lock()

    def asked(self, header: str) -> list[str]:
        return [headers[header] for _, _, headers in self.requests if header in headers]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, state: Between, store: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state = state
        self.store = urllib.parse.urlsplit(store).netloc


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def handle_any(self) -> None:
        state = self.server.state
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.close_connection = True
        with state.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            state.requests.append((self.command, self.path, headers))
            answer = state.answers.pop(0) if state.answers else None
            if state.expired and state.expired in headers.get("authorization", ""):
                answer = (400, "ExpiredToken")
            is_read = self.command == "GET" and "?" not in self.path
            cut = state.cuts.pop(0) if state.cuts and is_read and answer is None else None
        if answer is not None:
            self.reply(answer[0], {"Content-Type": "application/xml"}, ERROR.format(answer[1]).encode(), None)
            return
        self.reply(*self.forward(body), cut)
        if cut is not None:
            state.after_cut()

    def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The store checks the signature against the host that the client named, which is passed on."""
        connection = http.client.HTTPConnection(self.server.store, timeout=30)
        kept = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        connection.request(self.command, self.path, body or None, kept)
        response = connection.getresponse()
        told = {name: value for name, value in response.getheaders() if name.lower() != "transfer-encoding"}
        data = response.read()
        connection.close()
        return response.status, told, data

    def reply(self, status: int, headers: dict[str, str], data: bytes, cut: int | None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection"):
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data if cut is None else data[:cut])

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any


@contextmanager
def between(store: str) -> Iterator[Between]:
    """Serves what `store` (an address) serves."""
    state = Between()
    server = _Server(state, store)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
