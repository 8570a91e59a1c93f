"""A door for probes: GET /healthz and /readyz answer `ok` or 503. Nothing about runs is told here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from longboat.core.errors import EngineError

Questions = Mapping[str, Callable[[], bool]]


def serve(port: int, questions: Questions) -> ThreadingHTTPServer:
    """Answer on all addresses of the pod: probes come from outside of it. `questions`: path -> whether all is well."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            asked = questions.get(self.path)
            status = 404 if asked is None else 200 if asked() else 503
            text = {200: b"ok\n", 404: b"not found\n", 503: b"no\n"}[status]
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are not worth a line each."""

    try:
        server = ThreadingHTTPServer(("", port), Handler)
    except OSError as error:
        raise EngineError(f"cannot answer probes on port {port}: {error.strerror}", hint="--health-port") from None
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
