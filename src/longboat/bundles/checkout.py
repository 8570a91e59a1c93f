"""Checkout of a tree as a private working copy. Not the store: contents come through a function that names their
file."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from longboat.bundles.disk import explain, remove_tree, write_all
from longboat.bundles.parallel import for_each
from longboat.core.errors import BundleError, EngineError

if TYPE_CHECKING:
    from longboat.bundles.manifests import Entry

_SMALL = 1 << 16  # one read and one write cost less than asking for a clone
_CHUNK = 1 << 20
_PORTION = 128  # files that one thread lays down before it looks whether another has failed
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FICLONE = 0x40049409  # ioctl of linux/fs.h
_NO_CLONE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.EBADF)


def lay_out(entries: Sequence[Entry], source: Callable[[str], str], target: Path) -> None:
    """Fill `target` with the tree. The entries have passed `check_tree`; `source` names the file of a content.

    Files are copies, never hard links: a run may write to them.
    """
    with filling(target) as root:
        _fill(entries, source, root)


@contextmanager
def filling(target: Path) -> Iterator[str]:
    """A folder to fill: absent before, or empty. On any failure it is as it was before."""
    root = os.path.abspath(target)
    existed = _prepare(root)
    try:
        yield root
    except BaseException as error:
        _undo(root, existed)
        if isinstance(error, OSError):
            raise explain(error, root) from error
        raise


def _prepare(root: str) -> bool:
    try:
        if os.path.lexists(root):
            if not os.path.isdir(root) or os.listdir(root):
                raise EngineError(f"{root}: this has to be an empty folder")
            return True
        os.makedirs(root, 0o700)
    except OSError as error:
        raise explain(error, root) from error
    return False


def _undo(root: str, existed: bool) -> None:
    if not existed:
        remove_tree(root)
        return
    with os.scandir(root) as children:
        for child in list(children):
            if child.is_dir(follow_symlinks=False):
                remove_tree(child.path)
            else:
                os.unlink(child.path)


def _fill(entries: Sequence[Entry], source: Callable[[str], str], root: str) -> None:
    """Folder by folder, each opened once: with many small files, what a path costs is most of the work."""
    portions: list[tuple[str, list[Entry]]] = []
    made = {""}
    for folder, children in groupby(entries, key=lambda entry: entry.path.rpartition("/")[0]):
        if folder not in made:
            os.makedirs(f"{root}/{folder}", exist_ok=True)
            made.add(folder)
        whole = list(children)
        portions.extend((folder, whole[first : first + _PORTION]) for first in range(0, len(whole), _PORTION))
    for_each(portions, lambda portion: _fill_folder(root, *portion, source), if_slow=True)


def _fill_folder(root: str, folder: str, children: Sequence[Entry], source: Callable[[str], str]) -> None:
    place = f"{root}/{folder}" if folder else root
    opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for entry in children:
            _lay_down(entry, source, opened)
    except FileExistsError as error:
        raise BundleError(
            f"{error.filename!r} in {folder or '.'} and another name are the same file here: this disk does not"
            " tell upper from lower case"
        ) from None
    finally:
        os.close(opened)


def _lay_down(entry: Entry, source: Callable[[str], str], folder: int) -> None:
    name = entry.path.rpartition("/")[2]
    if entry.kind == "link":
        os.symlink(entry.target, name, dir_fd=folder)
        return
    try:
        reader = os.open(source(entry.hash), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _damaged(entry) from None
    try:
        data = os.read(reader, entry.size + 1) if entry.size <= _SMALL else b""
        if (len(data) if entry.size <= _SMALL else os.fstat(reader).st_size) != entry.size:
            raise _damaged(entry)
        writer = os.open(name, _NEW, 0o777 if entry.executable else 0o666, dir_fd=folder)
        try:
            if entry.size <= _SMALL:
                write_all(writer, data)
            elif not _clone(reader, writer):
                _copy_range(reader, writer, entry.size)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _damaged(entry: Entry) -> BundleError:
    return BundleError(
        f"the stored content of {entry.path!r} is missing or damaged", hint="submit the job again to store it anew"
    )


def _clone(reader: int, writer: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        fcntl.ioctl(writer, _FICLONE, reader)
    except OSError as error:
        if error.errno in _NO_CLONE:
            return False
        raise
    return True


def _copy_range(reader: int, writer: int, size: int) -> None:
    done = 0
    copy = getattr(os, "copy_file_range", None)
    while copy is not None and done < size:
        try:
            count = copy(reader, writer, size - done)
        except OSError as error:
            if error.errno not in _NO_CLONE:
                raise
            break
        if count == 0:
            break
        done += count
    while done < size:
        data = os.read(reader, min(_CHUNK, size - done))
        if not data:
            raise OSError(errno.EIO, "the stored content ended early")
        write_all(writer, data)
        done += len(data)
