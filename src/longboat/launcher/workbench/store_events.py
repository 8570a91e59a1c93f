"""Event files of an object store, copied beside those of folders while the board runs.

Of checkpoints the newest copy of each file counts: a trainer that keeps its log folder in every checkpoint has one
curve, not one for each step. Names of objects are not trusted: none leads out of the folder.
"""

from __future__ import annotations

import hashlib
import os
import re

from ..vendored import load
from .event_files import MARK
from .words import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping

LOOK_S = 15.0
"""Between two looks: each is a listing of the whole prefix."""
MOST_FILES = 2000
"""Of one run: more than these nobody looks at, and each takes a request."""
LARGEST = 1 << 30
"""Bytes of one file: TensorBoard itself would read for minutes."""
_SENT = r"a\d{1,9}-[0-9a-f]{16}-[0-9a-f]{8}/"
_CHECKPOINT = re.compile(r"()step-(\d{1,18})/(?:%s)?(.+)" % _SENT, re.DOTALL)
_BELOW = re.compile(r"(.+?/)step-(\d{1,18})/%s(.+)" % _SENT, re.DOTALL)
"""A checkpoint in the folder of a run below the address, as `checkpoints.to` of a job file is one."""


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
            where = str(self._where)
            problem = problem[len(where) + 2 :] if problem.startswith(where + ": ") else problem
            if problem != self._problem:
                tell("%s cannot be read: %s" % (where, problem))
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


def newest_by_path(objects: Iterable[Any], prefix: str) -> dict[str, Any]:
    """Event files by their paths, that of a checkpoint left out."""
    newest: dict[str, tuple[int, float, Any]] = {}
    for info in objects:
        step, path = -1, info.key[len(prefix) :]
        match = _CHECKPOINT.fullmatch(path) or _BELOW.fullmatch(path)
        if match:
            step, path = int(match.group(2)), match.group(1) + match.group(3)
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
                before = present.read()
        except FileNotFoundError:
            before = b""
        if before and arrived.read(len(before)) == before:
            with open(target, "ab") as file:
                file.write(arrived.read())
            os.unlink(part)
            return
    os.replace(part, target)
