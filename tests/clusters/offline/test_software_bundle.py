"""Bundles as a file, a folder and below a URL: what is read, and every kind of damage before a host is asked."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longboat.clusters.hosts.scripts import chunks
from longboat.clusters.offline.manifest import encode_manifest
from longboat.clusters.offline.software_bundle import open_bundle
from longboat.core.errors import BundleError, EngineError, NotFound
from tests.clusters.offline.bundles import CONTENTS, write_archive, write_folder


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    write_archive(tmp_path / "lab.tar")
    return tmp_path / "lab.tar"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Path], str]]:
    """A folder below a URL."""
    servers = []

    def start(folder: Path) -> str:
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def content(place: Path | str, cache: Path) -> dict[str, bytes]:
    bundle = open_bundle(str(place), cache)
    result = {}
    for path in bundle.parts:
        with chunks((bundle.part(path),)) as pieces:
            result[path] = b"".join(pieces)
    return result


def test_the_same_content_from_a_file_a_folder_and_a_url(
    archive: Path, tmp_path: Path, serve: Callable[[Path], str]
) -> None:
    unpacked = tmp_path / "unpacked"
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    assert content(archive, tmp_path) == content(unpacked, tmp_path) == CONTENTS
    assert content(f"{serve(unpacked)}/", tmp_path / "cache") == CONTENTS
    (unpacked / "images.tar").unlink()  # what is in the cache is not asked for again
    assert content(serve(unpacked), tmp_path / "cache") == CONTENTS


def test_the_same_bundle_is_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    write_archive(tmp_path / "again.tar")
    assert archive.read_bytes() == (tmp_path / "again.tar").read_bytes()


def test_one_that_is_cut_off_anywhere_is_told(archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    for size in (0, 100, 512, 1000, 3000, 9000, len(data) // 2, len(data) - 6000):
        archive.write_bytes(data[:size])
        with pytest.raises(BundleError):
            open_bundle(str(archive), tmp_path)


def test_a_byte_that_changed_is_told(archive: Path, tmp_path: Path) -> None:
    data = bytearray(archive.read_bytes())
    place = data.index(CONTENTS["packages/kubelet_1.deb"])
    data[place + 7] ^= 1
    archive.write_bytes(data)
    with pytest.raises(BundleError, match=r"packages/kubelet_1\.deb is damaged") as caught:
        open_bundle(str(archive), tmp_path)
    assert caught.value.hint


def test_anything_else_in_the_archive_is_refused(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive, "a") as tar:
        entry = tarfile.TarInfo("packages/x")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(entry)
    with pytest.raises(BundleError, match="'packages/x', which no bundle has"):
        open_bundle(str(archive), tmp_path)


def test_an_archive_of_something_else_is_told(tmp_path: Path) -> None:
    other = tmp_path / "other.tar"
    with tarfile.open(other, "w") as tar:
        entry = tarfile.TarInfo("readme")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"hi"))
    with pytest.raises(BundleError, match=r"it does not begin with bundle\.json"):
        open_bundle(str(other), tmp_path)
    with pytest.raises(NotFound, match="no such bundle"):
        open_bundle(str(tmp_path / "none.tar"), tmp_path)
    with pytest.raises(NotFound, match=r"it has no bundle\.json"):
        open_bundle(str(tmp_path), tmp_path)


def test_a_file_that_is_missing_in_a_folder_is_told(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "images.tar").unlink()
    with pytest.raises(BundleError, match=r"images\.tar is missing"):
        open_bundle(str(tmp_path), tmp_path)


def test_a_server_that_sends_something_else_is_told(tmp_path: Path, serve: Callable[[Path], str]) -> None:
    write_folder(tmp_path / "served")
    (tmp_path / "served" / "images.tar").write_bytes(b"other")
    url = serve(tmp_path / "served")
    for _ in range(2):  # what was refused is not kept
        with pytest.raises(BundleError, match="its size or checksum is another one"):
            open_bundle(url, tmp_path / "cache")
    with pytest.raises(EngineError, match=r"bundle\.json cannot be read: File not found"):
        open_bundle(f"{url}/elsewhere", tmp_path / "cache")


def test_a_pinned_checksum_is_compared(archive: Path, tmp_path: Path) -> None:
    manifest = open_bundle(str(archive), tmp_path).manifest
    digest = hashlib.sha256(encode_manifest(manifest)).hexdigest()
    assert open_bundle(str(archive), tmp_path, sha256=digest).manifest == manifest
    with pytest.raises(BundleError, match=r"source\.sha256"):
        open_bundle(str(archive), tmp_path, sha256="0" * 64)


def test_packages_travel_as_a_stream_that_tar_reads_and_sha256sum_checks(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    with chunks(open_bundle(str(archive), tmp_path).packages_stream()) as pieces:
        stream = b"".join(pieces)
    script = f"cd {tmp_path}/host && tar -x --no-same-owner && sha256sum --strict -c SHA256SUMS"
    done = subprocess.run(["sh", "-c", script], input=stream, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "host" / "kubelet_1.deb").read_bytes() == CONTENTS["packages/kubelet_1.deb"]
