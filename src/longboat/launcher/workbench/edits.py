"""Edits in a working copy: changed files are put aside in the run's artifacts, where they outlive the node.

`edits/files` has them by path; `edits/edits.json` says for each which contents it had before (SHA-256), so that whoever
brings them back to the user's folder can tell an older state of his from a change of his own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time

from ..node.jsonfiles import read_json, write_json
from .words import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

FOLDER = "edits"
INDEX = "edits.json"
REQUEST = "save-now"
SAVE_S = 3.0
"""How often changed files are looked for: what is lost at most when a node dies."""
ASKED_S = 10.0  # for one who asks; he brings back what there is, then
LARGEST = 64 << 20
"""A larger file is data or a checkpoint, which belong into a volume or the checkpoints' folder."""
MOST_FILES = 20_000  # of a folder: more are data, and all of them are looked at whenever somebody saves
MOST_WATCHED = 2_000
"""Files whose times are looked at every few seconds to see whether somebody saves: it may be a whole home folder."""
SKIPPED = (".git", "__pycache__", ".ipynb_checkpoints", "node_modules", ".venv")


def files_below(root: str, most: int = MOST_FILES) -> Iterator[tuple[str, os.stat_result]]:
    """(path below the root, what it is) of regular files; links are not followed: volumes and data are behind them."""
    left = most
    for at, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in names:
            path = os.path.join(at, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if status.st_mode & 0o170000 == 0o100000:
                left -= 1
                if left < 0:
                    return
                yield os.path.relpath(path, root), status


def newest_change(root: str) -> int:
    """Of any file, in nanoseconds: somebody who saves is there."""
    return max((status.st_mtime_ns for _, status in files_below(root, MOST_WATCHED)), default=0)


def digest(path: str) -> str:
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            sha.update(block)
    return sha.hexdigest()


class EditKeeper:
    """Looks for changed files every few seconds, and at once when somebody asks (`ask_save`)."""

    def __init__(self, root: str, artifacts: str, folder: str) -> None:
        """`folder`: of the workbench, where requests come."""
        self._root = root
        self._request = os.path.join(folder, REQUEST)
        self._saved = time.monotonic()
        self._target = os.path.join(artifacts, FOLDER)
        self._stamps = {path: _stamp(status) for path, status in files_below(root)}
        self._first = {path: self._digest(path) for path, (_, size) in self._stamps.items() if size <= LARGEST}
        self._index: dict[str, dict[str, object]] = self._earlier()
        self._is_dirty = False  # the index says more than its file
        self._troubled: set[str] = set()

    def _digest(self, path: str) -> str | None:
        try:
            return digest(os.path.join(self._root, path))
        except OSError:  # gone meanwhile, or somebody else's; no reason to have no notebook
            return None

    def _earlier(self) -> dict[str, dict[str, object]]:
        """What an earlier attempt put aside."""
        try:
            index = read_json(os.path.join(self._target, INDEX))
        except (OSError, ValueError):
            return {}
        return {path: entry for path, entry in index.items() if _is_entry(entry)} if isinstance(index, dict) else {}

    def turn(self) -> None:
        is_asked = os.path.exists(self._request)
        if is_asked or time.monotonic() - self._saved >= SAVE_S:
            self.save()
            self._saved = time.monotonic()
        if is_asked:
            os.unlink(self._request)

    def save(self) -> None:
        """Put aside what has changed. A full disk stops no notebook and one file no other: both are tried again."""
        for path, status in files_below(self._root):
            try:
                self._is_dirty = self._keep(path, status) or self._is_dirty
            except (OSError, UnicodeError) as error:
                if path not in self._troubled:
                    self._troubled.add(path)
                    tell("%s is not kept: %s" % (ascii(path), error))
        try:
            if self._is_dirty:
                write_json(os.path.join(self._target, INDEX), self._index)
                self._is_dirty = False
        except OSError:
            pass  # still dirty

    def _keep(self, path: str, status: os.stat_result) -> bool:
        if self._stamps.get(path) == _stamp(status):
            return False
        if status.st_size > LARGEST:
            self._stamps[path] = _stamp(status)
            tell("%s is larger than %d MiB: it is not kept, `longboat cp` copies it" % (path, LARGEST >> 20))
            return False
        path.encode()  # UnicodeError: a name that JSON cannot say would make the whole index unreadable
        source, target = os.path.join(self._root, path), os.path.join(self._target, "files", path)
        self._make_room(path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target + ".tmp")
        now = digest(target + ".tmp")
        os.replace(target + ".tmp", target)
        entry = self._index.get(path) or {"sha256": self._first.get(path), "before": []}
        if entry["sha256"] != now:
            before = entry["before"]
            assert isinstance(before, list)
            self._index[path] = {"sha256": now, "before": [each for each in [*before, entry["sha256"]] if each]}
        self._stamps[path] = _stamp(status)
        return path in self._index

    def _make_room(self, path: str) -> None:
        """A folder that was a file before, or the reverse: what was put aside by that name is in the way."""
        files = os.path.join(self._target, "files")
        parts = path.split("/")
        for above in ("/".join(parts[:count]) for count in range(1, len(parts))):
            if os.path.isfile(os.path.join(files, above)):
                os.unlink(os.path.join(files, above))
                self._forget(above)
        if os.path.isdir(os.path.join(files, path)):
            shutil.rmtree(os.path.join(files, path))
            for below in [other for other in self._index if other.startswith(path + "/")]:
                self._forget(below)

    def _forget(self, path: str) -> None:
        self._is_dirty = self._index.pop(path, None) is not None or self._is_dirty


def ask_save(folder: str) -> int:
    """Have the server put aside what has changed by now."""
    path = os.path.join(folder, REQUEST)
    open(path, "w").close()
    deadline = time.monotonic() + ASKED_S
    while os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.05)
    return 0


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("before"), list) and "sha256" in entry


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size
