"""Removal of a run without a trace; checkpoints stay unless purged."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from longboat.bundles import durable
from longboat.core.errors import EngineError, LongboatError
from longboat.core.jobs import Value
from longboat.core.runs import PrunedItem, PruneQuery
from longboat.engines.lifecycle.kept_environment import forget_environment
from longboat.engines.lifecycle.resubmission import noted_code
from longboat.engines.local.queue.slots import discard_ticket
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_data import remove_made
from longboat.engines.local.supervise.processes import kill_until_gone, marked
from longboat.engines.local.supervise.spawn import forget_removed
from longboat.engines.shared.files import (
    disk,
    disk_use,
    is_current,
    open_lock,
    read_value,
    remove_abandoned,
    remove_tree,
    write_value,
)
from longboat.engines.shared.home import Home
from longboat.storage.checkpoints import remove_own


class LeftFiles(Value, frozen=True):
    """What is still there of a removed run."""

    checkpoints: str | None = None  # where they are
    foreign: list[str] = []  # what a purge leaves, because it is not ours


def remove_run(home: Home, directory: Path, *, purge: bool, is_last: bool = True) -> LeftFiles:
    """The run has ended. Its name is free at once; its files follow.

    `is_last`: no other is removed after it, and code that no run needs any more goes now.
    """
    files = RunFiles(directory)
    if not directory.is_dir():
        return LeftFiles()
    lock = open_lock(files.lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the supervisor may be about to leave
        if not is_current(lock, files.lock):
            return LeftFiles()  # somebody else has removed it meanwhile
        record: LocalRecord | None = None
        trash = directory.parent / f".gone-{os.urandom(6).hex()}"
        is_own = files.is_own()
        with contextlib.suppress(EngineError):
            record = files.record()
            uid = record.uid
            kill_until_gone(lambda: marked(uid))
            forget_environment(uid)
            if record.containers is not None:
                from longboat.engines.local.containers.program import remove_containers

                remove_containers(record.containers, uid, os.environ)
        # Of a purge too, until it is done: one that is killed on the way is finished by the next `rm --purge`.
        left = LeftFiles(checkpoints=_noted(home, files, record)) if record is not None else LeftFiles()
        with disk(f"remove {directory}"):
            discard_ticket(home, directory.name)
            directory.rename(trash)
            durable.sync_folder(str(directory.parent))  # what was removed does not come back
    finally:
        os.close(lock)
    if purge and record is not None:
        left = LeftFiles(foreign=purge_folder(home, record))
        if is_own:
            _note_of(home, record).unlink(missing_ok=True)
    remove_tree(trash)
    if is_last:
        collect_code(home)
    return left


def collect_code(home: Home) -> None:
    """Code that no run needs any more, and leftovers of commands that were killed."""
    from longboat.bundles.store import BundleStore

    runs = [RunFiles(home.runs / name) for name in home.run_names()]
    records = [record_if_readable(files) for files in runs if files.directory.is_dir()]
    # What a run with a damaged record needs is not known: nothing is collected until that run is removed.
    if None not in records:
        keep = {record.bundle for record in records if record is not None and record.bundle is not None}
        BundleStore(home.folder("bundles")).collect(keep | noted_code(home))
    remove_leftovers(home)
    for folder in ("runs", "sweeps", "services"):
        remove_abandoned(home.root / folder)


def record_if_readable(files: RunFiles) -> LocalRecord | None:
    """None also where it may not be read: root's, of a command with sudo."""
    try:
        return files.stored_record()
    except EngineError:
        return None


def remove_leftovers(home: Home) -> None:
    """Of removals that were killed, the names are free and the files were still there; and of those made by hand."""
    forget_removed()
    for leftover in [*home.runs.glob(".gone-*"), *(home.root / "sweeps").glob(".gone-*")]:
        with contextlib.suppress(EngineError):  # it was told when its run was removed
            remove_tree(leftover)


NOTES = "checkpoints/.removed"
"""Records of removed runs that left checkpoints: their names still lead to them (`--resume`, `rm --purge`)."""


def _noted(home: Home, files: RunFiles, record: LocalRecord) -> str | None:
    """Note what stays; where the disk is full, once the largest part of the run has made room for the note."""
    try:
        return note_left(home, files, record)
    except EngineError:
        remove_tree(files.directory / "attempts")
        return note_left(home, files, record)


def note_left(home: Home, files: RunFiles, record: LocalRecord) -> str | None:
    """The run is removed and its checkpoints stay: where they are; None where it has none.

    Of another user's run nothing is noted: his record names folders and endpoints."""
    place = _place_of(record)
    if place is None:
        _remove_empty(home, record)  # now: nothing would lead to it any more
    if place is not None and files.is_own():
        for draft in (home.root / NOTES).glob(f"{record.uid}.json.*.tmp"):
            draft.unlink(missing_ok=True)  # of a removal of this run that was killed: its lock is ours now
        write_value(_note_of(home, record), record, is_durable=True)
    return place


def _note_of(home: Home, record: LocalRecord) -> Path:
    return home.folder(NOTES) / f"{record.uid}.json"


def left_by(home: Home, run: str) -> LocalRecord | None:
    """Of the removed runs of this name, the one that was submitted last."""
    records = [record for _, record in _notes(home) if record.name == run]
    return max(records, key=lambda record: record.created, default=None)


def purge_store_of(home: Home, files: RunFiles, environment: Mapping[str, str]) -> None:
    """Checkpoints of a run in an object store. While they cannot be removed, the run stays."""
    try:
        record = files.record()
    except EngineError:
        return
    purge_store(home, record, environment, is_own=files.is_own())


def purge_store(home: Home, record: LocalRecord, environment: Mapping[str, str], *, is_own: bool) -> None:
    if record.checkpoint_store is None:
        return
    from longboat.engines.shared.checkpoint_store import callers_variables, purge, purge_for, submitters_variables

    if is_own:
        purge(record.checkpoint_store, submitters_variables(home, record.job, environment))
    else:
        purge_for(record.job, record.checkpoint_store, callers_variables(home, environment))


def purge_left(home: Home, run: str, environment: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Remove what all removed runs of this name left: whether there was anything, and what stays as it is not ours."""
    notes = [(path, record) for path, record in _notes(home) if record.name == run]
    rest = []
    for path, record in notes:
        purge_store(home, record, environment, is_own=True)
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


def _notes(home: Home) -> list[tuple[Path, LocalRecord]]:
    """Notes of checkpoints that are still there; the others are forgotten."""
    kept = []
    for path in (home.root / NOTES).glob("*.json"):
        record = read_value(path, LocalRecord)
        if record is None or path.name != f"{record.uid}.json" or path.stat().st_uid != os.getuid():
            continue
        if _place_of(record) is None:
            _remove_empty(home, record)
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            kept.append((path, record))
    return kept


def _remove_empty(home: Home, record: LocalRecord) -> None:
    """The folder of no checkpoint: there never was one, or a purge was killed before it had removed the folder too."""
    folder = Path(record.checkpoint_dir)
    if folder.parent == home.root / "checkpoints":
        with contextlib.suppress(OSError):
            folder.rmdir()


def _place_of(record: LocalRecord) -> str | None:
    if record.checkpoint_store is not None:
        return record.checkpoint_store
    try:
        return record.checkpoint_dir if os.listdir(record.checkpoint_dir) else None
    except OSError:
        return None
