"""Code that is too large for Secrets, as objects below a URL of an object store.

Every object is a pack (a gzip tar of contents named by their sha256) and is named after what it holds. Which contents
share a pack follows from their hashes alone: after a change of one file the packs that held it and that hold it now
travel, at most `LIMIT` each, and all others are found in place. A content larger than that has a pack of its own.

Nobody counts who uses an object. A rule of the bucket removes old ones; whoever uses one that is older than
`REFRESH_S` writes it anew, so that it stays.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO

LIMIT = 1 << 20  # a change of one file sends so much; smaller packs cost more requests
REFRESH_S = 7 * 86400.0  # well below the days after which a bucket's rule removes
AT_ONCE = 8  # uploads side by side: one connection rarely fills the line
_HASH_BITS = 256  # of SHA-256, whose bits choose the halves

Write = Callable[[IO[bytes], Sequence[str]], None]
"""Writes a pack of these contents."""


def plan(sizes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Names of objects, and the contents that each holds. `sizes`: hash -> bytes."""
    alone = [(name,) for name, size in sorted(sizes.items()) if size > LIMIT]
    together = _split(sorted(name for name, size in sizes.items() if size <= LIMIT), sizes, 0)
    return {_name(group): group for group in (*alone, *together)}


def _split(names: list[str], sizes: Mapping[str, int], bit: int) -> list[tuple[str, ...]]:
    """Split by the next bit of the hash until all parts are small enough: a change moves only its own border."""
    if not names:
        return []
    if len(names) == 1 or bit == _HASH_BITS or sum(sizes[name] for name in names) <= LIMIT:
        return [tuple(names)]
    halves: tuple[list[str], list[str]] = ([], [])
    for name in names:
        halves[int(name, 16) >> (_HASH_BITS - 1 - bit) & 1].append(name)
    return [*_split(halves[0], sizes, bit + 1), *_split(halves[1], sizes, bit + 1)]


def _name(group: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(("longboat pack 1", *group)).encode()).hexdigest()[:32]


def folder_of(url: str) -> str:
    """The URL below which the objects are."""
    return url.rstrip("/") + "/longboat/code/"


def send_objects(url: str, objects: Mapping[str, Sequence[str]], environment: Mapping[str, str], write: Write) -> int:
    """Make all objects be there; the answer is how many had to travel. Raises EngineError."""
    from longboat.storage.stores.registry import open_store
    from longboat.storage.urls import object_url

    where = object_url(folder_of(url))
    store = open_store(where, environment)

    def have(name: str) -> int:
        info = store.look(where.key + name)
        if info is not None and info.size and time.time() - info.changed < REFRESH_S:
            return 0
        with tempfile.SpooledTemporaryFile(max_size=4 * LIMIT, prefix="longboat-") as file:
            write(file, objects[name])
            size = file.tell()
            file.seek(0)
            store.write(where.key + name, file, size)
        return 1

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return sum(pool.map(have, objects))
