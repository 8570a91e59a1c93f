"""Download of all objects below a prefix into one folder: a few at once, each resumed where it broke off.

Names come from a store and are not trusted: none leads out of the folder.
Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from longboat.bundles import durable
from longboat.core.errors import EngineError, Refused
from longboat.storage.stores.object_store import ObjectInfo, ObjectMoved, ObjectSource, ObjectStore
from longboat.storage.stores.registry import open_store
from longboat.storage.transfers import DEFAULT_TRANSFER, LONGEST_PAUSE_S, Download, no_room

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from longboat.storage.transfers import Progress, Transfer
    from longboat.storage.urls import ObjectUrl

AT_ONCE = 8  # files: the latency of a request is hidden, and a store does not slow down
ROUNDS = 4
"""So often what has changed meanwhile is fetched anew; what still changes then is being written all the time."""
MOST_OBJECTS = 10_000_000
"""Of one listing, which is kept in memory: more are a store that never ends, or nothing for files of one folder."""
_OWN = ".longboat"


def fetch_below(
    where: ObjectUrl,
    parts: str,
    stage: str,
    environment: Mapping[str, str],
    transfer: Transfer,
    progress: Progress | None = None,
) -> int:
    """Make the folder `stage` with all objects below `where`; the answer is their size.

    They are those of one moment: each is fetched in the version that was listed, and the list is the same afterwards.
    What has arrived waits in the folder `parts`, which a later call carries on with. Raises EngineError, Refused.
    """
    store = open_store(where, environment, transfer)
    files = paths_of(where, store.listed(where.key))
    odd: set[ObjectInfo] = set()  # whose ETags are others in listings than in answers: any version of them will do
    pause_s = transfer.backoff_s
    for _ in range(ROUNDS):
        total = sum(file.size for file in files.values())
        _check_room(where, parts, total)
        moved = _Fetching(store, parts, transfer, progress).run(files.values(), frozenset(odd))
        again = paths_of(where, store.listed(where.key))
        if not moved and again == files:
            break
        odd |= moved & set(again.values())
        files = again
        time.sleep(min(pause_s, LONGEST_PAUSE_S))  # whoever writes there may be done then
        pause_s *= 4
    else:
        raise EngineError(f"{where}: changes while it is fetched", hint="import it when nothing writes there any more")
    for path, info in files.items():
        os.makedirs(os.path.dirname(f"{stage}/{path}"), exist_ok=True)
        os.rename(f"{parts}/{_name(info)}.done", f"{stage}/{path}")
    return total


def _check_room(where: ObjectUrl, parts: str, total: int) -> None:
    os.makedirs(parts, exist_ok=True)
    left = total - sum(os.stat(f"{parts}/{name}").st_size for name in os.listdir(parts))
    free = shutil.disk_usage(parts).free
    if left > free:
        raise no_room(str(where), total, free)


def fetch_named(where: ObjectUrl, names: Sequence[str], folder: str, environment: Mapping[str, str]) -> None:
    """Bring the objects of these names below `where` into the files 0, 1, ... of the folder. Raises EngineError."""
    store = open_store(where, environment, DEFAULT_TRANSFER)

    def fetch(number: int) -> None:
        source = ObjectSource(store, where.key + names[number])
        Download(source, f"{folder}/{number}", DEFAULT_TRANSFER).run()

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for _ in pool.map(fetch, range(len(names))):
            pass


def paths_of(where: ObjectUrl, objects: Iterable[ObjectInfo]) -> dict[str, ObjectInfo]:
    """The objects by their paths below the prefix. Raises Refused for names that are not fit to be files here."""
    infos: dict[str, ObjectInfo] = {}
    folders: set[str] = set()
    for count, each in enumerate(objects):
        if count >= MOST_OBJECTS:
            raise Refused(f"{where}: more than {MOST_OBJECTS:,} objects", hint="import parts of it by their names")
        path = each.key[len(where.key) :]
        if (not path or path.endswith("/")) and not each.size:
            continue  # what consoles put there to show an empty folder
        parts = path.split("/")
        is_fit = all(part not in ("", ".", "..") and "\0" not in part and len(part.encode()) <= 255 for part in parts)
        if not is_fit or parts[0] == _OWN or not each.key.startswith(where.key):
            raise Refused(
                f"{where._replace(key=each.key)}: this name of an object is no path of a file",
                hint="rename the object, or import others by their names",
            )
        infos[path] = each
        folders.update("/".join(parts[:end]) for end in range(1, len(parts)))
    both = sorted(folders & infos.keys())
    if both:
        name = where._replace(key=where.key + both[0])
        raise Refused(f"{name} is an object and has others below it; a file cannot be a folder too")
    if not infos:
        raise EngineError(f"{where}: there are no objects below it", hint="a name without / at its end is one object")
    return infos


def _name(info: ObjectInfo) -> str:
    """Name of the partial file of an object; each version of the object has its own."""
    return hashlib.sha256("\0".join((info.key, info.tag, str(info.size))).encode()).hexdigest()[:32]


class _Fetching:
    def __init__(self, store: ObjectStore, parts: str, transfer: Transfer, progress: Progress | None) -> None:
        self._store = store
        self._parts = parts
        self._transfer = transfer
        self._progress = progress
        self._odd: frozenset[ObjectInfo] = frozenset()
        self._moved: set[ObjectInfo] = set()
        self._total = 0
        self._done = 0
        self._lock = threading.Lock()
        self._failed = threading.Event()

    def run(self, objects: Collection[ObjectInfo], odd: frozenset[ObjectInfo]) -> set[ObjectInfo]:
        """Download all; objects that have changed since they were listed. Of `odd` ones any version is taken."""
        self._total, self._odd = sum(info.size for info in objects), odd
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            for _ in pool.map(self._fetch, objects):
                pass
        return self._moved

    def _fetch(self, info: ObjectInfo) -> None:
        if self._failed.is_set():
            return
        try:
            self._fetch_one(info)
        except ObjectMoved:
            with self._lock:
                self._moved.add(info)
            return
        except BaseException:
            self._failed.set()
            raise
        with self._lock:
            self._done += info.size
            if self._progress is not None:
                self._progress(self._done, self._total)

    def _fetch_one(self, info: ObjectInfo) -> None:
        place = f"{self._parts}/{_name(info)}"
        if _size(f"{place}.done") == info.size:
            return
        tag = "" if info in self._odd else info.tag
        Download(ObjectSource(self._store, info.key, tag=tag), place, self._transfer).run()
        size = os.stat(place).st_size
        if size != info.size:
            os.unlink(place)
            raise ObjectMoved(
                f"{self._store.name_of(info.key)}: has {size:,} bytes, and {info.size:,} when it was listed"
            )
        durable.sync_file(place)  # a later call relies on the name alone
        os.rename(place, f"{place}.done")


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None
