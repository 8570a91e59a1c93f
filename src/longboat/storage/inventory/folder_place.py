"""Checkpoints in a folder of this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from longboat.bundles.disk import errors_explained
from longboat.storage.checkpoints import remove_one, write_mark
from longboat.storage.fences import MARKER, MARKER_MAX
from longboat.storage.inventory.entries import CheckpointEntry, Digests, entries_of
from longboat.storage.inventory.folder_scan import digest, scan


class FolderPlace:
    """A checkpoint folder. Promises: `entries.CheckpointPlace`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = str(folder)

    def entries(self) -> list[CheckpointEntry]:
        with errors_explained(self.where):
            return entries_of(scan(self.where), self.where)

    def marker(self, entry: CheckpointEntry) -> bytes:
        with errors_explained(entry.where):
            with open(self.folder / entry.name / MARKER, "rb") as file:
                return file.read(MARKER_MAX)

    def digest(self, entry: CheckpointEntry) -> Digests:
        with errors_explained(entry.where):
            return digest(str(self.folder / entry.name))

    def fetch(self, entry: CheckpointEntry, target: str) -> None:
        with errors_explained(entry.where):
            shutil.copytree(self.folder / entry.name, target, symlinks=False)

    def remove(self, entry: CheckpointEntry) -> bool:
        return remove_one(self.folder, entry.name)

    def mark(self, name: str, data: bytes | None) -> None:
        write_mark(self.folder / name, data)
