"""Checkpoints in a folder: which are complete, and which may go. Writing them is the trainer's work, through
`longboat.checkpoint`.

A complete one is a folder `step-N` that holds a file `.complete`. Trainers write under another name
(`.step-N.aATTEMPT.NODE.RANDOM.tmp`, by hand `step-N.tmp-ANYTHING`) and rename at the end; whatever lacks name or marker
was never finished. What an older attempt completed after a newer one had started does not count (`fences`).
Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from longboat.bundles import durable
from longboat.bundles.disk import explain, remove_tree
from longboat.core.errors import EngineError
from longboat.storage import fences
from longboat.storage.fences import MARKER as MARKER
from longboat.storage.fences import MARKER_MAX, Fence, Marker
from longboat.storage.retention import (
    EVALUATED,
    Candidate,
    Retention,
    evaluated_name,
    kept_steps,
    promoted_name,
    promoted_steps,
    retention_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_STEP = re.compile(r"step-(\d{1,18})")
_UNFINISHED = re.compile(r"\.?step-(\d{1,18})(?:\.tmp-.*|\.(?:\d+|a(\d{1,9})\..*)\.tmp(?:\.old)?)?", re.DOTALL)
_REMOVED = ".removed-"
_FAILING = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of a storage or machine in trouble: what it has is not known, so it must not be taken for nothing."""
OWN_FOLDER = rf"{_UNFINISHED.pattern}|\.removed-step-.*"
_MARK = r"(?:\.attempt-\d{1,9}|\.promoted-step-\d{1,18}|\.metrics-step-\d{1,18}(?:\.tmp)?)"
OWN_FILE = rf"{_MARK}|\.tmp-{_MARK}-[0-9a-f]{{12}}"
"""Names that checkpoints, fences, marks of promoted ones and what is still being written have: all that is ours in a
folder that is the user's. As text, because `pod_program` is told them."""


def complete_steps(folder: Path) -> list[tuple[int, Path]]:
    """Step and folder of every complete checkpoint that counts, oldest first; none when there is no such folder."""
    return sorted((step, path) for step, path, _ in _counting(folder))


def newest_complete(folder: Path) -> Path | None:
    steps = complete_steps(folder)
    return steps[-1][1] if steps else None


def checkpoint_at(place: Path) -> Path | None:
    """What a run that is told this place resumes from: a complete checkpoint itself, or the newest in a folder."""
    if (place / MARKER).exists():
        return place
    return newest_complete(place) if place.is_dir() else None


def begin_attempt(folder: Path, attempt: int, uid: str) -> None:
    """Fence off the attempts before this one; before it looks for what to resume from. Raises Fenced, EngineError.

    The first attempt has nobody to fence off. Fences of another run that had this folder, and was removed without its
    checkpoints, hold back nobody any more: they would keep this run from saving anything.
    """
    if not folder.is_dir():
        return
    _forget_other_runs(folder, attempt, uid)
    if attempt <= 0:
        return
    fences.check(newest_attempt(folder), attempt)
    accepted = frozenset(_key(path, marker) for _, path, marker in _counting(folder))
    _write_durably(folder / fences.fence_name(attempt), fences.encode(Fence(attempt, accepted), uid))
    for name in _fence_names(folder):
        if (fences.newest_of([name]) or 0) < attempt:
            _unlink(folder / name)


def _forget_other_runs(folder: Path, attempt: int, uid: str) -> None:
    """Remove the fences of other runs, and before them what they fence off: that must not count again."""
    names = _fence_names(folder)
    others = [name for name in names if attempt <= 0 or not fences.is_of_run(_read(folder / name, 1 << 24) or b"", uid)]
    if not others:
        return
    fence = _newest_fence(folder) if len(others) == len(names) else None
    if fence is not None and fence.accepted:  # a damaged fence accepts nothing: by its word nothing is removed
        for _, path, _ in _marked(folder):
            if _is_fenced_off(path, fence):
                _set_aside(path, None)
    for name in others:
        _unlink(folder / name)


def newest_attempt(folder: Path) -> int | None:
    """The newest attempt that has put up its fence here."""
    return fences.newest_of(_fence_names(folder))


def forget_attempts(folder: Path) -> None:
    """Remove the fences of a folder in which there is nothing else: nobody checkpointed."""
    names = os.listdir(folder) if folder.is_dir() else []
    if names and all(fences.FENCE.fullmatch(name) for name in names):
        for name in names:
            _unlink(folder / name)


