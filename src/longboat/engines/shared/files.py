"""Plain files of the home folder, written atomically; locks. Errors of the disk become EngineError here.

Which of them are synced is said where they are written; how, in bundles/durable.py.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import itertools
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from longboat.bundles import durable
from longboat.core.errors import EngineError
from longboat.core.guards.decoding import decode
from longboat.core.guards.formats import FORMAT, NewerFormat, Stored, is_newer

T = TypeVar("T")
S = TypeVar("S", bound=Stored)

_HINTS = {
    errno.ENOSPC: "free some space, or point LONGBOAT_HOME to another disk",
    errno.EDQUOT: "your quota is used up: free some space, or point LONGBOAT_HOME to another disk",
    errno.EROFS: "point LONGBOAT_HOME to a folder you can write",
    errno.EACCES: "point LONGBOAT_HOME to a folder you can write",
    errno.ENOTDIR: "point LONGBOAT_HOME to a folder you can write",
    errno.EPERM: "point LONGBOAT_HOME to a folder you can write",
}

_BLOCK = 1 << 20
_TAIL_BLOCK = 1 << 16
OF_ANOTHER_USER = "belongs to another user"
SHARED_HOME = "stop the runs that the other user has in this home, or set LONGBOAT_HOME to a folder of your own"
MOST_REMOVED = 4096
"""Lock files that are looked at in one go."""
ABANDONED_S = 3600.0
"""Before that a draft may be without its lock yet. One that has a lock was made with it (`new_lock`)."""


def disk_error(error: OSError, doing: str, *, is_home: bool = True) -> EngineError:
    """The message for a file operation that failed. `is_home`: it was below LONGBOAT_HOME, so another one may help."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return EngineError(f"cannot {doing}: {reason}", hint=_HINTS.get(error.errno or 0) if is_home else None)


@contextlib.contextmanager
def disk(doing: str, *, is_home: bool = True) -> Iterator[None]:
    """Turn an OSError of the block into an EngineError that says what was being done."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, doing, is_home=is_home) from error


def make_folder(path: Path, *, is_durable: bool = False) -> Path:
    """Create a folder and its parents. `is_durable`: the new names survive a power loss."""
    with disk(f"create {path}"):
        above = [folder for folder in (path, *path.parents) if not folder.is_dir()] if is_durable else []
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for made in above:
            durable.sync_folder(os.fspath(made.parent))
    return path


def write_bytes(path: Path, data: bytes, *, is_durable: bool = False) -> None:
    """Write a file atomically, readable by the owner only. `is_durable`: it survives a power loss."""
    try:
        durable.write_file(os.fspath(path), data, temporary=f"{path}.{os.getpid()}.tmp", is_durable=is_durable)
    except OSError as error:
        raise disk_error(error, f"write {path}") from error


def write_value(path: Path, value: Any, *, is_durable: bool = False) -> None:
    write_bytes(path, msgspec.json.encode(value), is_durable=is_durable)


def overwrite(path: Path, data: bytes) -> bool:
    """Write over a file in place, which takes no new block of a full disk; not atomic: a torn file counts as none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            is_whole = os.pwrite(descriptor, data, 0) == len(data)
            os.ftruncate(descriptor, len(data))
            durable.sync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return is_whole


def read_value(path: Path, kind: type[T]) -> T | None:
    """Decode a stored value; None where the file is missing or damaged, as after a power loss.

    A damaged file counts as not written. Stored data is read leniently: unknown fields are ignored.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise disk_error(error, f"read {path}") from error
    try:
        return decode(data, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_stored(path: Path, kind: type[S], title: str) -> S | None:
    """The same for records that carry a format. Raises NewerFormat: what a newer Longboat wrote is not damaged."""
    value = read_value(path, kind)
    if value.format > FORMAT if value is not None else is_newer_file(path):
        raise NewerFormat(title)
    return value


def is_newer_file(path: Path) -> bool:
    """Whether a newer Longboat wrote this file."""
    try:
        return is_newer(path.read_bytes())
    except OSError:
        return False


class LogStream(io.TextIOBase):
    """A detached process's stderr: what cannot be written, as on a full disk, is lost and ends nothing."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            os.write(2, text.encode(errors="backslashreplace"))
        return len(text)


