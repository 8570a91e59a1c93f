"""Official release files: taken when they are what their checksum says, else built; never waited for."""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from testbed import releases
from testbed.binaries import BY_NAME, TARGETS


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "mirror"
    root.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Quiet(*args, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(releases, "_ANSWERS", {})
    monkeypatch.setenv("LONGBOAT_TESTBED_RELEASES", f"http://127.0.0.1:{server.server_port}")
    yield root
    server.shutdown()
    server.server_close()


def publish(root: Path, name: str, *, checksum: str = "") -> dict[str, bytes]:
    """Put what the target's releases name onto the mirror."""
    programs = {}
    for release in releases.releases_of(BY_NAME[name]):
        inside = {program: f"#!/bin/sh\necho {program}\n".encode() for program in release.programs}
        content = next(iter(inside.values()))
        if any(release.programs.values()):
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w:gz") as tar:
                for program, path in release.programs.items():
                    entry = tarfile.TarInfo(f"./{path}")
                    entry.size = len(inside[program])
                    tar.addfile(entry, io.BytesIO(inside[program]))
            content = packed.getvalue()
        for place in (release.url, release.checksum_url):
            (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / release.url).write_bytes(content)
        told = checksum or hashlib.sha256(content).hexdigest()
        (root / release.checksum_url).write_text(f"{'0' * 64}  other\n{told}  {Path(release.url).name}\n")
        programs.update(inside)
    return programs


RELEASED = ["kubernetes", "kubernetes-older", "kubernetes-previous", "etcd", "containerd", "runc", "cni"]


@pytest.mark.parametrize("name", RELEASED)
def test_programs_come_out_of_the_release(mirror: Path, tmp_path: Path, name: str) -> None:
    expected = publish(mirror, name)
    folder = tmp_path / "out"
    folder.mkdir()
    assert releases.fetch(BY_NAME[name], folder, lambda _: None)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == expected
    assert set(expected) == set(BY_NAME[name].programs)
    assert all(file.stat().st_mode & 0o111 for file in folder.iterdir())


def test_wrong_checksum_is_refused_and_nothing_is_left(mirror: Path, tmp_path: Path) -> None:
    publish(mirror, "etcd", checksum="f" * 64)
    folder = tmp_path / "out"
    folder.mkdir()
    said: list[str] = []
    assert not releases.fetch(BY_NAME["etcd"], folder, said.append)
    assert "is not what its checksum says" in said[-1]
    assert list(folder.iterdir()) == []


def test_a_file_that_is_not_there_means_building(mirror: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert not releases.fetch(BY_NAME["runc"], folder, lambda _: None)


def test_switched_off_downloads_make_no_request(mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(mirror, "runc")
    monkeypatch.setenv("LONGBOAT_TESTBED_RELEASES", "off")
    monkeypatch.setattr(releases, "answers", lambda _: pytest.fail("asked"))
    assert not releases.fetch(BY_NAME["runc"], tmp_path, lambda _: None)


def test_a_silent_host_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that takes connections and never answers: given up on by the time limit, and not asked again."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(releases, "_ANSWERS", {})
        monkeypatch.setattr(releases, "REACH_S", 0.2)
        monkeypatch.setenv("LONGBOAT_TESTBED_RELEASES", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert not releases.fetch(BY_NAME["runc"], tmp_path, lambda _: None)
        monkeypatch.setattr(releases, "answers", lambda _: pytest.fail("asked again"))
        assert not releases.fetch(BY_NAME["etcd"], tmp_path, lambda _: None)


def test_what_is_not_published_is_built() -> None:
    assert {target.name for target in TARGETS if not releases.releases_of(target)} >= {
        "tools",
        "jobset",
        "kueue",
        "kwok",
    }
