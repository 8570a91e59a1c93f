"""Checkpoints in an object store, as seen from this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping

from longboat.bundles.disk import errors_explained
from longboat.core.errors import EngineError
from longboat.storage import fences
from longboat.storage.checkpoint_mirror import CheckpointCopy, Mirror, MirrorContents
from longboat.storage.download import fetch
from longboat.storage.download_prefix import fetch_below
from longboat.storage.fences import MARKER
from longboat.storage.inventory.entries import CheckpointEntry, Digests, with_newest
from longboat.storage.inventory.folder_scan import digest
from longboat.storage.retention import evaluated_name, promoted_steps
from longboat.storage.transfers import DEFAULT_TRANSFER


class StorePlace:
    """The checkpoints of one run below a URL. Promises: `entries.CheckpointPlace`."""

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        self.where = url.rstrip("/")
        self._environment = environment
        self._mirror = Mirror(url, environment)
        self._copies: dict[str, CheckpointCopy] = {}  # where -> what is there
        self.has_removed = False

    def entries(self) -> list[CheckpointEntry]:
        contents, complete = self._mirror.inventory()
        promoted = promoted_steps(contents.marks)
        entries = []
        for copy in contents.copies:
            entry = self._entry(copy, contents, complete, promoted)
            self._copies[entry.where] = copy
            entries.append(entry)
        return with_newest(entries)

    def _entry(
        self, copy: CheckpointCopy, contents: MirrorContents, complete: list[CheckpointCopy], promoted: set[int]
    ) -> CheckpointEntry:
        paths = {path: size for path, size in contents.copies[copy].items() if path != MARKER}
        is_complete = copy in complete
        marker = fences.read_marker(self._mirror.read(f"{copy.key}/{MARKER}") or b"" if is_complete else b"")
        name = evaluated_name(copy.step)
        evaluation = (self._mirror.read(name) or b"") if is_complete and name in contents.marks else b""
        is_finished = MARKER in contents.copies[copy]
        return CheckpointEntry(
            step=copy.step,
            name=copy.name,
            where=self._mirror.url_of(copy.key),
            size=sum(paths.values()),
            files=len(paths),
            complete=is_complete,
            promoted=is_complete and copy.step in promoted,
            time=marker.time,
            attempt=copy.attempt if marker.attempt is None else marker.attempt,
            metrics=fences.metrics_of(marker, evaluation),
            note="" if is_complete else "of an attempt that was replaced" if is_finished else "never finished",
        )

    def marker(self, entry: CheckpointEntry) -> bytes:
        return self._mirror.read(f"{self._copies[entry.where].key}/{MARKER}") or b""

    def digest(self, entry: CheckpointEntry) -> Digests:
        """File by file, through a temporary one: no more room is needed than for the largest."""
        contents, _ = self._mirror.inventory()
        digests = {}
        with tempfile.TemporaryDirectory(prefix="longboat-") as folder:
            place = os.path.join(folder, "file")
            for path in contents.copies.get(self._copies[entry.where], {}):
                if path == MARKER:
                    continue
                fetch(f"{entry.where}/{path}", place, environment=self._environment)
                digests[path] = digest(folder)["file"]
                os.unlink(place)
        return digests

    def fetch(self, entry: CheckpointEntry, target: str) -> None:
        key = self._mirror.where.key + self._copies[entry.where].key + "/"
        where = self._mirror.where._replace(key=key)
        with errors_explained(target):
            fetch_below(where, f"{target}.parts", target, self._environment, DEFAULT_TRANSFER)
        if not os.path.isfile(os.path.join(target, MARKER)):
            raise EngineError(f"{entry.where}: it was removed while it was fetched", hint="longboat checkpoint ls")

    def remove(self, entry: CheckpointEntry) -> bool:
        self.has_removed = True
        return self._mirror.remove(entry.step)

    def mark(self, name: str, data: bytes | None) -> None:
        self._mirror.mark(name, data)
