"""The home folder: LONGBOAT_HOME, else ~/.longboat."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.engines.shared.files import disk, make_folder

_NAME = lazy_pattern(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LONGEST_FILE_NAME = 255  # as file systems have it: a longer one cannot be there, and asking for it is an error
NAME_LIMIT = 40  # leaves room for `-a0-worker-0` in a label of 63 characters
STEM_LIMIT = 32  # of a name that others are made of: leaves room for `-2`, `-r1-0`, ... within `NAME_LIMIT`


class Home:
    """The folders below the home. Each is made when it is first asked for."""

    def __init__(self, root: Path | None = None, *, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        if root is None:
            given = environment.get("LONGBOAT_HOME")
            root = Path(given) if given else Path(os.path.expanduser("~")) / ".longboat"
        self.root = Path(os.path.abspath(root))

    def folder(self, name: str) -> Path:
        return make_folder(self.root / name)

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run_dir(self, name: str) -> Path:
        """The folder of an existing run."""
        path = self.runs / name
        # No file system has longer names, and asked for one it does not say that there is none.
        if not _NAME.fullmatch(name) or len(name) > LONGEST_FILE_NAME or not path.is_dir():
            raise NotFound(f"no run named {name[:LONGEST_FILE_NAME]!r}", hint="`longboat ps -a` lists all runs")
        return path

    def run_names(self) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self.runs) if _NAME.fullmatch(entry.name)]
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            self._check_folders()
            return []

    def _check_folders(self) -> None:
        """Raises EngineError where a file is in the place of the home, or of a folder above it."""
        there = next(path for path in (self.runs, *self.runs.parents) if os.path.exists(path))
        if not os.path.isdir(there):
            raise EngineError(f"{there} is no folder", hint="set LONGBOAT_HOME to a folder of your own")

    def prepare(self) -> None:
        """Create the home; raises EngineError with the reason where it cannot be used."""
        self._check_folders()
        make_folder(self.root, is_durable=True)
        with disk(f"use {self.root}"):
            owner = self.root.stat().st_uid
        if owner != os.getuid() and os.getuid() != 0:
            raise EngineError(
                f"{self.root} belongs to another user (uid {owner})",
                hint="set LONGBOAT_HOME to a folder of your own",
            )
        make_folder(self.runs, is_durable=True)


def current_user() -> str:
    """The user name for records of runs submitted from here."""
    named = [os.environ[name] for name in ("LOGNAME", "USER", "LNAME", "USERNAME") if os.environ.get(name)]
    if named:
        return named[0]
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def numbered_names(base: str) -> Iterator[str]:
    """BASE, BASE-2, BASE-3, ..., cut to the length of run names."""
    for number in itertools.count(1):
        suffix = "" if number == 1 else f"-{number}"
        yield base[: NAME_LIMIT - len(suffix)].rstrip("-") + suffix


def check_run_id(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > NAME_LIMIT:
        raise UsageError(
            f"{name!r} is not a run name",
            hint=f"at most {NAME_LIMIT} characters: a-z, 0-9 and '-', starting with a letter",
        )
