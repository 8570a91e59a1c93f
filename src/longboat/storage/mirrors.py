"""Checkpoints of one run below a URL of an object store: sent, kept to a number, fetched, removed.

As in a folder, a complete one is `step-N` with `.complete` in it: an object that is written last and removed first, so
that one that is half sent or half removed never looks complete. Who writes checkpoints sends them; nobody else does.
Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from longboat.core.errors import EngineError
from longboat.storage.checkpoints import MARKER, complete_steps
from longboat.storage.data import remove_tree_if_there
from longboat.storage.prefixes import fetch_below
from longboat.storage.stores import open_store
from longboat.storage.transfers import DEFAULT_TRANSFER, Transfer
from longboat.storage.urls import ObjectUrl, object_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AT_ONCE = 8
SMALL = 4 << 20
"""Files up to this size are sent a few at once; larger ones one after the other, for memory is the trainer's."""
_OBJECT = re.compile(r"(step-(\d{1,18}))/(.+)", re.DOTALL)
_STEP = re.compile(r"step-\d{1,18}")


class Gone(Exception):
    """The checkpoint was removed or replaced while it was read."""


def identity(folder: Path) -> tuple[int, int, int] | None:
    """What tells a complete checkpoint from another of the same name that took its place; None: it is not complete."""
    try:
        found = os.stat(folder / MARKER)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def files_of(folder: Path) -> dict[str, str]:
    """Files by their paths inside of the checkpoint, the marker left out. Links are followed, but not in circles."""
    found: dict[str, str] = {}
    _gather(str(folder), "", (), found)
    found.pop(MARKER, None)
    return found


def _gather(folder: str, inside: str, above: tuple[str, ...], found: dict[str, str]) -> None:
    real = os.path.realpath(folder)
    if real in above:
        return
    with os.scandir(folder) as children:
        for child in children:
            _check_name(child.path)
            if child.is_dir():
                _gather(child.path, f"{inside}{child.name}/", (*above, real), found)
            elif child.is_file():
                found[inside + child.name] = child.path


