"""Event files of an object store, copied beside those of folders while the board runs.

Of checkpoints the newest copy of each file counts: a trainer that keeps its log folder in every checkpoint has one
curve, not one for each step. Names of objects are not trusted: none leads out of the folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil

from ..vendored import load
from .event_files import MARK
from .words import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Iterable, Mapping

LOOK_S = 15.0
"""Between two looks: each is a listing of the whole prefix."""
MOST_FILES = 2000
"""Of one run: more than these nobody looks at, and each takes a request."""
LARGEST = 1 << 30
"""Bytes of one file: TensorBoard itself would read for minutes."""
BLOCK = 1 << 20
"""Bytes that are compared at once: the files are as large as their trainers let them become."""
_CHECKPOINT = re.compile(r"step-(\d{1,18})/(?:a\d{1,9}-[0-9a-f]{16}-[0-9a-f]{8}/)?(.+)", re.DOTALL)


class StoreEvents:
    """The event files below one address, kept in `folder/checkpoints`."""

    def __init__(self, url: str, folder: str, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._target = os.path.join(folder, "checkpoints")
        self._where = load("storage.urls").object_url(url.rstrip("/") + "/")
        self._environment = environment
        self._copied: dict[str, str] = {}  # path -> tag of what was copied
        self._problem = ""

    def turn(self) -> None:
        """Copy what is new; what goes wrong is told once, and tried again."""
        try:
            self._copy()
            self._problem = ""
        except Exception as error:
            problem = str(getattr(error, "message", None) or error)
            if problem != self._problem:
                tell("%s cannot be read: %s" % (self._where, problem))
            self._problem = problem

    def _copy(self) -> None:
        transfer = load("storage.transfers").DEFAULT_TRANSFER
        store = load("storage.stores.registry").open_store(self._where, self._environment, transfer)
        wanted = newest_by_path(store.listed(self._where.key), self._where.key)
        for path, info in sorted(wanted.items())[:MOST_FILES]:
            if self._copied.get(path) == info.tag or info.size > LARGEST:
                continue
            target = os.path.join(self._target, path)
            part = os.path.join(self.folder, hashlib.sha256((info.key + "\0" + info.tag).encode()).hexdigest()[:32])
            os.makedirs(os.path.dirname(target), exist_ok=True)
            source = load("storage.stores.object_store").ObjectSource(store, info.key, tag=info.tag)
            load("storage.transfers").Download(source, part, transfer).run()
            grow(target, part)
            self._copied[path] = info.tag


def named_url(word: str) -> tuple[str, str]:
    """Name and address of `NAME=URL`. Both may hold a `=`: folders are called like lr=0.1."""
    before, _, place = word.partition("://")
    name, _, scheme = before.rpartition("=")
    return name, "%s://%s" % (scheme, place)


def newest_by_path(objects: Iterable[Any], prefix: str) -> dict[str, Any]:
    """Event files by their paths, that of a checkpoint left out."""
    newest: dict[str, tuple[int, float, Any]] = {}
    for info in objects:
        match = _CHECKPOINT.fullmatch(info.key[len(prefix) :])
        step, path = (int(match.group(1)), match.group(2)) if match else (-1, info.key[len(prefix) :])
        if MARK not in path.rpartition("/")[2] or not is_fit(path):
            continue
        if path not in newest or newest[path][:2] < (step, info.changed):
            newest[path] = (step, info.changed, info)
    return {path: info for path, (_, _, info) in newest.items()}


def is_fit(path: str) -> bool:
    """Whether the name of an object is a path of a file below a folder."""
    parts = path.split("/")
    return all(part not in ("", ".", "..") and "\0" not in part and len(part.encode()) <= 255 for part in parts)


def grow(target: str, part: str) -> None:
    """Make the file what has arrived. One that only became longer stays the same file: somebody reads on in it."""
    with open(part, "rb") as arrived:
        try:
            with open(target, "rb") as present:
                is_longer = _begins_with(arrived, present)
        except FileNotFoundError:
            is_longer = False
        if is_longer:
            with open(target, "ab") as file:
                shutil.copyfileobj(arrived, file, BLOCK)
            os.unlink(part)
            return
    os.replace(part, target)


def _begins_with(arrived: IO[bytes], present: IO[bytes]) -> bool:
    """Whether the one begins with all of the other, which is not empty; it stands behind that then."""
    is_empty = True
    while True:
        block = present.read(BLOCK)
        if not block:
            return not is_empty
        if arrived.read(len(block)) != block:
            return False
        is_empty = False
