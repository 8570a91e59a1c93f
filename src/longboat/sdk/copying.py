"""Targets of copies into and out of a run: `folder/` means into that folder, which is made if it is not there. Pure but
for a look whether it is."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

from longboat.core.errors import UsageError


def target_here(source: str, destination: str) -> Path:
    """Where a copy of a run's file goes on this machine."""
    name = posixpath.basename(posixpath.normpath(source))
    is_new = destination.endswith("/") and not os.path.isdir(destination)
    if is_new and os.path.lexists(destination.rstrip("/")):
        raise UsageError(f"{destination.rstrip('/')} is not a folder", hint="leave the slash at its end out")
    return Path(destination, name) if is_new and name not in ("", ".", "..") else Path(destination)


def target_in_run(source: Path, destination: str) -> str:
    """Where a copy of a file goes in the run. A folder is copied as it is said: whether it is merged depends on what is
    there."""
    is_into = destination.endswith("/") and source.is_file()
    return posixpath.join(destination, source.name) if is_into else destination
