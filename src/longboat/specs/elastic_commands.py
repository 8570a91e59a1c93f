"""Commands of elastic roles: torchrun's `--nnodes=2:8`, and counts that a command fixes by itself. Pure."""

from __future__ import annotations

import re
from typing import TypeGuard

from longboat.core.frameworks import mpirun_processes, torchrun_shape
from longboat.core.jobs import Command

_NNODES = re.compile(r"(?<!\S)--nnodes[= ]\s*[0-9]+:[0-9]+(?!\S)\s*")
_RANGE = re.compile(r"([0-9]{1,5}):([0-9]{1,5})")


def range_of_command(command: object) -> tuple[int, int] | None:
    """The numbers of nodes that a command's own torchrun names, `--nnodes=2:8`; None: none, or the same one twice."""
    bounds = _bounds(command)
    return bounds if bounds is not None and 0 < bounds[0] < bounds[1] else None


def impossible_range(command: object) -> str | None:
    """torchrun's range the wrong way round, `8:2`, or of no node; torchrun refuses it too."""
    bounds = _bounds(command)
    return None if bounds is None or 0 < bounds[0] <= bounds[1] else f"{bounds[0]}:{bounds[1]}"


def _bounds(command: object) -> tuple[int, int] | None:
    shape = torchrun_shape(command) if _is_command(command) else None
    match = _RANGE.fullmatch(shape.nodes) if shape is not None and shape.nodes is not None else None
    return (int(match[1]), int(match[2])) if match is not None else None


def without_range(command: Command) -> Command:
    """The command without torchrun's range: each attempt has a size, which torchrun reads from its variables."""
    if range_of_command(command) is None:
        return command
    if isinstance(command, str):
        return _NNODES.sub("", command, count=1)
    place = next(place for place, word in enumerate(command) if word.partition("=")[0] == "--nnodes")
    return command[:place] + command[place + (1 if "=" in command[place] else 2) :]


def fixed_count(command: object) -> str | None:
    """How a command fixes the number of nodes or processes by itself: `--nnodes 4`; None: it follows Longboat."""
    if not _is_command(command):
        return None
    shape = torchrun_shape(command)
    if shape is not None and shape.nodes is not None and range_of_command(command) is None:
        return f"--nnodes {shape.nodes}"
    processes = mpirun_processes(command)
    return None if processes is None else f"-np {processes}"


def _is_command(value: object) -> TypeGuard[Command]:
    """What was read of a file with mistakes may be none."""
    return isinstance(value, str) or (isinstance(value, tuple) and all(isinstance(word, str) for word in value))