def remove_own(folder: Path) -> list[str]:
    """Remove every checkpoint and what belongs to them, then the folder if it is empty; the names of what stays: files
    that others put there. Raises EngineError."""
    try:
        children = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise explain(error, str(folder)) from error
    rest = []
    for child in children:
        if child.is_dir(follow_symlinks=False) and re.fullmatch(OWN_FOLDER, child.name, re.DOTALL):
            _remove(Path(child.path))
        elif child.is_file(follow_symlinks=False) and re.fullmatch(OWN_FILE, child.name):
            _unlink(Path(child.path))
        else:
            rest.append(child.name)
    if not rest:
        try:
            os.rmdir(folder)
        except OSError:
            pass  # somebody has put something there this moment, or removed it
    return sorted(rest)


def prune(folder: Path, keep: int | Retention, attempt: int | None = None) -> list[Path]:
    """Remove complete checkpoints that `keep` does not keep (a number: all but the newest so many; 0 keeps all), those
    that do not count, and what was never finished before the newest complete one; what was removed.

    An attempt that is fenced off removes nothing, and none removes what it, or a newer one, is writing; `attempt` None:
    nobody writes any more. A folder is renamed before it is removed: one that is half removed never looks complete.
    """
    for name in _folders(folder):
        if name.startswith(_REMOVED):
            _remove(folder / name)
    complete = sorted(_counting(folder))
    if not complete:
        return []
    superseded = _superseded(folder, complete, retention_of(keep))
    removed = [path for path in superseded if _set_aside(path, attempt, unless_promoted=True)]
    return removed + [path for path in _unfinished(folder, complete, attempt) if _set_aside(path, attempt)]


def kept_complete(folder: Path, keep: int | Retention) -> list[Path]:
    """Complete checkpoints that count and that `keep` keeps, oldest first."""
    complete = sorted(_counting(folder))
    surplus = set(_superseded(folder, complete, retention_of(keep)))
    return [path for _, path, _ in complete if path not in surplus]


def remove_one(folder: Path, name: str) -> bool:
    """Remove one checkpoint, complete or not, whoever is at work; whether it was there."""
    is_ours = re.fullmatch(OWN_FOLDER, name, re.DOTALL) is not None
    return is_ours and _set_aside(folder / name, None)


def write_mark(path: Path, data: bytes | None) -> None:
    """Write a file beside the checkpoints, durably; None removes it. Raises EngineError."""
    if data is None:
        _unlink(path)
    else:
        _write_durably(path, data)


def _superseded(folder: Path, complete: Sequence[tuple[int, Path, Marker]], keep: Retention) -> list[Path]:
    """Complete checkpoints that `keep` does not keep."""
    known, promoted = _candidates(folder, complete)
    kept = kept_steps(known, keep, promoted)
    return [path for step, path, _ in complete if step not in kept]


def candidates(folder: Path) -> tuple[list[Candidate], set[int]]:
    """Complete checkpoints that count, oldest first, and the steps of those that were promoted."""
    return _candidates(folder, sorted(_counting(folder)))


def _candidates(folder: Path, complete: Sequence[tuple[int, Path, Marker]]) -> tuple[list[Candidate], set[int]]:
    names = _names(folder)
    evaluations = {name: _read(folder / name) or b"" for name in names if EVALUATED.fullmatch(name)}
    known = [
        Candidate(step, _time_of(path, marker), fences.metrics_of(marker, evaluations.get(evaluated_name(step), b"")))
        for step, path, marker in complete
    ]
    return known, promoted_steps(names)


def _time_of(path: Path, marker: Marker) -> float:
    if marker.time is not None:
        return marker.time
    try:
        return os.stat(path / MARKER).st_mtime
    except OSError:
        return 0.0


def _unfinished(folder: Path, complete: Sequence[tuple[int, Path, Marker]], attempt: int | None) -> list[Path]:
    newest, fence = complete[-1][0], _newest_fence(folder)
    surplus = []
    finished = {path.name for _, path, _ in complete}
    for name in _folders(folder):
        match = _UNFINISHED.fullmatch(name)
        if not match or name in finished:
            continue
        by = int(match.group(2)) if match.group(2) else None
        if by is not None and attempt is not None and by >= attempt:
            continue  # being written, by this attempt or a newer one: a training may go back to earlier steps
        if int(match.group(1)) < newest or _is_fenced_off(folder / name, fence):
            surplus.append(folder / name)
    return surplus


