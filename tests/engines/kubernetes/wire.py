"""A server that takes down what a client writes: it keeps nothing, and answers every write with what it was sent.

For objects that are made where they are sent. What a real server makes of them is another test.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import ACCESS_REVIEW, KINDS

KINDS_OF = {(kind.api_version, kind.plural): kind.kind for kind in KINDS.values()}
GIVEN = {"uid": "c0ffee00-0000-0000-0000-000000000000", "resourceVersion": "1"}


class Wire(http.server.ThreadingHTTPServer):
    """`written`: whole objects and patches, each with its apiVersion and kind.

    `there`: what lists, and questions for one, tell, by plural. `groups`: the API groups that it says it serves.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Clerk)
        self.written: list[dict[str, Any]] = []
        self.there: dict[str, list[dict[str, Any]]] = {}
        self.groups: dict[str, tuple[str, ...]] = {}
        self.plurals: dict[str, tuple[str, ...]] = {}  # what it serves of each group and version
        self.forbidden: set[str] = set()  # plurals that may not be listed
        self.allows_all = False  # what questions for rights are told


class _Clerk(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Wire

    def do_GET(self) -> None:
        (version, plural), names = _split(self.path)
        if plural in self.server.forbidden:
            self._answer(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not for you"})
        elif not plural and version in self.server.plurals:
            self._answer(200, {"resources": [{"name": name} for name in self.server.plurals[version]]})
        elif self.path == "/apis":
            groups = self.server.groups.items()
            told = [{"name": name, "versions": [{"version": one} for one in served]} for name, served in groups]
            self._answer(200, {"kind": "APIGroupList", "groups": told})
        elif found := [one for one in self.server.there.get(plural, ()) if names == [one["metadata"]["name"]]]:
            self._answer(200, found[0])
        elif names:
            self._answer(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "there is none"})
        else:
            self._answer(200, {"items": self.server.there.get(plural, []), "metadata": {"resourceVersion": "1"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        place, _ = _split(self.path)
        if place[1] == ACCESS_REVIEW.plural and self.server.allows_all:
            self._answer(201, {**body, "status": {"allowed": True}})
            return
        self.server.written.append({"apiVersion": place[0], "kind": KINDS_OF[place], **body})
        self._answer(201, {**body, "metadata": {**body.get("metadata", {}), **GIVEN}})

    do_PATCH = do_PUT = do_POST

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(200, {})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def _split(path: str) -> tuple[tuple[str, str], list[str]]:
    """(group and version, plural) and the names that follow."""
    parts = path.partition("?")[0].strip("/").split("/")
    version, rest = (parts[1], parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return (version, rest[0] if rest else ""), rest[1:]


@contextmanager
def listening(folder: Path) -> Iterator[tuple[Client, Wire]]:
    """A client, and what it writes."""
    wire = Wire()
    thread = threading.Thread(target=wire.serve_forever, daemon=True)
    thread.start()
    cluster = {"server": f"http://127.0.0.1:{wire.server_address[1]}"}
    context = {"cluster": "wire", "user": "wire", "namespace": "default"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "wire",
        "clusters": [{"name": "wire", "cluster": cluster}],
        "users": [{"name": "wire", "user": {}}],
        "contexts": [{"name": "wire", "context": context}],
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    try:
        with Client.open(environment={"KUBECONFIG": str(folder / "kubeconfig")}) as client:
            yield client, wire
    finally:
        wire.shutdown()
        wire.server_close()
        thread.join()
