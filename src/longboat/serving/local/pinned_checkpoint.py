"""The checkpoint of a service's version: chosen among those of a run, and pinned in a folder of the service.

The training may go on and remove old checkpoints, or the run be removed: what is served stays.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from longboat.core.errors import EngineError, NotFound
from longboat.core.words import listing
from longboat.engines.local.records import LocalRecord
from longboat.engines.shared.checkpoint_store import COMPLETE, submitters_variables
from longboat.engines.shared.files import copy, disk, make_folder, remove_tree
from longboat.engines.shared.home import Home
from longboat.storage.checkpoints import complete_steps


def pin_checkpoint(
    home: Home, record: LocalRecord, step: int | None, target: Path, environment: Mapping[str, str]
) -> tuple[int, Path]:
    """Put the run's checkpoint of this step, or its newest, into a folder. Raises NotFound."""
    complete = dict(complete_steps(Path(record.checkpoint_dir)))
    chosen = max(complete, default=None) if step is None else step
    remove_tree(target)  # what an update that was killed had begun
    make_folder(target)
    if chosen is not None and chosen in complete:
        pinned = target / f"step-{chosen}"
        if not _link_tree(complete[chosen], pinned):
            raise NotFound(
                f"the checkpoint {chosen} of {record.name} was removed or replaced this moment", hint="try again"
            )
        return chosen, pinned
    if record.checkpoint_store is not None:
        return _fetch(record.checkpoint_store, step, target, submitters_variables(home, record.job, environment))
    raise missing(record.name, step, sorted(complete), record.checkpoint_dir)


def missing(run: str, step: int | None, known: list[int], place: str) -> NotFound:
    if step is not None and known:
        return NotFound(
            f"{run} has no complete checkpoint of step {step}", hint=f"it has {listing(list(map(str, known)), 8)}"
        )
    return NotFound(
        f"{run} has no complete checkpoint in {place}", hint=f"{COMPLETE}; --no-checkpoint serves without one"
    )


def _fetch(url: str, step: int | None, target: Path, environment: Mapping[str, str]) -> tuple[int, Path]:
    from longboat.storage.checkpoint_mirror import Mirror

    mirror = Mirror(url, environment)
    names = dict(mirror.complete())
    chosen = max(names, default=None) if step is None else step
    path = mirror.fetch(names[chosen], target) if chosen is not None and chosen in names else None
    if chosen is None or path is None:
        raise missing("the run", step, sorted(names), url)
    return chosen, path


def _link_tree(source: Path, target: Path) -> bool:
    """The same files under another name, which costs no space; copied where the file system has no such links.

    A complete checkpoint is never written to: a newer one of the same step replaces the folder. It is renamed before
    its files are removed: a folder that is the same one afterwards was whole all the time. False: it is another one,
    or none.
    """
    stage = target.with_name(f".{target.name}.tmp")
    with disk(f"pin {source}"):
        before = os.stat(source)
        try:
            for parent, folders, files in os.walk(source, onerror=_raise):
                inside = stage / os.path.relpath(parent, source)
                inside.mkdir(parents=True, exist_ok=True)
                for name in [*files, *(name for name in folders if os.path.islink(os.path.join(parent, name)))]:
                    _link(Path(parent) / name, inside / name)
        except (OSError, EngineError):
            if _is_same(before, source):
                raise
        if not _is_same(before, source):
            remove_tree(stage)
            return False
        os.rename(stage, target)
    return True


def _raise(error: OSError) -> None:
    raise error


def _is_same(before: os.stat_result, source: Path) -> bool:
    try:
        return os.path.samestat(before, os.stat(source))
    except FileNotFoundError:
        return False


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        copy(source, target)
