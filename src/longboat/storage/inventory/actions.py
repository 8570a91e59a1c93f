"""Actions on single checkpoints of a run: fetch, remove, promote, verify. The same wherever they are."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from longboat.bundles.disk import errors_explained, remove_tree
from longboat.bundles.durable import sync_folder, sync_tree
from longboat.core.errors import EngineError, NotFound, Refused
from longboat.storage.inventory.entries import (
    CheckpointCheck,
    CheckpointEntry,
    CheckpointPlace,
    check_removable,
    choose,
    compared,
)
from longboat.storage.inventory.folder_scan import digest
from longboat.storage.retention import promoted_name


def get(place: CheckpointPlace, run: str, wanted: str, destination: Path) -> Path:
    """Copy a checkpoint to this machine: into `destination` if that is a folder, else under that name. It appears
    whole, and as it was written, or not at all."""
    entry = choose(place.entries(), wanted, run)
    target = destination / entry.name if destination.is_dir() else destination
    if os.path.lexists(target):
        raise Refused(f"{target} exists already", hint="name another folder, or remove it first")
    stage = target.parent / f".{target.name}.tmp-{os.getpid()}-{os.urandom(4).hex()}"
    with errors_explained(str(target)):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            place.fetch(entry, str(stage))
            check = compared(entry, place.marker(entry), digest(str(stage)))
            if check.problems:
                raise EngineError(
                    f"{entry.where} is damaged: {check.problems[0]}", hint=f"longboat checkpoint verify {run}"
                )
            sync_tree(str(stage))
            os.rename(stage, target)
            sync_folder(str(target.parent))
        finally:
            for leftover in (str(stage), f"{stage}.parts"):
                if os.path.lexists(leftover):
                    remove_tree(leftover)
    return target


def remove(
    place: CheckpointPlace, run: str, wanted: Sequence[str], *, is_final: bool, force: bool
) -> list[CheckpointEntry]:
    """Remove checkpoints by their steps; all of them are checked before the first goes."""
    entries = place.entries()
    chosen = list({entry.name: entry for entry in (choose(entries, each, run) for each in wanted)}.values())
    for entry in chosen if not force else ():
        check_removable(entry, run, is_final=is_final)
    for entry in chosen:
        place.remove(entry)
        if entry.promoted:
            place.mark(promoted_name(entry.step), None)
    return chosen


def promote(place: CheckpointPlace, run: str, wanted: str, *, undo: bool = False) -> CheckpointEntry:
    """Mark a checkpoint so that `keep` never removes it; or take the mark away."""
    entry = choose(place.entries(), wanted, run)
    place.mark(promoted_name(entry.step), None if undo else b'{"time": %d}\n' % time.time())
    # A policy may have removed it between the look and the mark.
    still_there = [each for each in place.entries() if each.complete and each.step == entry.step]
    if not still_there:
        place.mark(promoted_name(entry.step), None)
        raise NotFound(f"{entry.name} of {run} was removed meanwhile", hint=f"longboat checkpoint ls {run}")
    return still_there[0]


def verify(place: CheckpointPlace, run: str, wanted: str) -> list[CheckpointCheck]:
    """Read all of a checkpoint (without a step: of every complete one) and compare it with its marker."""
    entries = place.entries()
    chosen = [choose(entries, wanted, run)] if wanted else [entry for entry in entries if entry.complete]
    if not chosen:
        choose(entries, "newest", run)
    return [compared(entry, place.marker(entry), place.digest(entry)) for entry in chosen]
