"""A real web server for the tests, on a port of its own, that can break off, refuse and redirect."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site:
    """What the server offers and what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.breaks: list[int] = []  # of each coming answer, after how many bytes it breaks off
        self.answers: list[int] = []  # error codes of the coming answers
        self.redirects: dict[str, str] = {}
        self.resumes = True
        self.tells_length = True
        self.login: str | None = None
        self.url = ""

    @property
    def ranges(self) -> list[str | None]:
        return [headers.get("range") for _, headers in self.requests]


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            site.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            path = self.path.partition("?")[0]
            if site.login is not None and self.headers.get("Authorization") != site.login:
                self.send_error(401)
            elif site.answers:
                self.send_error(site.answers.pop(0))
            elif path in site.redirects:
                self.send_response(302)
                self.send_header("Location", site.redirects[path])
                self.end_headers()
            elif path not in site.files:
                self.send_error(404)
            else:
                answer(self, site, site.files[path])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(handler: BaseHTTPRequestHandler, site: Site, data: bytes) -> None:
    tag = f'"{hashlib.md5(data).hexdigest()}"'
    start = 0
    asked = handler.headers.get("Range")
    if site.resumes and asked and handler.headers.get("If-Range") == tag:
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start >= len(data):
            handler.send_error(416)
            return
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
    else:
        handler.send_response(200)
    if site.resumes:
        handler.send_header("ETag", tag)
    if site.tells_length:
        handler.send_header("Content-Length", str(len(data) - start))
    handler.end_headers()
    sent = data[start:]
    if site.breaks:
        sent = sent[: site.breaks.pop(0)]
    handler.wfile.write(sent)
