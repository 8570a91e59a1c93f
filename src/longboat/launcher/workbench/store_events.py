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
    from typing import Any, Iterable, Mapping

LOOK_S = 15.0
"""Between two looks: each is a listing of the whole prefix."""
MOST_FILES = 2000
"""Of one run: more than these nobody looks at, and each takes a request."""
LARGEST = 1 << 30
"""Bytes of one file: TensorBoard itself would read for minutes."""
MOST_BYTES = 4 << 30
"""Of one run: a pod whose disk is fuller than its node likes is evicted, with the board in it."""
MOST_FAILED = 10
"""Files of one look that cannot be brought: by then it is the disk or the store, and not their names."""
_BLOCK = 1 << 20  # files are compared by pieces: a pod has little memory
_PART_LENGTH = 32  # of a SHA-256 in hex: half of it meets no other one
_PART = re.compile("[0-9a-f]{%d}" % _PART_LENGTH)
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
        self._failed: set[str] = set()  # paths that could not be brought: others come before them
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
        self._drop_parts({_part_of(info) for info in wanted.values()})
        room, failures, before = MOST_BYTES, [], self._failed
        self._failed = set()
        for path, info in sorted(wanted.items(), key=lambda item: (item[0] in before, item[0]))[:MOST_FILES]:
            room -= info.size if info.size <= LARGEST else 0
            if self._copied.get(path) == info.tag or info.size > LARGEST or room < 0:
                continue
            try:
                self._bring(store, transfer, path, info)
            except Exception as error:  # of one file, whose name is impossible here or which is just removed there
                if type(error).__name__ == "StoreUnavailable":
                    raise
                self._failed.add(path)
                failures.append(error)
                if len(failures) >= MOST_FAILED:
                    break
        if failures:
            raise failures[0]

    def _bring(self, store: Any, transfer: Any, path: str, info: Any) -> None:
        target, part = os.path.join(self._target, path), os.path.join(self.folder, _part_of(info))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        source = load("storage.stores.object_store").ObjectSource(store, info.key, tag=info.tag)
        load("storage.transfers").Download(source, part, transfer).run()
        grow(target, part)
        self._copied[path] = info.tag

    def _drop_parts(self, wanted: set[str]) -> None:
        """Remove beginnings of what is another content by now; others are gone on with."""
        for name in os.listdir(self.folder) if os.path.isdir(self.folder) else ():
            if _PART.match(name) and name[:_PART_LENGTH] not in wanted:
                os.unlink(os.path.join(self.folder, name))


def _part_of(info: Any) -> str:
    """The file name of what has arrived of this content of an object."""
    return hashlib.sha256((info.key + "\0" + info.tag).encode("utf-8", "replace")).hexdigest()[:_PART_LENGTH]


def named_url(word: str) -> tuple[str, str]:
    """Name and address of `NAME=URL`. Both may hold a `=`: folders are called like lr=0.1."""
    before, _, place = word.partition("://")
    name, _, scheme = before.rpartition("=")
    return name, "%s://%s" % (scheme, place)


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
    try:
        parts = path.encode().split(b"/")
    except UnicodeEncodeError:
        return False
    return all(part not in (b"", b".", b"..") and b"\0" not in part and len(part) <= 255 for part in parts)


def grow(target: str, part: str) -> None:
    """Make the file what has arrived. One that only became longer stays the same file: somebody reads on in it."""
    size = os.path.getsize(target) if os.path.exists(target) else 0
    if size and _begins_with(part, target):
        with open(part, "rb") as arrived, open(target, "ab") as file:
            arrived.seek(size)
            shutil.copyfileobj(arrived, file, _BLOCK)
        os.unlink(part)
        return
    os.replace(part, target)


def _begins_with(path: str, beginning: str) -> bool:
    with open(path, "rb") as whole, open(beginning, "rb") as known:
        while True:
            block = known.read(_BLOCK)
            if not block:
                return True
            if whole.read(len(block)) != block:
                return False
