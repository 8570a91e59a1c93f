"""A cache of file hashes by their stat, so that an unchanged tree is not read again.

Like git's index: a file whose time is not clearly older than the moment it was read is read again, because a change
within the same tick of the clock would not show.
"""

from __future__ import annotations

import os
import time

import msgspec

from longboat.bundles import durable
from longboat.bundles.disk import replace_file
from longboat.bundles.store import BundleStore
from longboat.core.errors import LongboatError
from longboat.core.guards.decoding import decode_msgpack
from longboat.core.guards.digests import sha256_of
from longboat.core.jobs import Value

_VERSION = 1
_TICK_NS = 100_000_000  # file systems with fine clocks still stamp with the kernel's coarse one
_COARSE_TICK_NS = 2_500_000_000  # a file system that keeps whole seconds, or even ones

Known = tuple[int, int, int, int, str, str]
"""Size, modification time, change time, inode; hash, and the secret found in it ("" for none)."""


class _Cache(Value, frozen=True):
    version: int
    root: str
    files: dict[str, Known] = {}
    is_synced: bool = False  # the contents named here were synced before this was written


class StatCache:
    """What is known about the files of one root."""

    def __init__(self, store: BundleStore, root: str) -> None:
        self._store = store
        self._root = root
        name = sha256_of(os.fsencode(root))[:32]
        self._file = f"{store.root}/cache/{name}"
        self._started_ns = time.time_ns()
        self.synced_until_ns = 0
        """Contents that are named here and were written before this have been synced by whoever wrote this cache."""
        self._old = self._load()
        self._new: dict[str, Known] = {}
        self._is_changed = False

    def _load(self) -> dict[str, Known]:
        try:
            with open(self._file, "rb") as file:
                written_ns = os.fstat(file.fileno()).st_mtime_ns
                cache = decode_msgpack(file.read(), _Cache)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}
        if (cache.version, cache.root) != (_VERSION, self._root):
            return {}
        # Both times are the file system's own, so no clock has to agree with another.
        self.synced_until_ns = written_ns if cache.is_synced else 0
        return cache.files

    def get(self, path: str, info: os.stat_result) -> tuple[str, str] | None:
        """Hash and secret of the file with this stat, or None when it has to be read."""
        known = self._old.get(path)
        if known is None or known[:4] != (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino):
            return None
        self._new[path] = known
        return known[4], known[5]

    def put(self, path: str, info: os.stat_result, hash: str, secret: str) -> None:
        """`found` is the stat of the file after it was read. Too fresh to be told from a later change: not kept."""
        newest = max(info.st_mtime_ns, info.st_ctime_ns)
        tick = _TICK_NS if newest % 1_000_000_000 else _COARSE_TICK_NS
        if newest < self._started_ns - tick:
            times = (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)
            self._new[path] = (*times, hash, secret)
            self._is_changed = True

    def save(self) -> None:
        """To be called once the contents have been synced. Losing this file costs only time: its failure is none."""
        if not self._is_changed and len(self._new) == len(self._old):
            return
        cache = _Cache(version=_VERSION, root=self._root, files=self._new, is_synced=durable.is_on())
        try:
            replace_file(self._file, msgspec.msgpack.encode(cache), self._store.temporary)
        except (OSError, LongboatError):
            return