def last_lines_of(path: Path, most: int = 8192) -> list[str]:
    """The last lines of a log of any size; none where the file is missing."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most).decode(errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []


def line_start(path: str, offset: int) -> int:
    """Start of the line of a file that contains this offset; where it cannot be read, as far as it could."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        while offset > 0:
            start = max(0, offset - _TAIL_BLOCK)
            newline = os.pread(file.fileno(), offset - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            offset = start
    return offset


def blocks_from_end(path: str, end: int, *, most_line: int) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of a file before this offset, where one ends: blocks of whole lines without their newlines, each with
    its offset, the last block first. A line longer than `most_line` comes in pieces. Raises OSError."""
    with open(path, "rb") as file:
        end -= 1  # its newline
        rest = b""  # of a line whose beginning is before the block
        while end >= 0:
            start = first = max(0, end - _BLOCK)
            lines = (os.pread(file.fileno(), end - start, start) + rest).split(b"\n")
            rest = b""
            if start and len(lines[0]) <= most_line:
                rest = lines.pop(0)
                first += len(rest) + 1
            if lines:
                yield first, lines
            end = start or -1


def log_line(text: str) -> None:
    """Print a line to the log of a detached process. A full disk takes the line away, and not the process."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def open_lock(path: Path) -> int:
    """Open a lock file, created if needed. Raises EngineError."""
    with disk(f"open {path}"):
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError:
            owner = os.stat(path).st_uid if os.path.exists(path) else os.getuid()
            if owner == os.getuid():
                raise
            raise EngineError(f"cannot open {path}: it {OF_ANOTHER_USER} (uid {owner})", hint=SHARED_HOME) from None


def try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock at this moment."""
    lock = open_lock(path)
    try:
        return not try_lock(lock)
    finally:
        os.close(lock)


def is_own_folder(path: Path) -> bool:
    """Whether the caller made it. Another user's files decide nothing here, also where root can read them."""
    try:
        return path.stat().st_uid == os.getuid()
    except FileNotFoundError:
        return False


def new_lock(path: Path) -> int:
    """A new lock file, held from the moment on in which it has its name."""
    unnamed = path.with_name(f".{path.name}")
    descriptor = open_lock(unnamed)
    try_lock(descriptor)
    with disk(f"make {path}"):
        os.rename(unnamed, path)
    return descriptor


def is_current(descriptor: int, path: Path) -> bool:
    """Whether the path still is the opened file: its folder may have been removed since."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def take_lock(path: Path) -> int | None:
    """A lock file whose holder removes it in the end: held, and still the one of that name. None: others have it."""
    descriptor = open_lock(path)
    if try_lock(descriptor) and is_current(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def remove_free_locks(folder: Path) -> None:
    """Remove the lock files that nobody holds, those of killed processes too; some of very many. Whoever opens one
    that is being removed sees that the name is another file's, or nobody's (`take_lock`)."""
    with contextlib.suppress(OSError, EngineError):  # a home that can only be read, or is gone
        for path in itertools.islice(folder.iterdir(), MOST_REMOVED):
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    if try_lock(descriptor) and is_current(descriptor, path):
                        path.unlink()
                finally:
                    os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock; blocks until it is free."""
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def copy(source: Path, target: Path, *, below: Path | None = None) -> None:
    """Copy a file or folder, links as links; an existing folder is merged into.

    A source that is itself a link is followed. Nothing is written through a link at the target, or between it and the
    folder `below`.
    """
    from longboat.bundles.merging import merge

    with disk(f"copy {source} to {target}", is_home=False):
        (target.parent if below is None else below).mkdir(parents=True, exist_ok=True)
        try:
            merge(os.path.realpath(source), str(target), str(below or ""))
        except PermissionError:
            if (closed := _first_closed(source)) is None:
                raise
            raise EngineError(f"cannot copy {source} to {target}: {closed} may not be read") from None


def _first_closed(source: Path) -> Path | None:
    """The first file or folder below that this user may not read; None: it is something else that he may not."""
    for folder, inner, names in os.walk(source):
        for name in (*inner, *names):
            path = os.path.join(folder, name)
            if not os.path.islink(path) and not os.access(path, os.R_OK | (os.X_OK if name in inner else 0)):
                return Path(path)
    return None


def remove_tree(path: Path) -> None:
    """Remove a folder with its contents, read-only files included; a missing one is no error."""
    try:
        path.rmdir()  # many are empty
        return
    except FileNotFoundError:
        return
    except OSError:
        import shutil  # not at the start: with it come the compressors

    def retry(function: Any, name: str, error: Any) -> None:
        if isinstance(error[1], FileNotFoundError):
            return
        parent = os.path.dirname(name)
        for folder in (parent, name):
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.lstat(folder).st_mode):
                    os.chmod(folder, 0o700)
        function(name) if function is not os.scandir else shutil.rmtree(name, ignore_errors=True)

    with disk(f"remove {path}"), contextlib.suppress(FileNotFoundError):
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path, onerror=retry)


def remove_abandoned(folder: Path) -> None:
    """Remove drafts (`.new-*`) of a process that was killed: the locks inside are free, or there is none for long."""
    for draft in folder.glob(".new-*"):
        with contextlib.suppress(OSError, EngineError), contextlib.ExitStack() as held:
            locks = [path for path in draft.glob("*.lock") if not path.name.startswith(".")]
            if not locks and time.time() - draft.stat().st_mtime < ABANDONED_S:
                continue
            for path in locks:
                lock = open_lock(path)
                held.callback(os.close, lock)
                if not try_lock(lock):
                    break
            else:
                remove_tree(draft)


def note_use(folder: Path) -> None:
    """Set the modification time of shared data to now, which `prune` takes as its last use."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def disk_use(path: Path) -> int:
    """Bytes on disk of a folder, as `du` counts them; unreadable files count nothing."""
    seen: set[tuple[int, int]] = set()
    total = 0
    folders = [os.fspath(path)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        about = entry.stat(follow_symlinks=False)
                        key = (about.st_dev, about.st_ino)
                        if about.st_nlink > 1 and not entry.is_dir(follow_symlinks=False) and key in seen:
                            continue
                        seen.add(key)
                        total += about.st_blocks * 512  # POSIX counts in these, whatever the disk's own are
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
        except OSError:
            continue
    return total


def find_program(name: str, path: str) -> str | None:
    """A program by its name in these folders, as `shutil.which` finds it. That one imports the compressors."""
    for folder in path.split(os.pathsep):
        program = os.path.join(folder, name)
        if os.access(program, os.X_OK) and not os.path.isdir(program):
            return program
    return None
