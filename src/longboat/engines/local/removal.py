"""Removal of a run without a trace; checkpoints stay unless purged."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from longboat.bundles import durable
from longboat.core.errors import EngineError
from longboat.engines.lifecycle.resubmission import noted_code
from longboat.engines.local.queue.slots import discard_ticket
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.processes import kill_until_gone, marked
from longboat.engines.shared.code_snapshot import checkpoint_folder
from longboat.engines.shared.files import disk, is_current, open_lock, remove_tree
from longboat.engines.shared.home import Home
from longboat.storage.checkpoints import remove_own


def remove_run(home: Home, directory: Path, *, purge: bool, is_last: bool = True) -> list[str]:
    """The run has ended. Its name is free at once; its files follow. What a purge leaves, because it is not ours.

    `is_last`: no other is removed after it, and code that no run needs any more goes now.
    """
    files = RunFiles(directory)
    if not directory.is_dir():
        return []
    lock = open_lock(files.lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the supervisor may be about to leave
        if not is_current(lock, files.lock):
            return []  # somebody else has removed it meanwhile
        record: LocalRecord | None = None
        trash = directory.parent / f".gone-{os.urandom(6).hex()}"
        with contextlib.suppress(EngineError):
            record = files.record()
            uid = record.uid
            kill_until_gone(lambda: marked(uid))
            if record.containers is not None:
                from longboat.engines.local.containers.program import remove_containers

                remove_containers(record.containers, uid, os.environ)
        with disk(f"remove {directory}"):
            discard_ticket(home, directory.name)
            directory.rename(trash)
            durable.sync_folder(str(directory.parent))  # what was removed does not come back
    finally:
        os.close(lock)
    rest = _purge(record) if purge and record is not None else []
    remove_tree(trash)
    if is_last:
        collect_code(home)
    return rest


def _purge(record: LocalRecord) -> list[str]:
    """Remove the checkpoints; what stays. A folder in our own home is ours as a whole, one that the job names is not:
    its user may have kept other things there before, or put them there since."""
    folder = Path(record.checkpoint_dir)
    if checkpoint_folder(record.job) is None:
        remove_tree(folder)
        rest = []
    else:
        rest = [str(folder / name) for name in remove_own(folder)]
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
    return rest


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
