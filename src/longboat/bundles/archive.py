"""A bundle as one stream, to carry it to another machine: a deterministic tar.gz with the manifest and the contents.

    manifest.json, objects/<hash> ...

Contents that the other side has may be left out. `extract`, for archives of strangers, is offered here too.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

import msgspec

from longboat.bundles.disk import errors_explained
from longboat.bundles.extraction import DAMAGED, BombGuard, extract
from longboat.bundles.manifests import DEFAULT_LIMITS, CodeSnapshot, TreeLimits
from longboat.bundles.store import BundleStore, decode
from longboat.core.errors import BundleError
from longboat.core.words import counted

__all__ = ["extract", "pack", "unpack"]

_MANIFEST = "manifest.json"
_MAX_MANIFEST_BYTES = 256 << 20  # about two million files; more is no manifest of ours
_LEVEL = 4  # source code: within 7 % of level 9, in a quarter of its time


def pack(store: BundleStore, hash: str, file: BinaryIO, *, have: Collection[str] = ()) -> int:
    """Write the bundle to `file`, less the contents in `have`; how many contents were written.

    The bytes depend on the tree and `have` alone: no times, owners, names of the machine.
    """
    snapshot = store.load(hash)
    tree = CodeSnapshot(hash=snapshot.hash, entries=snapshot.entries, size=snapshot.size)
    known = set(have)
    count = 0
    with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0, compresslevel=_LEVEL) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            text = msgspec.json.encode(tree)
            tar.addfile(_header(_MANIFEST, len(text)), io.BytesIO(text))
            for content, size in snapshot.objects.items():
                if content not in known:
                    _add(tar, store, content, size)
                    count += 1
    return count


def _header(name: str, size: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size = size
    header.mode = 0o644
    return header


def _add(tar: tarfile.TarFile, store: BundleStore, hash: str, size: int) -> None:
    damaged = BundleError(f"the stored content {hash[:12]} is missing or damaged", hint="submit the job again")
    try:
        with open(store.object_path(hash), "rb") as file:
            reader = _Hashing(file)
            if os.fstat(file.fileno()).st_size != size:
                raise damaged
            tar.addfile(_header(f"objects/{hash}", size), reader)
    except FileNotFoundError:
        raise damaged from None
    if reader.digest.hexdigest() != hash:
        raise damaged


class _Hashing:
    """A file that hashes what is read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def unpack(
    file: BinaryIO, target: Path, *, limits: TreeLimits = DEFAULT_LIMITS, have_store: BundleStore | None = None
) -> None:
    """Lay the bundle out in `target`, absent or empty. Contents that are not in it come from `have_store`, which also
    keeps those that are. Everything is checked against its hash; a hostile archive raises BundleError."""
    if have_store is not None:
        with have_store.in_use():
            snapshot = _receive(file, have_store, limits)
            have_store.save(snapshot)
        have_store.check_out(snapshot.hash, target)
        return
    beside = os.path.dirname(os.path.abspath(target))
    with errors_explained(beside):
        os.makedirs(beside, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=".unpack-", dir=beside)
    try:
        store = BundleStore(Path(folder))
        store.prepare()
        snapshot = _receive(file, store, limits)
        store.save(snapshot)
        store.check_out(snapshot.hash, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _receive(file: BinaryIO, store: BundleStore, limits: TreeLimits) -> CodeSnapshot:
    """Keep the contents of the archive; its manifest."""
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            guarded = BombGuard(unpacked, limits, 0, "the bundle")
            with tarfile.open(fileobj=guarded, mode="r:") as tar:  # type: ignore[call-overload]
                snapshot = _read_manifest(tar, limits)
                _read_objects(tar, store, snapshot)
    except DAMAGED as error:
        raise BundleError(f"the bundle is damaged: {error}") from None
    except OSError as error:
        raise BundleError(f"the bundle cannot be read: {error}") from None
    return snapshot


def _read_manifest(tar: tarfile.TarFile, limits: TreeLimits) -> CodeSnapshot:
    member = tar.next()
    if member is None or member.name != _MANIFEST or not member.isreg() or member.size > _MAX_MANIFEST_BYTES:
        raise BundleError("this is not a bundle: it does not start with a manifest")
    reader = tar.extractfile(member)
    assert reader is not None
    snapshot = decode(reader.read())
    size = sum(entry.size for entry in snapshot.entries)
    if len(snapshot.entries) > limits.max_files or size > limits.max_bytes:
        raise BundleError(f"the bundle is larger than allowed: {len(snapshot.entries):,} files, {size:,} bytes")
    return CodeSnapshot(hash=snapshot.hash, entries=snapshot.entries, size=size)


def _read_objects(tar: tarfile.TarFile, store: BundleStore, snapshot: CodeSnapshot) -> None:
    needed = snapshot.objects
    missing = {hash for hash, size in needed.items() if not store.has(hash, size)}
    seen: set[str] = set()
    while (member := tar.next()) is not None:
        hash = member.name.removeprefix("objects/")
        if not member.isreg() or member.issparse() or needed.get(hash) != member.size or hash in seen:
            raise BundleError(f"the bundle holds {member.name[:100]!r}, which does not belong to it")
        seen.add(hash)
        reader = tar.extractfile(member)
        assert reader is not None
        actual, size = store.put_stream(reader, member.size)  # type: ignore[arg-type]
        if (actual, size) != (hash, member.size):
            raise BundleError(f"a content of the bundle does not have its hash: {hash[:12]}")
        missing.discard(hash)
        tar.members.clear()  # type: ignore[attr-defined]
    if missing:
        path = next(entry.path for entry in snapshot.entries if entry.hash in missing)
        raise BundleError(f"the bundle lacks {counted(len(missing), 'content')}, among them that of {path!r}")
