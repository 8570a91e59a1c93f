"""Checkpoints of a store as an evaluator on another machine follows them: fetched one after the other, in the order of
their steps; what it tells of them is sent back, as objects beside them.

In the folder both are as they are where all share it (`launcher.following`). Standard library only and Python >= 3.8:
this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from longboat.storage import fences
from longboat.storage.checkpoint_mirror import identity
from longboat.storage.checkpoints import MARKER, complete_steps
from longboat.storage.data import remove_tree_if_there
from longboat.storage.retention import EVALUATED, evaluated_name

if TYPE_CHECKING:
    from longboat.storage.checkpoint_mirror import CheckpointCopy, Mirror

AHEAD = 2
"""So many are fetched before they are asked for: a pod's disk is no place for all of them."""
MOST = 1 << 20
"""Bytes of what is told of one."""


class Followed(NamedTuple):
    """What a look has found."""

    newest: int  # step of the newest complete one of the store; -1: there is none
    is_all: bool  # nothing of the store is left to be fetched
    is_new: bool  # one was fetched


def send_evaluations(mirror: Mirror, folder: Path, sent: dict[str, bytes]) -> None:
    """Send what was told of checkpoints since; `sent` is what the store has."""
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        if not EVALUATED.fullmatch(name):
            continue
        with open(folder / name, "rb") as file:
            data = file.read(MOST)
        if sent.get(name) != data:
            mirror.mark(name, data)
            sent[name] = data


def fetch_next(mirror: Mirror, folder: Path, *, after: int, newest_only: bool) -> Followed:
    """Fetch the next one after the step `after` that was not evaluated yet, unless enough of them are here."""
    contents, complete = mirror.inventory()
    for name in contents.marks:
        if EVALUATED.fullmatch(name) and not os.path.exists(folder / name):
            _write(folder / name, mirror.read(name) or b"")
    newest = complete[-1].step if complete else -1
    wanted = [copy for copy in (complete[-1:] if newest_only else complete) if copy.step > after]
    here = [step for step, _ in complete_steps(folder) if step > after]
    for copy in wanted:
        if identity(folder / copy.name) is not None or _is_evaluated(mirror, copy, folder):
            continue
        has_room = len(here) < (1 if newest_only else AHEAD)
        is_new = has_room and mirror.fetch(copy.name, folder) is not None
        return Followed(newest, False, is_new)  # there may be more, or another in its place
    return Followed(newest, True, False)


def _is_evaluated(mirror: Mirror, copy: CheckpointCopy, folder: Path) -> bool:
    try:
        with open(folder / evaluated_name(copy.step), "rb") as file:
            evaluation = file.read(MOST)
    except FileNotFoundError:
        return False
    return fences.is_evaluation_of(fences.read_marker(mirror.read(f"{copy.key}/{MARKER}") or b""), evaluation)


def _write(path: Path, data: bytes) -> None:
    with open(f"{path}.tmp", "wb") as file:
        file.write(data)
    os.replace(f"{path}.tmp", path)


def drop_before(folder: Path, step: int, kept: str | None) -> None:
    """Remove copies of steps before this one; `kept`: the one that the run resumed from."""
    for number, path in complete_steps(folder):
        if number < step and str(path) != kept:
            remove_tree_if_there(str(path))
