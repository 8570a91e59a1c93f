"""JSON and plain values to typed ones, safe for several threads.

msgspec looks a type over when it first meets it, and two threads that do so at once crash the interpreter. So types are
looked over here, one at a time; reading with a decoder that is made needs no lock.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_MAKING = threading.Lock()


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return _made(kind)  # type: ignore[arg-type]  # types can be hashed


@functools.lru_cache(maxsize=256)  # types are few; a bound, should somebody make types as he goes
def _made(kind: Any) -> msgspec.json.Decoder[Any]:
    with _MAKING:
        return msgspec.json.Decoder(kind)


def decode(data: bytes | str, kind: type[T]) -> T:
    return decoder(kind).decode(data)


def convert(value: Any, kind: type[T]) -> T:
    """From dicts, lists and scalars, as YAML and untyped JSON have them."""
    decoder(kind)
    return msgspec.convert(value, kind)


def decode_msgpack(data: bytes, kind: type[T]) -> T:
    decoder(kind)
    return msgspec.msgpack.decode(data, type=kind)
