"""The store of bundles: contents by their hash, manifests by the hash of their tree. Plain files, no daemon.

    objects/ab/cdef...   one content each, never changed        manifests/<hash>.json   one tree each
    cache/               what `take` knows of files by their stat  tmp/                  being written

Everything is written under a temporary name and renamed, so a process may die at any time. A content counts as present
only with its full size, and a manifest only with its own hash. For a power loss, contents are synced together (one by
one they would take seconds) before the manifest that needs them is saved: what is saved can be laid out ever after.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from longboat.bundles import checkout, durable
from longboat.bundles.disk import errors_explained, explain, fresh_name, replace_file, write_all, write_new
from longboat.bundles.manifests import EMPTY_HASH, CodeSnapshot, check_tree, is_hash, tree_hash
from longboat.core.errors import BundleError, NotFound
from longboat.core.guards.decoding import decoder

GRACE_S = 3600.0
"""What is younger than this is not collected: the run that needs it may not have been written down yet."""

SETTLED_S = 600.0
"""What is older than this has been written to the disk by the kernel itself: after half a minute by default, and after
ten minutes at most where a laptop saves power. Younger contents may be those of a process that died before its sync."""

_OTHERWISE = ", or set LONGBOAT_HOME to a folder on another disk"
_CACHE_KEPT_S = 30 * 86400.0  # a folder that nobody ran from for a month is scanned anew
_CHUNK = 1 << 20
_FOLDERS = ("objects", "manifests", "tmp", "cache")
_encoder = msgspec.json.Encoder()
_decoder = decoder(CodeSnapshot)


class BundleStore:
    """A folder of bundles; any number of processes may use it at the same time."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._root = os.path.abspath(root)
        self._made: set[str] = set()
        self._unsynced: set[str] = set()

    def prepare(self) -> None:
        """Make the folders; from then on writing may start."""
        with self._explained():
            os.makedirs(self._root, 0o700, exist_ok=True)
            made = [name for name in _FOLDERS if _make_folder(f"{self._root}/{name}")]
            if made:
                durable.sync_folder(self._root)
                durable.sync_folder(os.path.dirname(self._root))

    def _explained(self) -> AbstractContextManager[None]:
        return errors_explained(self._root, otherwise=_OTHERWISE)

    @property
    def temporary(self) -> str:
        return f"{self._root}/tmp"

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Lock against garbage collection of objects."""
        self.prepare()
        with self._explained():
            fd = self._lock(fcntl.LOCK_SH)
        try:
            yield
        finally:
            if fd is not None:
                os.close(fd)

    def _lock(self, kind: int) -> int | None:
        fd = os.open(f"{self._root}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, kind)
        except BlockingIOError:
            os.close(fd)
            raise
        except OSError:
            # A file system without locks: the grace of `collect` has to do.
            os.close(fd)
            return None
        return fd

    def object_path(self, hash: str) -> str:
        return f"{self._root}/objects/{hash[:2]}/{hash[2:]}"

    def has(self, hash: str, size: int, *, synced_until_ns: int = 0) -> bool:
        """Whether the content is here. What was written before `synced_until_ns` is known to have been synced."""
        path = self.object_path(hash)
        try:
            info = os.stat(path)
        except OSError:
            return False
        if info.st_size != size:
            return False
        if info.st_ctime_ns >= synced_until_ns and time.time() - info.st_ctime < SETTLED_S:
            self._unsynced.add(path)
        return True

    def put(self, data: bytes, hash: str) -> None:
        """Keep a content whose hash is known."""
        if self.has(hash, len(data)):
            return
        temporary = fresh_name(self.temporary)
        with self._explained():
            write_new(temporary, data)
        self.adopt(temporary, hash)

    def put_stream(self, file: BinaryIO, most: int) -> tuple[str, int]:
        """Keep what the file gives, at most that many bytes; its hash and size."""
        import hashlib  # not at the start: see `digests`

        temporary = fresh_name(self.temporary)
        digest, size = hashlib.sha256(), 0
        with self._explained():
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            while data := file.read(min(_CHUNK, most - size)):
                digest.update(data)
                size += len(data)
                with self._explained():
                    write_all(fd, data)
        except BaseException:
            os.unlink(temporary)
            raise
        finally:
            os.close(fd)
        self.adopt(temporary, digest.hexdigest())
        return digest.hexdigest(), size

    def adopt(self, temporary: str, hash: str) -> None:
        """Move a written file to its place."""
        folder = f"{self._root}/objects/{hash[:2]}"
        try:
            if folder not in self._made:
                _make_folder(folder)
                self._made.add(folder)
            os.replace(temporary, f"{folder}/{hash[2:]}")
            self._unsynced.add(f"{folder}/{hash[2:]}")
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise explain(error, self._root, otherwise=_OTHERWISE) from error

    def save(self, snapshot: CodeSnapshot) -> None:
        """Keep the manifest, and all that it needs, for good. Its age says when it was last used."""
        data = _encoder.encode(snapshot)
        with self._explained():
            self._sync_contents()
            if not self._touch(snapshot.hash, data):
                replace_file(self._manifest(snapshot.hash), data, self.temporary, is_durable=True)

    def _sync_contents(self) -> None:
        durable.sync_files(self._unsynced)
        folders = {os.path.dirname(path) for path in self._unsynced}
        for folder in folders:
            durable.sync_folder(folder)
        if folders:
            durable.sync_folder(f"{self._root}/objects")
        self._unsynced.clear()

    def _touch(self, hash: str, data: bytes) -> bool:
        """Make the manifest young, where it is this very one. Syncing what is on the disk already costs nothing."""
        path = self._manifest(hash)
        try:
            with open(path, "rb") as file:
                if file.read(len(data) + 1) != data:
                    return False
                durable.sync(file.fileno())
            durable.sync_folder(os.path.dirname(path))
            os.utime(path)
        except OSError:
            return False
        return True

    def _manifest(self, hash: str) -> str:
        return f"{self._root}/manifests/{hash}.json"

    def load(self, hash: str) -> CodeSnapshot:
        """The snapshot of this hash, checked. Raises NotFound, or BundleError when it is damaged."""
        if not is_hash(hash):
            raise BundleError(f"{hash!r} is not the hash of a bundle")
        try:
            with open(self._manifest(hash), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            if hash == EMPTY_HASH:
                return CodeSnapshot.empty()
            raise NotFound(f"no bundle {hash[:12]} in {self._root}", hint="submit the job again") from None
        except OSError as error:
            raise explain(error, self._root, otherwise=_OTHERWISE) from error
        return decode(data, hash)

    def diff(self, hash: str) -> bytes | None:
        """The uncommitted changes of the snapshot when it was last taken, as a patch; None when there were none."""
        diff_hash = self.load(hash).diff_hash
        if diff_hash is None or not is_hash(diff_hash):
            return None
        try:
            with open(self.object_path(diff_hash), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain(error, self._root, otherwise=_OTHERWISE) from error

    def check_out(self, hash: str, target: Path) -> None:
        """Lay the tree out as a private working copy in `target`, which is absent or empty."""
        checkout.lay_out(self.load(hash).entries, self.object_path, target)

    def collect(self, keep: Collection[str], *, grace_s: float = GRACE_S) -> int:
        """Remove manifests and contents that none of these hashes needs; how many. Nothing while one is taken."""
        self.prepare()
        with self._explained():
            try:
                fd = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            try:
                return self._collect(set(keep), time.time() - grace_s)
            finally:
                if fd is not None:
                    os.close(fd)

    def _collect(self, keep: set[str], before: float) -> int:
        removed = 0
        needed: set[str] = set()
        for name, path, time_s in _files(f"{self._root}/manifests"):
            hash = name.removesuffix(".json")
            if hash in keep or time_s >= before:
                needed |= self._needs(hash)
            else:
                removed += _remove(path)
        with os.scandir(f"{self._root}/objects") as folders:
            for folder in [child.name for child in folders if child.is_dir(follow_symlinks=False)]:
                for name, path, time_s in _files(f"{self._root}/objects/{folder}"):
                    if folder + name not in needed and time_s < before:
                        removed += _remove(path)
        for folder, oldest in (("tmp", before), ("cache", before - _CACHE_KEPT_S)):
            for _name, path, time_s in _files(f"{self._root}/{folder}"):
                if time_s < oldest:
                    _remove(path)
        return removed

    def _needs(self, hash: str) -> set[str]:
        try:
            snapshot = self.load(hash)
        except (BundleError, NotFound):
            return set()  # damaged: it cannot be checked out, so it needs nothing
        return set(snapshot.objects) | ({snapshot.diff_hash} if snapshot.diff_hash else set())


def decode(data: bytes, hash: str | None = None) -> CodeSnapshot:
    """A manifest from its text; refused unless it is a safe tree and, where one is given, has this hash."""
    try:
        snapshot = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BundleError("the manifest of the bundle is damaged", hint="submit the job again") from None
    check_tree(snapshot.entries)
    actual = tree_hash(snapshot.entries)
    if actual != snapshot.hash or (hash is not None and actual != hash):
        raise BundleError("the manifest of the bundle does not have its own hash", hint="submit the job again")
    return snapshot


def _make_folder(path: str) -> bool:
    """Whether it was made now."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return False
    return True


def _files(folder: str) -> list[tuple[str, str, float]]:
    """Name, path and time of the files in a folder."""
    files = []
    with os.scandir(folder) as children:
        for child in children:
            with suppress(FileNotFoundError):
                files.append((child.name, child.path, child.stat(follow_symlinks=False).st_mtime))
    return files


def _remove(path: str) -> int:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return 0
    return 1
