"""JSON text and whole files of it, without the `json` package: that pulls in `re`, which costs more start-up time than
everything else the launcher imports together. Not for large documents.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

try:
    from _json import encode_basestring_ascii as _quote
    from _json import make_scanner as _make_scanner
except ImportError:  # not CPython
    from json.encoder import py_encode_basestring_ascii as _quote  # type: ignore[attr-defined,no-redef,unused-ignore]

    _make_scanner = None  # type: ignore[assignment,misc]

_SPACE = " \t\r\n"


NUMBER_MAX = 400
"""Digits of a whole number: far more than any of ours has, and few enough to be converted at once on every Python."""


def _whole_number(digits: str) -> int:
    if len(digits) > NUMBER_MAX:
        raise ValueError("not JSON: a number of %d digits" % len(digits))
    return int(digits)


class _Context:
    """The attributes that the C scanner of `json` reads from its decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float: Callable[[str], float] = float
    parse_int = staticmethod(_whole_number)
    parse_constant: Callable[[str], float] = float


def loads(text: str) -> Any:
    """Parse a JSON text. Raises ValueError."""
    if _make_scanner is None:
        import json

        try:
            return json.loads(text, parse_int=_whole_number)
        except RecursionError:
            raise ValueError("not JSON: nested too deeply") from None
    start = len(text) - len(text.lstrip(_SPACE))
    try:
        value, end = _make_scanner(_Context())(text, start)  # type: ignore[arg-type]
    except StopIteration:
        raise ValueError("not JSON") from None
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    if text[end:].strip(_SPACE):
        raise ValueError("not JSON: text after the end")
    return value


def dumps(value: object) -> str:
    """Format plain values as JSON. NaN and infinities, which JSON lacks, become null."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return str(_quote(value))
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if value - value == 0 else "null"
    if isinstance(value, dict):
        return "{" + ",".join([_quote(str(key)) + ":" + dumps(item) for key, item in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([dumps(item) for item in value]) + "]"
    raise TypeError("no JSON for " + type(value).__name__)


def read_json(path: str) -> Any:
    """Read a JSON file. Raises OSError, ValueError."""
    return loads(read_bytes(path).decode("utf-8"))


MOST = 256 << 20
"""Bytes of a file that is read whole. Ranks write some of them, and what they write has no end that we know of."""


def read_bytes(path: str, most: int = MOST) -> bytes:
    """Read a whole file, also of unknown size as in /proc. Raises OSError for one that is too large."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        parts: list[bytes] = []
        size = 0
        while True:
            part = os.read(descriptor, 65536)
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
            if size > most:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    finally:
        os.close(descriptor)


def write_whole(path: str, data: bytes, mode: int = 0o644) -> None:
    """Write a file atomically. Raises OSError, leaving nothing behind.

    Not `durable.write_file`, which travels with the launcher: this is the first thing that every launcher does, and
    loading anything for it would show in the time until a rank starts.
    """
    temporary = "%s.%d.tmp" % (path, os.getpid())  # two that tell a launcher something may do so at the same moment
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def write_json(path: str, value: object) -> None:
    """Write a JSON file atomically. Raises OSError."""
    write_whole(path, dumps(value).encode("ascii"))