def _check_name(path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise EngineError(f"{path!r}: the name of the file is not UTF-8, and no name of an object") from None


class Mirror:
    """The checkpoints of one run in a store. Every call raises EngineError."""

    def __init__(self, url: str, environment: Mapping[str, str], transfer: Transfer = DEFAULT_TRANSFER) -> None:
        self.where: ObjectUrl = object_url(url.rstrip("/") + "/")
        self._environment = environment
        self._transfer = transfer
        self._store = open_store(self.where, environment, transfer)

    def url_of(self, name: str) -> str:
        return str(self.where._replace(key=self.where.key + name))

    def complete(self) -> list[tuple[int, str]]:
        """Step and name of every complete one, oldest first."""
        return _complete(self._by_name())

    def _by_name(self) -> dict[str, dict[str, int]]:
        """Objects of every checkpoint, with their sizes: `step-N` -> path inside of it -> bytes."""
        found: dict[str, dict[str, int]] = {}
        for each in self._store.listed(self.where.key):
            match = _OBJECT.fullmatch(each.key[len(self.where.key) :])
            if match:
                found.setdefault(match.group(1), {})[match.group(3)] = each.size
        return found

    def send(self, folder: Path) -> None:
        """Send a complete checkpoint; its marker last. Raises Gone when it is not the same any more at the end."""
        before = identity(folder)
        if before is None:
            raise Gone(str(folder))
        prefix = f"{self.where.key}{folder.name}/"
        try:
            files = files_of(folder)
            old = [each.key[len(prefix) :] for each in self._store.listed(prefix)]
            self._remove(prefix, (path for path in old if path == MARKER or path not in files))
            sizes = self._send_all(prefix, files)
            there = {each.key[len(prefix) :]: each.size for each in self._store.listed(prefix)}
            if identity(folder) != before:
                raise Gone(str(folder))
            if there != sizes:
                raise EngineError(f"{self.url_of(folder.name)}: somebody else writes there at the same time")
            self._send_one(prefix + MARKER, str(folder / MARKER))
        except FileNotFoundError:
            raise Gone(str(folder)) from None
        except OSError as error:
            raise EngineError(f"{error.filename or folder}: {error.strerror or error}") from None

    def _send_all(self, prefix: str, files: Mapping[str, str]) -> dict[str, int]:
        small = sorted(path for path, place in files.items() if os.stat(place).st_size <= SMALL)
        sizes: dict[str, int] = {}
        for path in sorted(files.keys() - set(small)):
            sizes[path] = self._send_one(prefix + path, files[path])
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            sent = pool.map(lambda path: (path, self._send_one(prefix + path, files[path])), small)
            sizes.update(sent)
        return sizes

    def _send_one(self, key: str, path: str) -> int:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._store.write(key, file, size)
        return size

    def prune(self, keep: int) -> list[str]:
        """Remove all but the newest `keep` complete ones (0 keeps all), and what was never finished before the newest;
        names of what was removed. The newest complete one stays."""
        found = self._by_name()
        complete = _complete(found)
        if not complete:
            return []
        newest = complete[-1][0]
        names = [name for _, name in complete]
        doomed = names[:-keep] if keep > 0 else []
        doomed += [name for name in found if name not in names and _number(name) < newest]
        for name in doomed:
            self._remove(f"{self.where.key}{name}/", found[name])
        return doomed

    def remove_all(self) -> int:
        """Everything of the run; how many checkpoints that were complete."""
        found = self._by_name()
        count = len(_complete(found))
        for name, paths in found.items():
            self._remove(f"{self.where.key}{name}/", paths)
        return count

    def _remove(self, prefix: str, paths: Iterable[str]) -> None:
        rest = list(paths)
        if MARKER in rest:
            self._store.remove(prefix + MARKER)
            rest.remove(MARKER)
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            for _ in pool.map(lambda path: self._store.remove(prefix + path), rest):
                pass

    def fetch_newest(self, folder: Path) -> Path | None:
        """See that the newest complete one is in the folder, unless the folder has a newer one; None: there is none.

        One that is removed meanwhile is passed over: the next newest takes its place.
        """
        own = complete_steps(folder)
        for step, name in reversed(self.complete()):
            if own and own[-1][0] >= step:
                break
            found = self.fetch(name, folder)
            if found is not None:
                return found
        return own[-1][1] if own else None

    def fetch(self, name: str, folder: Path) -> Path | None:
        """Bring one into the folder, under another name until all of it is there; None: there is none any more."""
        where = self.where._replace(key=f"{self.where.key}{name}/")
        if self._store.look(where.key + MARKER) is None:
            return None
        parts, stage = str(folder / f".{name}.tmp-parts"), str(folder / f".{name}.tmp-fetched")
        os.makedirs(folder, exist_ok=True)
        remove_tree_if_there(stage)
        try:
            fetch_below(where, parts, stage, self._environment, self._transfer)
            failure = None
        except EngineError as error:
            failure = error
        # The marker is removed first: while it is there, all that was listed was all of it.
        is_there = self._store.look(where.key + MARKER) is not None
        if not is_there or (failure is None and not os.path.isfile(f"{stage}/{MARKER}")):
            remove_tree_if_there(stage)
            remove_tree_if_there(parts)
            return None
        if failure is not None:
            raise failure
        remove_tree_if_there(parts)
        target = folder / name
        if identity(target) is None:
            remove_tree_if_there(str(target))
            os.rename(stage, target)
        else:
            remove_tree_if_there(stage)
        return target


def fetch_checkpoint(url: str, folder: Path, environment: Mapping[str, str]) -> Path | None:
    """The one that a URL itself means, or the newest complete one below it. Raises EngineError."""
    parent, _, name = url.rstrip("/").rpartition("/")
    if _STEP.fullmatch(name) and parent.count("/") > 1:
        found = Mirror(parent, environment).fetch(name, folder)
        if found is not None:
            return found
    return Mirror(url, environment).fetch_newest(folder)


def _complete(found: Mapping[str, Mapping[str, int]]) -> list[tuple[int, str]]:
    return sorted((_number(name), name) for name, paths in found.items() if MARKER in paths)


def _number(name: str) -> int:
    return int(name.partition("-")[2])