def _is_fenced_off(path: Path, fence: Fence | None) -> bool:
    """Complete, and of no use: an older attempt went on after a newer one had started."""
    data = _read(path / MARKER) if _STEP.fullmatch(path.name) else None
    if data is None:
        return False
    marker = fences.read_marker(data)
    return not fences.counts(fence, _key(path, marker), marker.attempt)


def _counting(folder: Path) -> list[tuple[int, Path, Marker]]:
    fence = _newest_fence(folder)
    return [each for each in _marked(folder) if fences.counts(fence, _key(each[1], each[2]), each[2].attempt)]


def _marked(folder: Path) -> list[tuple[int, Path, Marker]]:
    """Every checkpoint with a marker, whether it counts or not."""
    marked = []
    for name in _folders(folder):
        match = _STEP.fullmatch(name)
        data = _read(folder / name / MARKER) if match else None
        if match and data is not None:
            marked.append((int(match.group(1)), folder / name, fences.read_marker(data)))
    return marked


def _key(path: Path, marker: Marker) -> str:
    return f"{path.name}:{marker.digest}"


def _newest_fence(folder: Path) -> Fence | None:
    newest = newest_attempt(folder)
    if newest is None:
        return None
    return fences.decode(newest, _read(folder / fences.fence_name(newest), 1 << 24) or b"")


def _fence_names(folder: Path) -> list[str]:
    return [name for name in _names(folder) if fences.FENCE.fullmatch(name)]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise explain(error, str(folder)) from error


def _read(path: Path, limit: int = MARKER_MAX) -> bytes | None:
    """The beginning of a plain file; None where there is none. Raises EngineError for a storage that fails."""
    try:
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError as error:
        if error.errno in _FAILING:
            raise explain(error, str(path)) from error
        return None


def _write_durably(path: Path, data: bytes) -> None:
    """On the disk, whole, before anybody relies on it."""
    try:
        temporary = f"{path.parent}/.tmp-{path.name}-{os.urandom(6).hex()}"
        durable.write_file(str(path), data, temporary=temporary, mode=0o644)
    except OSError as error:
        raise explain(error, str(path)) from error


def _unlink(path: Path) -> None:
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise explain(error, str(path)) from error


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


def _set_aside(path: Path, attempt: int | None, *, unless_promoted: bool = False) -> bool:
    """Remove a checkpoint, and its evaluation. The fence is checked again after the rename; a process that was
    suspended undoes it. So does one whose checkpoint was promoted since it was chosen: whoever promotes looks for the
    checkpoint after the mark."""
    fences.check(newest_attempt(path.parent), attempt)
    match = _STEP.fullmatch(path.name)
    promoted = path.parent / promoted_name(int(match.group(1))) if match and unless_promoted else None
    if promoted is not None and promoted.exists():
        return False
    aside = path.parent / f"{_REMOVED}{path.name}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        os.rename(path, aside)
        is_fenced = attempt is not None and (newest_attempt(path.parent) or 0) > attempt
        if is_fenced or (promoted is not None and promoted.exists()):
            os.rename(aside, path)
            return False
    except FileNotFoundError:
        return False  # another process was faster
    except OSError as error:
        raise explain(error, str(path)) from error
    if match:
        _forget_evaluation(path.parent / evaluated_name(int(match.group(1))), aside)
    _remove(aside)
    return True


def _forget_evaluation(evaluation: Path, aside: Path) -> None:
    """Of this checkpoint; that of another one of the same step stays."""
    marker = fences.read_marker(_read(aside / MARKER) or b"")
    if fences.is_evaluation_of(marker, _read(evaluation) or b""):
        _unlink(evaluation)


def _remove(path: Path) -> None:
    try:
        remove_tree(str(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, str(path)) from error


def files_of(folder: Path) -> dict[str, str]:
    """Files by their paths inside of the checkpoint, the marker left out. Links are followed, but not in circles."""
    files: dict[str, str] = {}
    _gather(str(folder), "", (), files)
    files.pop(MARKER, None)
    return files


def _gather(folder: str, inside: str, above: tuple[str, ...], files: dict[str, str]) -> None:
    real = os.path.realpath(folder)
    if real in above:
        return
    with os.scandir(folder) as children:
        for child in children:
            _check_name(child.path)
            if child.is_dir():
                _gather(child.path, f"{inside}{child.name}/", (*above, real), files)
            elif child.is_file():
                files[inside + child.name] = child.path


def _check_name(path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise EngineError(f"{path!r}: the name of the file is not UTF-8, and no name of an object") from None
