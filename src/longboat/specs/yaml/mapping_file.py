"""Reads one YAML file that holds a mapping: job files, pools files. What is wrong with the file is told with its place.

Not what the mapping means. A file that is too large, no regular file, or no mapping is a mistake and nothing is read.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
from pathlib import Path
from typing import NamedTuple

from longboat.core.errors import NotFound
from longboat.specs.yaml.yaml_tree import Mistakes, SourcePosition, YamlNode

STDIN = "-"


class FileHints(NamedTuple):
    """What to do about a file that is empty or no mapping, is not there, is a folder."""

    empty: str
    missing: str | None = None
    folder: str | None = None


def read_mapping(path: Path, mistakes: Mistakes, hints: FileHints, *, here: Path | None = None) -> YamlNode | None:
    """None with the reason among the mistakes; NotFound where there is no file. `here`: what the path starts from."""
    from longboat.specs.yaml.yaml12 import MAX_FILE_BYTES

    name = shown_name(path)
    place = SourcePosition(name)
    try:
        if str(path) == STDIN:
            return _mapping(read_stdin(), name, mistakes, hints)
        with open(path if here is None else here / path, "rb", opener=open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                mistakes.add(place, "", "this is not a regular file")
                return None
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file", hint=hints.missing) from None
    except IsADirectoryError:
        mistakes.add(place, "", "this is a folder", hint=hints.folder)
        return None
    except (OSError, ValueError) as bad:
        mistakes.add(place, "", f"cannot be read: {getattr(bad, 'strerror', None) or 'the name is not valid'}")
        return None
    return _mapping(data, name, mistakes, hints)


def shown_name(path: Path) -> str:
    """What messages call a file."""
    return "stdin" if str(path) == STDIN else str(path)


@functools.cache
def read_stdin() -> bytes:
    """All of it, once: a job that is read a second time for its flags has the same text."""
    from longboat.specs.yaml.yaml12 import MAX_FILE_BYTES

    return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)


def _mapping(data: bytes, name: str, mistakes: Mistakes, hints: FileHints) -> YamlNode | None:
    from longboat.specs.yaml.yaml12 import parse_bytes

    node = parse_bytes(data, file=name, mistakes=mistakes)
    if node is not None and not isinstance(node.value, dict):
        problem = "the file is empty" if node.value is None else "found a list or a single value, expected a mapping"
        mistakes.add(node.place, "", problem, hint=hints.empty)
        return None
    return node


def open_at_once(path: str, flags: int) -> int:
    """A named pipe without a writer must not hang the command."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
