"""Checkpoints of removed runs: where they still are, and their removal.

The record of a run that leaves checkpoints is kept as `removed/UID.json` in the home, so that its name still leads to
them (`--resume`, `rm --purge`, `prune --checkpoints`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from longboat.core.errors import LongboatError
from longboat.core.runs import PrunedItem, PruneQuery
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.files import disk_use, read_value, remove_tree, write_value
from longboat.engines.shared.home import Home
from longboat.storage.checkpoints import remove_own


def note_left(home: Home, files: RunFiles, record: LocalRecord) -> str | None:
    """The run is removed and its checkpoints stay: where they are; None where it has none.

    Of another user's run nothing is noted: his record names folders and endpoints."""
    place = _place_of(record)
    if place is not None and files.is_own():
        write_value(home.folder("removed") / f"{record.uid}.json", record, is_durable=True)
    return place


def left_by(home: Home, run: str) -> LocalRecord | None:
    """Of the removed runs of this name, the one that was submitted last."""
    records = [record for _, record in _notes(home) if record.name == run]
    return max(records, key=lambda record: record.created, default=None)


def purge_left(home: Home, run: str, purge_store: Callable[[LocalRecord], None]) -> tuple[bool, list[str]]:
    """Remove what all removed runs of this name left: whether there was anything, and what stays as it is not ours."""
    notes = [(path, record) for path, record in _notes(home) if record.name == run]
    rest = []
    for path, record in notes:
        if record.checkpoint_store is not None:
            purge_store(record)
        rest += purge_folder(home, record)
        path.unlink(missing_ok=True)
    return bool(notes), rest


def prune_left(home: Home, query: PruneQuery) -> Iterator[PrunedItem]:
    """Those of runs that were removed before the moment asked for."""
    for path, record in sorted(_notes(home), key=lambda note: note[1].name):
        removed = path.stat().st_mtime
        if removed >= query.ended_before:
            continue
        folder = Path(record.checkpoint_dir)
        item = PrunedItem(kind="checkpoints", name=record.name, size=disk_use(folder), user=record.user)
        try:
            if record.checkpoint_store is not None:
                problem = f"they are in {record.checkpoint_store}: longboat rm --purge {record.name}"
                yield PrunedItem(kind="checkpoints", name=record.name, user=record.user, problem=problem)
                continue
            if not query.dry_run:
                purge_folder(home, record)
                path.unlink(missing_ok=True)
        except LongboatError as error:
            yield PrunedItem(kind="checkpoints", name=record.name, user=record.user, problem=error.message)
            continue
        yield item


def purge_folder(home: Home, record: LocalRecord) -> list[str]:
    """Remove the checkpoints; what stays. A folder in our own home is ours as a whole, one that the job names is not:
    its user may have kept other things there before, or put them there since."""
    folder = Path(record.checkpoint_dir)
    rest = []
    if folder.parent == home.root / "checkpoints":
        remove_tree(folder)
    else:
        rest = [str(folder / name) for name in remove_own(folder)]
    remove_made(record)
    return rest


def remove_made(record: LocalRecord) -> None:
    """Remove the run's checkpoint folder and those above it, as far as the run made them and nothing is in them."""
    if record.made_folder is None:
        return
    folder, top = Path(record.checkpoint_dir), Path(record.made_folder)
    with contextlib.suppress(OSError):
        while folder.is_relative_to(top):
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()
            folder = folder.parent


def _notes(home: Home) -> list[tuple[Path, LocalRecord]]:
    """Notes of checkpoints that are still there; the others are forgotten."""
    kept = []
    for path in (home.root / "removed").glob("*.json"):
        record = read_value(path, LocalRecord)
        if record is None or path.name != f"{record.uid}.json" or path.stat().st_uid != os.getuid():
            continue
        if _place_of(record) is None:
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            kept.append((path, record))
    return kept


def _place_of(record: LocalRecord) -> str | None:
    if record.checkpoint_store is not None:
        return record.checkpoint_store
    try:
        return record.checkpoint_dir if os.listdir(record.checkpoint_dir) else None
    except OSError:
        return None
