"""Disk errors explained, and files on a disk that may be full, read-only or gone: one place where OSError ends."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

from longboat.bundles import durable
from longboat.core.errors import OUTPUT_WAITS, EngineError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_LEAST = 16384
"""Bytes. With less than a few blocks left not even a small file can be written."""
_serial = itertools.count()


def explain(error: OSError, place: str, *, otherwise: str = "") -> EngineError:
    """The error a user sees instead of `error`, which happened at or below `place`; `otherwise` adds to the hint."""
    where = error.filename if isinstance(error.filename, str) else place
    if error.errno in _FULL:
        return EngineError(f"{where}: the disk is full", hint="free some space there" + otherwise)
    if error.errno in _FORBIDDEN:
        reason = "the file system is read-only" if error.errno == errno.EROFS else "not permitted"
        return EngineError(f"{where}: cannot be used: {reason}", hint="give yourself access to it" + otherwise)
    return EngineError(f"{where}: {error.strerror or error}")


def full_disk(path: str) -> str | None:
    """The message that the disk is full; None: there is room, or that is not known."""
    try:
        there = os.statvfs(path)
    except OSError:
        return None
    free = (there.f_bfree if os.geteuid() == 0 else there.f_bavail) * there.f_frsize
    if there.f_blocks and free < _LEAST:
        return f"the disk of {path} is full: {OUTPUT_WAITS} there is room"
    if there.f_files and not there.f_favail:
        return f"the disk of {path} can hold no more files: {OUTPUT_WAITS} some are removed"
    return None


@contextmanager
def errors_explained(place: str, *, otherwise: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain(error, place, otherwise=otherwise) from error


def fresh_name(folder: str) -> str:
    """A path in `folder` that no other process and no other thread makes up."""
    return f"{folder}/{os.getpid()}-{next(_serial)}-{os.urandom(4).hex()}"


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_new(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


def replace_file(path: str, data: bytes, temporary_folder: str, *, is_durable: bool = False) -> None:
    """Write the file whole: a reader sees the old content or the new, never a part. Durable: after a power loss too."""
    durable.write_file(path, data, temporary=fresh_name(temporary_folder), is_durable=is_durable)


def remove_tree(path: str) -> None:
    """Remove a folder and all below it, also where folders were made read-only. What is gone already is fine."""
    import shutil

    def retry(function: object, name: str, _info: object) -> None:
        # A folder without write permission keeps its children: open it up and try that child once more.
        try:
            parent = os.path.dirname(name)
            os.chmod(parent, 0o700)
            if os.path.isdir(name) and not os.path.islink(name):
                os.chmod(name, 0o700)
                shutil.rmtree(name, ignore_errors=True)
            else:
                os.unlink(name)
        except FileNotFoundError:
            pass

    shutil.rmtree(path, onerror=retry)
