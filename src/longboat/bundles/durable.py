"""Durable, atomic writes that survive a power loss: fsync of a file before its rename, and of its folder after it.

A rename alone keeps readers from seeing half a file, but after a power loss the new name may hold nothing: the kernel
may write a name to the disk before the content. So every file that a promise depends on goes through here. What is
written often and only tells how things stand (heartbeats, progress) is renamed without it: a sync costs from half a
millisecond to tens of them, and losing the last word of a hint loses nothing. docs/contributing/files.md has the table.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from longboat.bundles.parallel import for_each

if TYPE_CHECKING:
    from collections.abc import Iterable

SWITCH = "LONGBOAT_SYNC"
"""`off` leaves out every sync: for machines that are thrown away anyway, and to measure what syncing costs."""
_FOLDERS_ONLY = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM)
"""Network and FUSE file systems refuse to sync a folder; there is nothing else to call."""


def write_file(path: str, data: bytes, *, temporary: str, mode: int = 0o600, is_durable: bool = True) -> None:
    """Write the whole file or nothing of it; with `is_durable` it is on the disk when this returns. Raises OSError."""
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if is_durable:
                sync(descriptor)
        finally:
            os.close(descriptor)
        replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
    if is_durable:
        sync_folder(os.path.dirname(path) or ".")


def replace(temporary: str, path: str) -> None:
    """Put a file in its place, but in no device's, pipe's or socket's, and in that of no link in /dev: root could, and
    the machine would have no /dev/null any more. Raises OSError."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        mode = stat.S_IFREG
    in_devices = os.path.dirname(os.path.abspath(path)) == "/dev"
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (stat.S_ISLNK(mode) and not in_devices)):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    os.replace(temporary, path)


def is_on() -> bool:
    return os.environ.get(SWITCH) != "off"


def boot_id() -> str | None:
    """Id of the machine's present boot; None if unknown. What was not synced in an earlier boot may be lost."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return None


def sync(descriptor: int) -> None:
    """The content of an open file is on the disk. Raises OSError: what cannot be written must not be relied on."""
    if not is_on():
        return
    full = _full_sync()
    if full is not None:
        import fcntl

        try:
            fcntl.fcntl(descriptor, full)
            return
        except OSError:
            pass  # a network file system
    os.fsync(descriptor)


def _full_sync() -> int | None:
    """macOS: fsync leaves the content in the drive's own cache."""
    if os.uname().sysname != "Darwin":
        return None
    import fcntl

    return getattr(fcntl, "F_FULLFSYNC", None)


def sync_folder(path: str) -> None:
    """The names in a folder are on the disk. A file system that cannot sync folders is trusted with them."""
    if not is_on():
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _FOLDERS_ONLY:
            raise


def sync_file(path: str) -> None:
    """The content of a file is on the disk. One that vanished meanwhile, or is no plain file, needs nothing."""
    if not is_on():
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EACCES):
            return
        raise
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            sync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(paths: Iterable[str]) -> None:
    """The content of many files, a few at a time. Raises the first OSError.

    A journal commits all waiting files together, so a few threads wait for one commit instead of for one each.
    """
    if not is_on():
        return
    for_each(paths, sync_file)


def sync_tree(root: str) -> None:
    """A folder with everything below it: contents first, then names, the innermost folders first."""
    if not is_on():
        return
    files: list[str] = []
    folders: list[str] = []
    for folder, _, names in os.walk(root):
        folders.append(folder)
        files.extend(os.path.join(folder, name) for name in names)
    sync_files(files)
    for folder in reversed(folders):
        sync_folder(folder)
