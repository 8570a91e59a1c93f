"""Reading one file of a tree into the store. The file may change, vanish or become something else meanwhile."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from longboat.bundles.source import secret_files
from longboat.bundles.source.scan import unreadable
from longboat.bundles.store import BundleStore

_IN_MEMORY = 1 << 20  # larger files are copied in pieces
_READS = 3  # a file that changes under each of three reads is still being written
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # not blocking: it may have become a pipe
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)


class FileContent(NamedTuple):
    hash: str
    size: int
    secret: str  # what was found in it, in words
    found: os.stat_result
    is_steady: bool  # it did not change while it was read


def read_into(store: BundleStore, root: str, path: str, *, keeps_secrets: bool, most: int) -> FileContent | None:
    """Keep the content of a file, unless it shows a secret; None when there is no such file any more."""
    content = None
    for _ in range(_READS):
        try:
            fd = os.open(f"{root}/{path}", _FLAGS)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise unreadable(path, error) from None
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                return None
            if before.st_size <= _IN_MEMORY:
                content = _read_small(store, fd, path, before, keeps_secrets)
            else:
                content = _read_large(store, fd, path, before, most)
        finally:
            os.close(fd)
        if content.is_steady:
            break
    return content


def _read_small(store: BundleStore, fd: int, path: str, before: os.stat_result, keeps_secrets: bool) -> FileContent:
    import hashlib  # not at the start: see `digests`

    try:
        data = os.read(fd, before.st_size + 1)
    except OSError as error:
        raise unreadable(path, error) from None
    secret = secret_files.found_in(path, data)
    hash = hashlib.sha256(data).hexdigest()
    if keeps_secrets or not secret:
        store.put(data, hash)
    return _content(fd, before, hash, len(data), secret)


def _read_large(store: BundleStore, fd: int, path: str, before: os.stat_result, most: int) -> FileContent:
    with open(fd, "rb", buffering=0, closefd=False) as file:
        try:
            hash, size = store.put_stream(file, most + 1)
        except OSError as error:
            raise unreadable(path, error) from None
    return _content(fd, before, hash, size, "")


def _content(fd: int, before: os.stat_result, hash: str, size: int, secret: str) -> FileContent:
    after = os.fstat(fd)
    is_steady = (before.st_mtime_ns, before.st_size, size) == (after.st_mtime_ns, after.st_size, after.st_size)
    return FileContent(hash, size, secret, after, is_steady)
