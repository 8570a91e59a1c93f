"""Copying files and folders into a folder that exists, never through a symbolic link that is already there.

Whoever may write to a destination can put a link in it, and so could what was copied before: a file written "to" such a
link would be written wherever it leads. So every name below the destination is opened relative to its folder, without
following it; files and links are replaced, folders are merged, and a link in a folder's place is refused. The path of
the destination itself is the caller's own word, and is followed.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import errno
import os
import stat

from longboat.bundles.disk import write_all
from longboat.core.errors import EngineError

_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_DEPTH = 200
"""Folders inside of folders: each holds two descriptors, of which a process usually has 1024."""


def merge(source: str, target: str, below: str = "") -> None:
    """Make `target` what `source` is: a file, a link, or a folder with all in it. Pipes and devices stay behind.

    Folders between `below`, if given, and the target are made, and are no links either. Raises EngineError for what is
    in the way, OSError for what the disk says.
    """
    parent, name = os.path.split(os.path.abspath(target))
    from_parent, from_name = os.path.split(os.path.abspath(source))
    with _Opened(os.open(from_parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as from_fd:
        with _Opened(_open_below(os.path.abspath(below) if below else parent, parent)) as to_fd:
            _merge((from_fd, from_name), (to_fd, name), target, 0)


def _open_below(root: str, folder: str) -> int:
    """The folder, its parents from the root on made where they are missing."""
    inner = os.path.relpath(folder, root)
    parts = [] if inner == "." else inner.split("/")
    if ".." in parts:
        raise EngineError(f"{folder} is outside of {root}")
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for depth, part in enumerate(parts, 1):
        with _Opened(opened) as above:
            opened = _open_folder((above, part), "/".join([root, *parts[:depth]]))
    return opened


class _Opened:
    """A descriptor that is closed at the end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _merge(source: tuple[int, str], target: tuple[int, str], shown: str, depth: int) -> None:
    info = os.lstat(source[1], dir_fd=source[0])
    if stat.S_ISDIR(info.st_mode):
        _merge_folder(source, target, shown, depth)
    elif stat.S_ISLNK(info.st_mode):
        link = os.readlink(source[1], dir_fd=source[0])
        temporary = _temporary()
        os.symlink(link, temporary, dir_fd=target[0])
        _put_in_place(temporary, target, shown)
    elif stat.S_ISREG(info.st_mode):
        _copy_file(source, target, shown)


def _merge_folder(source: tuple[int, str], target: tuple[int, str], shown: str, depth: int) -> None:
    if depth >= MOST_DEPTH:
        raise EngineError(f"{shown}: more than {MOST_DEPTH} folders inside of each other")
    with _Opened(os.open(source[1], _FOLDER, dir_fd=source[0])) as from_fd:
        with _Opened(_open_folder(target, shown)) as to_fd:
            for name in sorted(os.listdir(from_fd)):
                _merge((from_fd, name), (to_fd, name), f"{shown}/{name}", depth + 1)


def _open_folder(target: tuple[int, str], shown: str) -> int:
    """The folder, made if it is missing, and not through a link."""
    try:
        os.mkdir(target[1], dir_fd=target[0])
    except FileExistsError:
        pass
    try:
        return os.open(target[1], _FOLDER, dir_fd=target[0])
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise _in_the_way(shown, is_folder=True) from None


def _copy_file(source: tuple[int, str], target: tuple[int, str], shown: str) -> None:
    temporary = _temporary()
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with _Opened(os.open(source[1], flags, dir_fd=source[0])) as reader:
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with _Opened(os.open(temporary, new, 0o600, dir_fd=target[0])) as writer:
            try:
                info = os.fstat(reader)
                while True:
                    data = os.read(reader, _CHUNK)
                    if not data:
                        break
                    write_all(writer, data)
                os.fchmod(writer, stat.S_IMODE(info.st_mode) & 0o777)
                os.utime(writer, ns=(info.st_atime_ns, info.st_mtime_ns))
            except BaseException:
                os.unlink(temporary, dir_fd=target[0])
                raise
    _put_in_place(temporary, target, shown)


def _put_in_place(temporary: str, target: tuple[int, str], shown: str) -> None:
    """Renaming replaces a link itself, whatever it leads to; devices, pipes and sockets are not replaced."""
    try:
        check_replaceable(target, shown)
        os.rename(temporary, target[1], src_dir_fd=target[0], dst_dir_fd=target[0])
    except BaseException as error:
        os.unlink(temporary, dir_fd=target[0])
        if isinstance(error, IsADirectoryError):
            raise _in_the_way(shown, is_folder=False) from None
        raise


def check_replaceable(target: tuple[int, str], shown: str) -> None:
    """A file in the place of /dev/null would break the machine, for root may do it."""
    try:
        mode = os.lstat(target[1], dir_fd=target[0]).st_mode
    except FileNotFoundError:
        return
    is_link_of_system = stat.S_ISLNK(mode) and os.path.dirname(os.path.abspath(shown)) == "/dev"  # /dev/stdout
    if is_link_of_system or not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
        hint = "name another destination, or - for stdout"
        raise EngineError(f"{shown} is a device, a pipe or a socket and is not replaced", hint=hint)


def _in_the_way(shown: str, *, is_folder: bool) -> EngineError:
    """The error for a file or folder at the target that can neither be replaced nor merged."""
    obstacle = "a link, which leads elsewhere," if os.path.islink(shown) else "a file" if is_folder else "a folder"
    copied = "what is copied there is a folder" if is_folder else "what is copied is not"
    return EngineError(f"{shown} is {obstacle} and {copied}", hint="remove it, or name another destination")


def _temporary() -> str:
    return f".longboat-{os.getpid()}-{os.urandom(6).hex()}"
