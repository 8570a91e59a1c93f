"""Removal of ended runs by age, and of environments and data that no run needs any more."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from longboat.core.errors import EngineError, LongboatError
from longboat.core.runs import FINAL_PHASES, PrunedItem, PruneQuery, RunStatus
from longboat.engines.lifecycle.pruning import expired
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.removal import collect_code, prune_left, record_if_readable, remove_run
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_data import data_name, load_code
from longboat.engines.local.supervise.environments import environment_name
from longboat.engines.shared.files import disk, disk_use, read_value, remove_tree
from longboat.engines.shared.home import Home

SHARED: tuple[tuple[Literal["environment", "data"], str], ...] = (("environment", "environments"), ("data", "data"))
"""What runs share, and the folder of the home that it is in."""


def prune(home: Home, runs: Sequence[RunStatus], query: PruneQuery) -> Iterator[PrunedItem]:
    gone = set()
    for run in expired(runs, query):
        directory = home.runs / run.name
        size = disk_use(directory)
        try:
            if not query.dry_run:
                remove_run(home, directory, purge=False, is_last=False)
        except EngineError as error:
            yield msgspec.structs.replace(run, problem=error.message)
            continue
        gone.add(run.name)
        yield msgspec.structs.replace(run, size=size)
    if not query.dry_run:
        collect_code(home)
    if set(query.phases) == set(FINAL_PHASES):  # who asks for failed runs means these alone
        yield from _prune_shared(home, query, gone)
    if query.checkpoints:
        yield from prune_left(home, query)


def _prune_shared(home: Home, query: PruneQuery, gone: set[str]) -> Iterator[PrunedItem]:
    for kind, folder in SHARED:
        needed = _needed(home, gone)
        if needed is None:
            return
        for path in sorted(_old(home.root / folder, query.ended_before)):
            if path.name in needed:
                continue
            size = disk_use(path)
            if query.dry_run or _remove_unneeded(home, path):
                yield PrunedItem(kind=kind, name=path.name, size=size)


def _old(folder: Path, before: float) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            kept = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            return [Path(entry.path) for entry in kept if entry.stat(follow_symlinks=False).st_mtime < before]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove_unneeded(home: Home, path: Path) -> bool:
    """A run may be submitted at this very moment: aside first, then looked at once more, then removed or put back."""
    aside = path.with_name(f".gone-{os.urandom(6).hex()}")
    with disk(f"remove {path}"):
        path.rename(aside)
        needed = _needed(home, set())
        if (needed is None or path.name in needed) and not path.exists():
            aside.rename(path)
            return False
    remove_tree(aside)
    return True


def _needed(home: Home, gone: set[str]) -> set[str] | None:
    """Names of the folders that runs use, ended ones too; None while that of one run cannot be known."""
    needed: set[str] = set()
    for name in home.run_names():
        files = RunFiles(home.runs / name)
        if name in gone:
            continue
        record = record_if_readable(files)
        if record is None:
            if files.directory.is_dir():
                return None
            continue
        try:
            needed |= _used_by(home, files, record)
        except LongboatError:
            return None
    return needed


def _used_by(home: Home, files: RunFiles, record: LocalRecord) -> set[str]:
    """Environments: the one that it noted when it began, and the one that it would begin with now."""
    names = {data_name(item) for item in record.job.data}
    if record.job.setup is not None:
        noted = read_value(files.environment, str)
        if noted is None and files.environment.exists():
            raise EngineError(f"{files.environment} is damaged")
        names |= {noted} if noted is not None else set()
        path = os.pathsep.join([record.environment.get("PATH", os.defpath), *record.path_append])
        environment = environment_name(record.job.setup, load_code(home, record), path=path)
        names |= {environment} if environment is not None else set()
    return names
