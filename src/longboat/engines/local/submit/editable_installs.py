"""Editable installs of the project itself: folders that Python would import from where they are, not from the snapshot.

`pip install -e .` leaves a `.pth` file, or a finder, that leads to the project's own folder; PYTHONPATH may too. A run
must import the code that was submitted, also when that folder has changed since. So the same folders of the working
copy go onto the ranks' PYTHONPATH, which Python looks into before its installed packages.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.engines.shared.files import find_program

_MAPPING = lazy_pattern(r"^MAPPING\b[^=\n]*=\s*(\{.*\})\s*$", re.MULTILINE)
_IN_SETUP = lazy_pattern(r"(?:^|\s)(?:-e|--editable)(?:\s+|=)['\"]?([^\s'\"\[;&|]+)")
_MOST_BYTES = 1 << 20
"""Of a .pth file or a finder; they have a few hundred."""


def source_folders(
    root: str, setup: str | None, paths: Collection[str], environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Folders of the tree at `root`, relative, that the Python of this environment imports from; those of `paths`, the
    snapshot, only."""
    installed = [*_installed(environment), *_absolute(environment.get("PYTHONPATH", "").split(os.pathsep))]
    inside = [os.path.relpath(os.path.realpath(place), root) for place in installed]
    by_setup = [os.path.normpath(word) for word in _IN_SETUP.findall(setup or "")]
    wanted = [*inside, *(f"{place}/src" if _has(paths, f"{place}/src") else place for place in by_setup)]
    clean = dict.fromkeys(os.path.normpath(place) for place in wanted)
    return tuple(place for place in clean if not place.startswith(("..", "/")) and _has(paths, place))


def _has(paths: Collection[str], folder: str) -> bool:
    start = "" if os.path.normpath(folder) == "." else os.path.normpath(folder) + "/"
    return any(path.startswith(start) for path in paths)


def _absolute(entries: Iterable[str]) -> list[str]:
    return [entry for entry in entries if os.path.isabs(entry) and "\0" not in entry]


def _installed(environment: Mapping[str, str]) -> Iterator[str]:
    path = environment.get("PATH", os.defpath)
    python = find_program("python", path) or find_program("python3", path)
    prefixes = [os.path.dirname(os.path.dirname(python))] if python else []
    if environment.get("HOME"):
        prefixes.append(f"{environment['HOME']}/.local")
    for prefix in prefixes:
        for library in _children(f"{prefix}/lib"):
            if os.path.basename(library).startswith("python3"):
                for packages in (f"{library}/site-packages", f"{library}/dist-packages"):
                    yield from _editable_in(packages)


def _editable_in(packages: str) -> Iterator[str]:
    for file in _children(packages):
        if file.endswith(".pth"):
            yield from _absolute(line.strip() for line in _text(file).splitlines())
        elif file.endswith("_finder.py") and os.path.basename(file).startswith("__editable__"):
            yield from _absolute(mapped_parents(_text(file)))


def mapped_parents(finder: str) -> list[str]:
    """The folders that hold the packages of a setuptools finder, as far as they have their own names there."""
    match = _MAPPING.search(finder)
    try:
        mapping = ast.literal_eval(match[1]) if match else {}
        places = [place for name, place in mapping.items() if os.path.basename(place) == name]
    except (ValueError, SyntaxError, AttributeError, TypeError, MemoryError, RecursionError):  # deeply nested: the last
        return []
    return [os.path.dirname(place) for place in places if isinstance(place, str)]


def _children(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in sorted(os.listdir(folder))]
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return ""
