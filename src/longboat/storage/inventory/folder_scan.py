"""Scan of a checkpoint folder, as plain JSON: what is in it, with markers, and the digests of one checkpoint.

A program too: its text is sent into pods and run there by `python3 -c`. Standard library only and Python >= 3.8, and
nothing else of Longboat. Nothing is decided or changed here.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MARKER = ".complete"
MARKER_MAX = 1 << 16  # as `launcher.following`: a marker is a line of JSON; more is none of ours
MARKS = (".attempt-", ".promoted-step-", ".metrics-step-")
MARK_MAX = 1 << 24
"""A fence names every checkpoint that it accepts."""
BLOCK = 1 << 20
SIGN_BYTES = 64 << 20
"""After so much a sign of life: whoever waits for the answer gives up on a program that is silent for minutes."""


def scan(folder: str) -> dict[str, Any]:
    """Folders named like checkpoints, finished or not, with size, number of files, time and marker; texts of marks."""
    folders: list[dict[str, Any]] = []
    marks: dict[str, str] = {}
    try:
        children = sorted(os.scandir(folder), key=lambda child: child.name)
    except (FileNotFoundError, NotADirectoryError):
        children = []
    for child in children:
        if child.name.startswith(MARKS) and child.is_file(follow_symlinks=False):
            marks[child.name] = read(child.path, MARK_MAX) or ""
        elif child.name.lstrip(".").startswith("step-") and child.is_dir(follow_symlinks=False):
            sizes = [size for _, size in files(child.path)]
            marker = os.path.join(child.path, MARKER)
            folders.append(
                {
                    "name": child.name,
                    "size": sum(sizes),
                    "files": len(sizes),
                    "time": time_of(marker) or time_of(child.path),
                    "marker": read(marker, MARKER_MAX),
                }
            )
    return {"folders": folders, "marks": marks}


def digest(folder: str, sign: Callable[[], object] = lambda: None) -> dict[str, list[Any]]:
    """Size and SHA-256 of every file of a checkpoint, by its path inside; all of it is read."""
    digests: dict[str, list[Any]] = {}
    unsigned = 0
    for path, _ in files(folder):
        total, state = 0, hashlib.sha256()
        with open(os.path.join(folder, path), "rb") as file:
            for block in iter(lambda: file.read(BLOCK), b""):
                state.update(block)
                total += len(block)
                unsigned += len(block)
                if unsigned >= SIGN_BYTES:
                    unsigned = 0
                    sign()
        digests[path] = [total, state.hexdigest()]
    return digests


def files(folder: str) -> list[tuple[str, int]]:
    """Files of a checkpoint with their sizes, sorted by path, the marker left out. What vanishes meanwhile is left out
    too."""
    listed = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            inside = os.path.relpath(path, folder)
            try:
                if inside != MARKER and os.path.isfile(path):
                    listed.append((inside, os.stat(path).st_size))
            except OSError:
                continue
    return sorted(listed)


def read(path: str, limit: int) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return None


def time_of(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def main(words: list[str]) -> None:
    """`scan FOLDER` or `digest FOLDER`; the answer on stdout. White space before it is a sign of life."""
    if words[0] == "digest":
        os.listdir(words[1])  # a checkpoint that is gone is not an empty one
        answer: Any = digest(words[1], lambda: print(flush=True))
    else:
        answer = scan(words[1])
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
