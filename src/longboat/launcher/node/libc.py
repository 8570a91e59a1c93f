"""Calls of the C library that Python has no function for. Linux only; elsewhere they raise OSError."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_known: dict[str, tuple[Callable[..., int], Callable[[], int]]] = {}


def call(name: str, *arguments: int | bytes | None) -> None:
    """Call a libc function that returns 0 on success. Raises OSError with its errno."""
    try:
        function, read_errno = _known[name] = _known.get(name) or _function(name)
    except (ImportError, OSError, AttributeError, ValueError):
        raise OSError(errno.ENOSYS, "%s: %s" % (name, os.strerror(errno.ENOSYS))) from None
    if function(*arguments) != 0:
        code = read_errno()
        raise OSError(code, "%s: %s" % (name, os.strerror(code)))


def _function(name: str) -> tuple[Callable[..., int], Callable[[], int]]:
    """The function, and a function that returns its errno."""
    try:
        import _ctypes  # a tenth of the cost of importing ctypes

        flags = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO  # type: ignore[attr-defined,unused-ignore]
        result: Any = type("Int", (_ctypes._SimpleCData,), {"_type_": "i"})
        kind: Any = type("Function", (_ctypes.CFuncPtr,), {"_flags_": flags, "_restype_": result})
        address = _ctypes.dlsym(_ctypes.dlopen(None, 0), name)  # type: ignore[arg-type,attr-defined,unused-ignore]
        return kind(address), _ctypes.get_errno  # type: ignore[attr-defined,unused-ignore]
    except (ImportError, AttributeError, TypeError):
        import ctypes

        return getattr(ctypes.CDLL(None, use_errno=True), name), ctypes.get_errno
