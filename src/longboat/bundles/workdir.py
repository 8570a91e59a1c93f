"""The working directory of a run: linking volumes, data and checkpoints into it, and finding artifacts in it.

Laying out the code is `checkout`, copying `merging`. Standard library only and Python >= 3.8: this file also travels
into pods, inside the launcher.
"""

from __future__ import annotations

import os

from longboat.core.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def link_into(work: str, target: str, source: str) -> None:
    """Make a folder appear in the working directory. Raises EngineError for what is in the way, OSError."""
    work = os.path.abspath(work)
    place = os.path.normpath(os.path.join(work, target))
    if not place.startswith(work + "/"):
        raise EngineError(f"{target} is outside of the working copy")
    parent = os.path.dirname(place)
    if not _is_inside(os.path.realpath(parent), os.path.realpath(work)):
        raise EngineError(f"{target} lies behind a link of the code")
    os.makedirs(parent, exist_ok=True)
    if os.path.isdir(place) and not os.path.islink(place) and not os.listdir(place):
        os.rmdir(place)
    if os.path.lexists(place):
        raise EngineError(
            f"{target} is part of the code and cannot be a volume, data or checkpoint folder too",
            hint=f"add {target} to .longboatignore",
        )
    os.symlink(source, place)


def place_in(folder: str, inside: str) -> str:
    """A path in a folder, which links in it may not lead out of. Raises EngineError."""
    place = os.path.normpath(os.path.join(folder, inside))
    if not _is_inside(os.path.realpath(place), os.path.realpath(folder)):
        raise EngineError(f"{place} lies outside of {folder}: a link there leads elsewhere")
    return place


def find_artifacts(work: str, patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What the patterns match: the real path, and the name relative to the working directory. Links out of it are left
    out: they are the run's own checkpoints, data, volumes."""
    root = os.path.realpath(work)
    for pattern in patterns:
        if os.path.isabs(pattern) or ".." in pattern.split("/"):
            continue
        import glob

        for match in glob.glob(os.path.join(glob.escape(root), pattern), recursive=True):
            real = os.path.realpath(match)
            if _is_inside(real, root):
                yield real, os.path.relpath(match, root)


def _is_inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
