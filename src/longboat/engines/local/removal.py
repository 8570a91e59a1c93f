"""Removal of a run without a trace; checkpoints stay unless purged."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from longboat.bundles import durable
from longboat.core.errors import EngineError
from longboat.core.jobs import Value
from longboat.engines.lifecycle.resubmission import noted_code
from longboat.engines.local.left_checkpoints import note_left, purge_folder
from longboat.engines.local.queue.slots import discard_ticket
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.processes import kill_until_gone, marked
from longboat.engines.shared.files import disk, is_current, open_lock, remove_tree
from longboat.engines.shared.home import Home


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
        with contextlib.suppress(EngineError):
            record = files.record()
            uid = record.uid
            kill_until_gone(lambda: marked(uid))
            if record.containers is not None:
                from longboat.engines.local.containers.program import remove_containers

                remove_containers(record.containers, uid, os.environ)
        left = (
            LeftFiles(checkpoints=note_left(home, files, record)) if record is not None and not purge else LeftFiles()
        )
        with disk(f"remove {directory}"):
            discard_ticket(home, directory.name)
            directory.rename(trash)
            durable.sync_folder(str(directory.parent))  # what was removed does not come back
    finally:
        os.close(lock)
    if purge and record is not None:
        left = LeftFiles(foreign=purge_folder(home, record))
    remove_tree(trash)
    if is_last:
        collect_code(home)
    return left


def collect_code(home: Home) -> None:
    """Code that no run needs any more, and leftovers of removals that were interrupted."""
    from longboat.bundles.store import BundleStore

    runs = [RunFiles(home.runs / name) for name in home.run_names()]
    records = [files.stored_record() for files in runs if files.directory.is_dir()]
    # What a run with a damaged record needs is not known: nothing is collected until that run is removed.
    if None not in records:
        keep = {record.bundle for record in records if record is not None and record.bundle is not None}
        BundleStore(home.folder("bundles")).collect(keep | noted_code(home))
    for leftover in home.runs.glob(".gone-*"):
        remove_tree(leftover)
