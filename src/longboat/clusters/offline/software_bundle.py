"""Software bundles as `up` reads them: an archive, a folder with the same content, or a URL below which it is served.

Nothing is unpacked here: a file of the archive is a stretch of it, which is streamed to hosts. Every size and checksum
is compared before the first host is asked. What comes from a URL is kept in a cache, by its checksum.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from longboat.bundles.disk import errors_explained
from longboat.bundles.extraction import DAMAGED, BombGuard
from longboat.bundles.trees import DEFAULT_LIMITS
from longboat.clusters.hosts.connection import FilePart
from longboat.clusters.offline.manifest import MANIFEST, MOST_FILES, SoftwareFile, SoftwareManifest, read_manifest
from longboat.clusters.plan.packages import SUMS
from longboat.clusters.small_files import load_file
from longboat.core.errors import BundleError, NotFound
from longboat.engines.shared.files import make_folder
from longboat.storage.download import fetch

MOST_MANIFEST = 8 << 20  # a line for each of some dozens of files; more is no manifest
_CHUNK = 1 << 20
_MAKE = "longboat cluster bundle makes one"
_AGAIN = "copy it again; sha256sum tells whether it is the same file as where it was made"


@dataclass(frozen=True)
class SoftwareBundle:
    place: str
    manifest: SoftwareManifest
    parts: Mapping[str, FilePart]
    """Path of a file in the manifest -> where its content is."""

    def part(self, path: str) -> FilePart:
        return self.parts[path]

    def packages_stream(self) -> tuple[bytes | FilePart, ...]:
        """All packages and their checksums as a tar stream, for `tar -x` on a host."""
        sums = "".join(f"{file.sha256}  {file.name}\n" for file in self.manifest.packages).encode()
        pieces: list[bytes | FilePart] = [tar_header(SUMS, len(sums)), sums, padding(len(sums))]
        for file in self.manifest.packages:
            pieces += [tar_header(file.name, file.size), self.parts[file.path], padding(file.size)]
        return (*pieces, bytes(2 * tarfile.BLOCKSIZE))


def open_bundle(location: str, cache: Path, *, sha256: str = "") -> SoftwareBundle:
    """Open a bundle and verify every file against its manifest. `sha256`: the pinned checksum of the manifest."""
    if "://" in location:
        bundle = _from_url(location.rstrip("/"), cache, sha256)
    elif os.path.isdir(location):
        bundle = _from_folder(Path(location), sha256)
    elif os.path.exists(location):
        bundle = _from_archive(Path(location), sha256)
    else:
        raise NotFound(f"{location}: no such bundle", hint=_MAKE)
    for file in bundle.manifest.files:
        _verify(bundle, file)
    return bundle


def _verify(bundle: SoftwareBundle, file: SoftwareFile) -> None:
    part = bundle.parts.get(file.path)
    if part is None or part.size != file.size:
        state = "is missing" if part is None else f"has {part.size} bytes, expected {file.size}"
        raise BundleError(f"{bundle.place}: {file.path} {state}", hint=_AGAIN)
    if digest_of(part) != file.sha256:
        raise BundleError(f"{bundle.place}: {file.path} is damaged: its checksum is another one", hint=_AGAIN)


def digest_of(part: FilePart) -> str:
    digest = hashlib.sha256()
    left = part.size
    with errors_explained(str(part.path)), open(part.path, "rb") as file:
        file.seek(part.offset)
        while left and (data := file.read(min(_CHUNK, left))):
            digest.update(data)
            left -= len(data)
    return digest.hexdigest()


def check_digest(path: Path, checksum: str, field: str) -> None:
    """Raise BundleError for a file that is not the one which the field of the cluster file names, if it names one."""
    if checksum and (digest := digest_of(FilePart(path=path, offset=0, size=path.stat().st_size))) != checksum:
        raise BundleError(
            f"{path} is not what {field} names: its checksum is {digest}",
            hint="#sha256=SUM of the cluster file is what sha256sum prints of the right one",
        )


def _manifest_of(data: bytes, place: str, sha256: str) -> SoftwareManifest:
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        raise BundleError(f"{place}: {MANIFEST} is not the one that source.sha256 of the cluster file names")
    return read_manifest(data, place)


def _from_archive(path: Path, sha256: str) -> SoftwareBundle:
    place = str(path)
    parts: dict[str, FilePart] = {}
    try:
        with errors_explained(place), open(path, "rb") as file, _open_tar(file, place) as tar:
            manifest = _manifest_of(_first_member(tar, place), place, sha256)
            while (member := tar.next()) is not None:
                if not member.isreg() or member.name in parts or len(parts) > MOST_FILES:
                    raise BundleError(f"{place}: it holds {member.name[:100]!r}, which no bundle has")
                parts[member.name] = FilePart(path=path, offset=member.offset_data, size=member.size)
    except DAMAGED as error:
        raise BundleError(f"{place}: it is cut off or no bundle: {error}", hint=_AGAIN) from None
    end = max((part.offset + part.size for part in parts.values()), default=0)
    if end > path.stat().st_size:
        raise BundleError(f"{place}: it is cut off: {path.stat().st_size} bytes of at least {end}", hint=_AGAIN)
    return SoftwareBundle(place, manifest, parts)


def _open_tar(file: BinaryIO, place: str) -> tarfile.TarFile:
    guarded: Any = BombGuard(file, DEFAULT_LIMITS, 0, place)
    return tarfile.open(fileobj=guarded, mode="r:")


def _first_member(tar: tarfile.TarFile, place: str) -> bytes:
    member = tar.next()
    file = tar.extractfile(member) if member is not None and member.isreg() else None
    if member is None or file is None or member.name != MANIFEST or member.size > MOST_MANIFEST:
        raise BundleError(f"{place}: no bundle for a cluster: it does not begin with {MANIFEST}", hint=_MAKE)
    return file.read()


def _from_folder(folder: Path, sha256: str) -> SoftwareBundle:
    file = folder / MANIFEST
    if not file.is_file():
        raise NotFound(f"{folder}: no bundle is in this folder: it has no {MANIFEST}", hint=_MAKE)
    with errors_explained(str(file)), open(file, "rb") as opened:
        manifest = _manifest_of(opened.read(MOST_MANIFEST), str(folder), sha256)
    return _of_files(str(folder), manifest, lambda listed: folder / listed.path)


def _from_url(url: str, cache: Path, sha256: str) -> SoftwareBundle:
    make_folder(cache)
    manifest = _manifest_of(load_file(f"{url}/{MANIFEST}"), url, sha256)
    for file in manifest.files:
        _fetch_file(f"{url}/{file.path}", file, cache)
    return _of_files(url, manifest, lambda listed: cache / listed.sha256)


def _fetch_file(url: str, file: SoftwareFile, cache: Path) -> None:
    """Download a file into the cache by its checksum, unless it is there."""
    kept = cache / file.sha256
    if kept.is_file() and kept.stat().st_size == file.size:
        return
    partial = cache / f"{file.sha256}.part"  # the next attempt goes on with it
    fetch(url, str(partial))
    part = FilePart(path=partial, offset=0, size=partial.stat().st_size)
    if part.size != file.size or digest_of(part) != file.sha256:
        partial.unlink()
        raise BundleError(f"{url}: it is not what {MANIFEST} says: its size or checksum is another one")
    with errors_explained(str(kept)):
        os.replace(partial, kept)


def _of_files(place: str, manifest: SoftwareManifest, path_of: Callable[[SoftwareFile], Path]) -> SoftwareBundle:
    parts = {}
    for file in manifest.files:
        path = path_of(file)
        if path.is_file():
            parts[file.path] = FilePart(path=path, offset=0, size=path.stat().st_size)
    return SoftwareBundle(place, manifest, parts)


def tar_header(name: str, size: int) -> bytes:
    """A reproducible tar header: no times, no owner."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """Zero bytes that fill the last tar block."""
    return bytes(-size % tarfile.BLOCKSIZE)
