"""Command lines that carry a script: safe in every login shell (sh, bash, zsh, csh, fish), with stdin left free. Pure.

The script travels as base64 inside one argument; `timeout` of the host ends it there too when the connection is lost.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import gzip
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

from longboat.clusters.hosts.connection import Content, FilePart
from longboat.core.errors import EngineError

LONGEST_COMMAND = (128 << 10) - 256
"""Linux takes no argument of more than 128 KiB, and the login shell gets the command as one."""
SHRINK_FROM = 16 << 10
"""Shorter scripts need no gzip on the host."""
KILL_AFTER_S = 5
"""Between the polite signal and the other one; a package manager removes its locks within that."""
CHUNK = 128 << 10
# Root's PATH over SSH often lacks the sbin folders; messages are read, so they are in English; files that scripts make
# are readable as packages make them, whatever the account's mask is. $PPID is `timeout`, the leader of their group.
_PRELUDE = """PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
umask 022
"""
FIND_SUDO = """if [ "$(id -u)" = 0 ]; then echo root
elif ! command -v sudo >/dev/null 2>&1; then echo 'none sudo is not installed'
elif sudo -k -n true </dev/null >/dev/null 2>&1; then echo free
else echo "asks $(sudo -k -n true </dev/null 2>&1 | head -n 1)"; fi
"""
TRY_PASSWORD = "sudo -k -S -p '' true"
SUDO = {"root": "", "free": "sudo -n ", "password": "sudo -k -S -p '' "}


def command(script: str, *, mark: str, timeout_s: float, sudo: str = "") -> str:
    """The command line that runs a script; it first prints a line with the mark and its process group's id."""
    text = f"printf '%s %s\\n' {mark} \"$PPID\"\n{_PRELUDE}{script}".encode()
    if b"\0" in text:
        raise EngineError("a script cannot have a NUL byte in it")
    unpack = "base64 -d"
    if len(text) > SHRINK_FROM:
        text, unpack = gzip.compress(text, mtime=0), "base64 -d | gzip -d"
    packed = base64.b64encode(text).decode()
    limit = f"timeout -k {KILL_AFTER_S} {max(1, math.ceil(timeout_s))}"
    line = f"{sudo}{limit} sh -c 'eval \"$(printf %s {packed} | {unpack})\"'"
    if len(line) > LONGEST_COMMAND:
        raise EngineError(f"a script of {len(script)} bytes is too long for a command line; send it as stdin")
    return line


@contextlib.contextmanager
def chunks(stdin: Content, first: bytes = b"") -> Iterator[Iterator[bytes]]:
    """The content of stdin in pieces. Raises before the script starts if a file cannot be read. One file is open at a
    time: a bundle has dozens, and each host reads it for itself.
    """
    items = stdin if isinstance(stdin, tuple) else (stdin,)
    try:
        files = [item for item in items if not isinstance(item, bytes)]
        for path in {item.path if isinstance(item, FilePart) else item for item in files}:
            open(path, "rb").close()
        yield itertools.chain([first] if first else [], itertools.chain.from_iterable(map(_read_piece, items)))
    except OSError as error:
        raise EngineError(f"{error.filename or stdin!s} cannot be read: {error.strerror or error}") from error


def _read_piece(item: bytes | Path | FilePart) -> Iterator[bytes]:
    if isinstance(item, bytes):
        yield from (item[start : start + CHUNK] for start in range(0, len(item), CHUNK))
        return
    path, offset, left = (item.path, item.offset, item.size) if isinstance(item, FilePart) else (item, 0, None)
    with open(path, "rb") as file:
        file.seek(offset)
        while data := file.read(CHUNK if left is None else min(CHUNK, left)):
            left = left and left - len(data)
            yield data
    if left:
        raise OSError(errno.EIO, "it has become shorter", str(path))
