"""Images out of a registry on this machine: the right variant, a token, redirects, and everything that can be wrong."""

from __future__ import annotations

import hashlib
import http.server
import json
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.offline import registry_pull
from longboat.clusters.offline.image_archive import references
from longboat.clusters.offline.registry_pull import parse_image, pull_images
from longboat.core.errors import EngineError

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class SmallRegistry:
    """Serves what it was given, to those who have the token that it gives to everybody."""

    def __init__(self) -> None:
        self.contents: dict[str, tuple[str, bytes]] = {}
        self.requests: list[str] = []
        self.busy: list[int] = []
        """Answers of the next requests, whatever they ask for."""
        self.token, self.uses = "open", 0
        """A token is good for so many requests; 0: for all."""
        self.used = 0
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                registry.answer(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, asked: http.server.BaseHTTPRequestHandler) -> None:
        self.requests.append(asked.path)
        if self.busy:
            return self.send(asked, self.busy.pop(0), b"", {"Retry-After": "0"})
        if asked.path.startswith("/token?"):
            status = 400 if asked.headers.get("Authorization") else 200
            return self.send(asked, status, json.dumps({"token": self.token}).encode())
        if asked.path.startswith("/moved"):  # another host: it must not see the token
            status = 500 if asked.headers.get("Authorization") else 200
            return self.send(asked, status, self.contents[asked.path.removeprefix("/moved")][1])
        if self.uses and self.used >= self.uses:
            self.token, self.used = f"{self.token}+", 0
        self.used += 1
        if asked.headers.get("Authorization") != f"Bearer {self.token}":
            challenge = f'Bearer realm="http://{self.host}/token",service="small",scope="repository:x:pull"'
            return self.send(asked, 401, b"", {"WWW-Authenticate": challenge})
        if asked.path not in self.contents:
            return self.send(asked, 404, b"")
        kind, body = self.contents[asked.path]
        if "/blobs/" in asked.path:
            return self.send(asked, 307, b"", {"Location": f"http://{self.host}/moved{asked.path}"})
        return self.send(asked, 200, body, {"Content-Type": kind})

    def send(
        self, asked: http.server.BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        asked.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            asked.send_header(name, value)
        asked.end_headers()
        asked.wfile.write(body)

    def add_blob(self, name: str, body: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        self.contents[f"/v2/{name}/blobs/{digest}"] = ("", body)
        return {"digest": digest, "size": len(body)}

    def add(self, name: str, layer: bytes) -> str:
        """An image for two architectures; what the layer of the wanted one is."""
        entries = []
        for architecture in ("arm64", "amd64"):
            content = layer if architecture == "amd64" else b"other"
            manifest = {"config": self.add_blob(name, b"{}"), "layers": [self.add_blob(name, content)]}
            body = json.dumps(manifest).encode()
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            self.contents[f"/v2/{name}/manifests/{digest}"] = (MANIFEST, body)
            platform = {"os": "linux", "architecture": architecture}
            entries.append({"digest": digest, "size": len(body), "platform": platform})
        self.contents[f"/v2/{name}/manifests/1"] = (INDEX, json.dumps({"manifests": entries}).encode())
        return f"{self.host}/{name}:1"


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    made = SmallRegistry()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_the_variant_of_the_architecture_in_an_archive(registry: SmallRegistry, tmp_path: Path) -> None:
    names = [registry.add("team/app", b"layer" * 1000), registry.add("base", b"layer" * 1000)]
    pull_images(names, "amd64", tmp_path / "images.tar", lambda line: None)
    assert references(tmp_path / "images.tar") == tuple(sorted(names))
    with tarfile.open(tmp_path / "images.tar") as tar:
        layers = [member for member in tar.getmembers() if member.size == 5000]
        assert len(layers) == 1  # both images share it
        assert not [member for member in tar.getmembers() if member.size == len(b"other")]
    first = (tmp_path / "images.tar").read_bytes()
    pull_images(names, "amd64", tmp_path / "again.tar", lambda line: None)
    assert (tmp_path / "again.tar").read_bytes() == first


def test_a_token_that_expires_is_renewed(registry: SmallRegistry, tmp_path: Path) -> None:
    name = registry.add("app", b"layer")
    registry.uses = 3
    pull_images([name], "amd64", tmp_path / "images.tar", lambda line: None)
    assert references(tmp_path / "images.tar") == (name,)
    assert sum(path.startswith("/token?") for path in registry.requests) > 1
    registry.uses = 1  # no token is ever good
    with pytest.raises(EngineError, match="answers 401"):
        pull_images([name], "amd64", tmp_path / "b.tar", print)


def test_a_busy_registry_is_asked_again_and_not_for_ever(registry: SmallRegistry, tmp_path: Path) -> None:
    name = registry.add("app", b"layer")
    registry.busy = [503, 429, 500]
    pull_images([name], "amd64", tmp_path / "images.tar", lambda line: None)
    assert references(tmp_path / "images.tar") == (name,) and not registry.busy
    registry.busy = [503] * 1000
    count = len(registry.requests)
    with pytest.raises(EngineError, match="answers 503"):
        pull_images([name], "amd64", tmp_path / "b.tar", print)
    assert len(registry.requests) - count == 1 + len(registry_pull.PAUSES_S)


def test_what_is_wrong_is_told_with_the_images_name(registry: SmallRegistry, tmp_path: Path) -> None:
    name = registry.add("app", b"layer")
    with pytest.raises(EngineError, match="app:1: it cannot be pulled: there is no variant for linux on riscv64"):
        pull_images([name], "riscv64", tmp_path / "a.tar", print)
    with pytest.raises(EngineError, match="answers 404"):
        pull_images([f"{registry.host}/none:1"], "amd64", tmp_path / "b.tar", print)
    blob = next(path for path in registry.contents if "/blobs/" in path and registry.contents[path][1] == b"layer")
    registry.contents[blob] = ("", b"LAYER")
    with pytest.raises(EngineError, match="arrives with another content"):
        pull_images([name], "amd64", tmp_path / "c.tar", print)
    manifest = [path for path in registry.contents if "/manifests/sha256" in path][-1]
    registry.contents[manifest] = (MANIFEST, b"{}")
    with pytest.raises(EngineError, match="has another content"):
        pull_images([name], "amd64", tmp_path / "d.tar", print)
    registry.contents["/v2/app/manifests/1"] = (INDEX, b"[]")
    with pytest.raises(EngineError, match="its description is not understood"):
        pull_images([name], "amd64", tmp_path / "e.tar", print)
    assert not list(tmp_path.glob("*.tar"))


def test_names() -> None:
    assert parse_image("registry.k8s.io/coredns/coredns:v1.14.2").url == "https://registry.k8s.io/v2/coredns/coredns"
    assert parse_image("docker.io/library/busybox").url == "https://registry-1.docker.io/v2/library/busybox"
    assert parse_image("example.org/a@sha256:0").tag == "sha256:0"
    for name in ("busybox", "a b/c:1", ""):
        with pytest.raises(EngineError, match="no full name"):
            parse_image(name)
