"""The files of the pages: read once, compressed once, served by name. Nothing outside of the folder has a name here."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from longboat.core.errors import NotFound

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
INDEX = "index.html"
KEPT = "public, max-age=31536000, immutable"
ASKED_EACH_TIME = "no-cache"


class StaticFile(NamedTuple):
    content: bytes
    packed: bytes | None  # with gzip, where that is smaller
    kind: str
    tag: str


class StaticFiles:
    """All files of a folder by their relative names, listed once. One that changes on the disk is read again, for
    developers; a new one is seen by the next server."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._paths = self.names()
        self._files: dict[str, tuple[int, StaticFile]] = {}

    def names(self) -> dict[str, Path]:
        """What is served: listed, never made of a request, so that no name leads elsewhere."""
        return {
            path.relative_to(self._folder).as_posix(): path
            for path in self._folder.rglob("*")
            if path.suffix in TYPES and path.is_file() and not path.is_symlink()
        }

    def find(self, name: str) -> StaticFile:
        path = self._paths.get(name)
        if path is None:
            raise NotFound(f"no file named {name!r}")
        changed = path.stat().st_mtime_ns
        known = self._files.get(name)
        if known is None or known[0] != changed:
            known = self._files[name] = (changed, read_file(path))
        return known[1]

    def answer(self, request: Request, name: str) -> Response:
        file = self.find(name)
        is_versioned = "v" in request.query_params and name != INDEX
        headers = {
            "cache-control": KEPT if is_versioned else ASKED_EACH_TIME,
            "etag": file.tag,
            "vary": "accept-encoding",
        }
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        content = file.content
        if file.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            content = file.packed
            headers["content-encoding"] = "gzip"
        return Response(content, headers={**headers, "content-type": file.kind})


def read_file(path: Path) -> StaticFile:
    content = path.read_bytes()
    packed = gzip.compress(content, 9, mtime=0)
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return StaticFile(content, packed if len(packed) < len(content) else None, TYPES[path.suffix], tag)
