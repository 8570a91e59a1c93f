"""Which checkpoints are complete, and which may go. Writing them is the trainer's work, through `longboat.checkpoint`.

A complete one is a folder `step-N` that holds a file `.complete`. Trainers write under another name
(`.step-N.<pid>.tmp`, `step-N.tmp-<pid>`) and rename at the end; whatever lacks name or marker was never finished.
Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from longboat.bundles.disk import explain, remove_tree
from longboat.core.errors import EngineError

MARKER = ".complete"
_STEP = re.compile(r"step-(\d{1,18})")
_UNFINISHED = re.compile(r"\.?step-(\d{1,18})(?:\.tmp-.*|\.\d+\.tmp(?:\.old)?)?")
_REMOVED = ".removed-"


def complete_steps(folder: Path) -> list[tuple[int, Path]]:
    """Step and folder of every complete checkpoint, oldest first; none when there is no such folder."""
    found = []
    for name in _folders(folder):
        match = _STEP.fullmatch(name)
        if match and os.path.isfile(folder / name / MARKER):
            found.append((int(match.group(1)), folder / name))
    return sorted(found)


def newest_complete(folder: Path) -> Path | None:
    steps = complete_steps(folder)
    return steps[-1][1] if steps else None


def prune(folder: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` complete checkpoints (0 keeps all) and what was never finished before the newest
    complete one; what was removed.

    A folder is renamed before it is removed: one that is half removed never looks complete.
    """
    for name in _folders(folder):
        if name.startswith(_REMOVED):
            _remove(folder / name)
    complete = complete_steps(folder)
    if not complete:
        return []
    newest = complete[-1][0]
    surplus = [path for _, path in complete[:-keep]] if keep > 0 else []
    finished = {path.name for _, path in complete}
    for name in _folders(folder):
        match = _UNFINISHED.fullmatch(name)
        if match and name not in finished and int(match.group(1)) < newest:
            surplus.append(folder / name)
    return [path for path in surplus if _set_aside(path)]


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as children:
            return sorted(child.name for child in children if child.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise EngineError(f"{folder}: checkpoints need a folder, this is a file") from None
    except OSError as error:
        raise explain(error, str(folder)) from error


def _set_aside(path: Path) -> bool:
    aside = path.parent / f"{_REMOVED}{path.name}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return False  # another process was faster
    except OSError as error:
        raise explain(error, str(path)) from error
    _remove(aside)
    return True


def _remove(path: Path) -> None:
    try:
        remove_tree(str(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, str(path)) from error
