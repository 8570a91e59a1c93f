"""The environment that a run was submitted in, kept in memory for a supervisor that takes over. Nothing of it is
written to a disk: it may have secrets. A restart of the machine takes it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping

from longboat.core.guards.lazy_pattern import lazy_pattern

FOLDER = "/dev/shm"
"""Files here are memory. Anybody may write into it: a file is believed for its owner and mode, not for being there."""

_UID = lazy_pattern(r"[0-9a-f]{12}")
_NAME = lazy_pattern(r"longboat-([0-9a-f]{12})\.environment")
_COMPLETE = b"complete"
"""The last entry, which is no variable: half a PATH would be worse than none."""
_MOST = 4 << 20
"""Twice what Linux passes to a program."""

SESSION = (
    "USER", "LOGNAME", "SHELL", "TERM", "LONGBOAT_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip
"""What is the same in every shell of a user, and is needed to run programs as this user."""


def keep_environment(uid: str, folder: str, environment: Mapping[str, str]) -> None:
    """Keep it for later supervisors of this run, whose files are in `folder`. Where it cannot be kept, they have what
    the record has."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(_path(uid), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb", buffering=0) as file:
            entries = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
            file.write(b"\0".join([os.fsencode(folder), *entries, _COMPLETE]))


def kept_environment(uid: str) -> dict[str, str] | None:
    """None where nothing is kept, or somebody else wrote it."""
    entries = _entries(uid)
    if entries is None:
        return None
    # The first one is the folder of the run; one of an earlier version has none.
    variables = entries[1:] if entries[0].startswith("/") else entries
    return {name: value for name, equals, value in (entry.partition("=") for entry in variables) if equals}


def kept_folders() -> Iterator[tuple[str, str]]:
    """Runs of this user that something is kept for: id and folder."""
    try:
        names = os.listdir(FOLDER)
    except OSError:
        return
    for match in map(_NAME.fullmatch, names):
        entries = _entries(match[1]) if match is not None else None
        if match is not None and entries is not None and entries[0].startswith("/"):
            yield match[1], entries[0]


def _entries(uid: str) -> list[str] | None:
    """What the file has, at least one entry; None where there is none of this user, or not all of it."""
    try:
        descriptor = os.open(_path(uid), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.geteuid()
            or status.st_mode & 0o077
            or status.st_nlink != 1
        ):
            return None
        content = file.read(_MOST)
    if content.rpartition(b"\0")[2] != _COMPLETE:  # memory was full, or whoever wrote it was killed
        return None
    return os.fsdecode(content).split("\0")


def forget_environment(uid: str) -> None:
    """The run has ended."""
    with contextlib.suppress(OSError, ValueError):
        os.unlink(_path(uid))


def session_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Of the environment of a command that looks at a run: what a supervisor may take of it."""
    return {name: environment[name] for name in SESSION if name in environment}


def _path(uid: str) -> str:
    if not _UID.fullmatch(uid):  # it is read from a file
        raise ValueError(uid)
    return f"{FOLDER}/longboat-{uid}.environment"
