"""A registry of images for pull tests, in the test's own process: it serves, hangs, refuses, crawls.

The nodes of one cluster know it by a name of its own, so that tests beside each other have one each. Images come from
archives (see `images`). Read only, plain HTTP, reached by the cluster's nodes alone.
"""

from __future__ import annotations

import http.server
import io
import json
import shutil
import tarfile
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import images, network
from testbed.clusters import Cluster
from testbed.errors import TestbedError

BLOCK = 1 << 14
KINDS = ("manifests", "blobs")


@dataclass(frozen=True)
class Blob:
    offset: int
    size: int


@dataclass(frozen=True)
class Image:
    """An archive, and where in it each content lies."""

    archive: Path
    manifest: str
    media_type: str
    blobs: dict[str, Blob]


def read_image(archive: Path) -> Image:
    with tarfile.open(archive) as tar:
        blobs = {
            f"sha256:{Path(entry.name).name}": Blob(entry.offset_data, entry.size)
            for entry in tar
            if entry.name.startswith("blobs/sha256/")
        }
        index = tar.extractfile("index.json")
        if index is None:
            raise TestbedError(f"{archive} is no archive of an image")
        listed = json.load(index)["manifests"][0]
    return Image(archive, listed["digest"], listed["mediaType"], blobs)


def write_new_image(archive: Path, program: Path, content: bytes) -> Path:
    """An image of one static program and a file: with content of its own, no node has it yet."""
    with tempfile.TemporaryDirectory() as scratch:
        layer = Path(scratch) / "layer.tar"
        with tarfile.open(layer, "w") as tar:
            tar.add(program.resolve(), "program")
            entry = tarfile.TarInfo("content")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        images.write_archive(archive, layer, archive.stem, {"Entrypoint": ["/program"]})
    return archive


class Registry:
    """Serves when made. Every method may be called from any thread."""

    def __init__(self, cluster: Cluster) -> None:
        if cluster.range is None:
            raise TestbedError(f"{cluster.name!r} has no real node that could pull an image")
        self.requests: list[str] = []
        self._images: dict[str, Image] = {}
        self._free = {kind: threading.Event() for kind in KINDS}
        self._statuses: dict[str, int] = {}
        self._bytes_per_s: float | None = None
        self._closed = False
        address = network.gateway_address(cluster, 0)
        handler = type("BoundHandler", (Handler,), {"registry": self})
        self._server = http.server.ThreadingHTTPServer((address, 0), handler)
        self.url = f"http://{address}:{self._server.server_port}"
        self.host = f"registry-{self._server.server_port}.test"
        self._settings = [folder / self.host for folder in cluster.folder.glob("node-*/registries")]
        for folder in self._settings:
            folder.mkdir()
            text = f'server = "{self.url}"\n[host."{self.url}"]\n  capabilities = ["pull", "resolve"]\n'
            (folder / "hosts.toml").write_text(text)
        self.restore()
        self._thread = threading.Thread(target=self._server.serve_forever, name="registry", daemon=True)
        self._thread.start()

    def add(self, name: str, archive: Path) -> str:
        """Serve this image; returns the name for pods."""
        self._images[name] = read_image(archive)
        return f"{self.host}/{name}:latest"

    def hang(self, *kinds: str) -> None:
        """Accept requests (for `manifests` or `blobs`; without a kind for both) and answer none until `restore`."""
        for kind in kinds or KINDS:
            self._free[kind].clear()

    def refuse(self, status: int, *kinds: str) -> None:
        for kind in kinds or KINDS:
            self._statuses[kind] = status

    def crawl(self, bytes_per_s: float) -> None:
        """Send contents no faster than this."""
        self._bytes_per_s = bytes_per_s

    def restore(self) -> None:
        """Serve again; what hung is answered now."""
        self._statuses.clear()
        self._bytes_per_s = None
        for event in self._free.values():
            event.set()

    def close(self) -> None:
        self._closed = True
        self.restore()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for folder in self._settings:
            shutil.rmtree(folder, ignore_errors=True)

    def find(self, name: str, kind: str, wanted: str) -> tuple[Image, str, Blob] | None:
        """The content behind a path, and its digest."""
        image = self._images.get(name)
        if image is None:
            return None
        digest = wanted if wanted.startswith("sha256:") else image.manifest
        return (image, digest, image.blobs[digest]) if digest in image.blobs else None

    def admit(self, kind: str) -> int | None:
        """Wait as long as requests of this kind hang; the status to refuse with, if any."""
        self._free[kind].wait()
        return 503 if self._closed else self._statuses.get(kind)

    def pace(self, sent: int) -> None:
        if self._bytes_per_s is not None and not self._closed:
            time.sleep(sent / self._bytes_per_s)


class Handler(http.server.BaseHTTPRequestHandler):
    """The part of the distribution protocol that a pull needs."""

    protocol_version = "HTTP/1.1"
    registry: Registry

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `Registry.requests`."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.registry.requests.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        parts = path.strip("/").split("/")
        if parts == ["v2"]:
            self.head(200, 0, {})
            return
        if len(parts) < 4 or parts[0] != "v2" or parts[-2] not in KINDS:
            self.head(404, 0, {})
            return
        status = self.registry.admit(parts[-2])
        content = self.registry.find("/".join(parts[1:-2]), parts[-2], parts[-1])
        if status is not None or content is None:
            self.head(status or 404, 0, {})
            return
        image, digest, blob = content
        kind = image.media_type if digest == image.manifest else "application/octet-stream"
        self.head(200, blob.size, {"Content-Type": kind, "Docker-Content-Digest": digest})
        if self.command == "GET":
            self.send(image.archive, blob)

    def head(self, status: int, size: int, fields: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(size)}.items():
            self.send_header(name, value)
        self.end_headers()

    def send(self, archive: Path, blob: Blob) -> None:
        left = blob.size
        try:
            with open(archive, "rb") as content:
                content.seek(blob.offset)
                while left > 0:
                    block = content.read(min(left, BLOCK))
                    self.wfile.write(block)
                    left -= len(block)
                    self.registry.pace(len(block))
        except OSError:
            # Nobody waits for the rest any more.
            self.close_connection = True
