"""Checkpoints of a run of this machine, also of one that was removed and left them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from longboat.core.errors import NotFound
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.removal import left_by
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.checkpoint_store import callers_variables, submitters_variables
from longboat.engines.shared.home import Home
from longboat.storage.inventory.entries import CheckpointPlace
from longboat.storage.inventory.folder_place import FolderPlace


def open_place(home: Home, run: str, environment: Mapping[str, str]) -> CheckpointPlace:
    """Where its checkpoints are. Raises NotFound."""
    record, is_own = _record_of(home, run)
    if record.checkpoint_store is None:
        return FolderPlace(Path(record.checkpoint_dir))
    from longboat.storage.inventory.store_place import StorePlace

    # The variables of another user's job name files and endpoints: his credentials are his own affair.
    variables = submitters_variables(home, record.job, environment) if is_own else callers_variables(home, environment)
    return StorePlace(record.checkpoint_store, variables)


def _record_of(home: Home, run: str) -> tuple[LocalRecord, bool]:
    try:
        files = RunFiles(home.run_dir(run))
        return files.record(), files.is_own()
    except NotFound:
        record = left_by(home, run)
        if record is None:
            raise
        return record, True
