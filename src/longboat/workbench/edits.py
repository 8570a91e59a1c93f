"""Edits of a notebook or shell, brought back from the run's artifacts to the user's folder, of which nothing is lost.

What the run put aside says which contents each file had before (`launcher/workbench/edits`). A file of the folder that
is one of these is an older state and is replaced; any other content is a change of the user's own, and both are kept.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from longboat.core.errors import EngineError, LongboatError, NotFound
from longboat.core.guards.decoding import decode
from longboat.core.jobs import Value
from longboat.engines.engine import Engine
from longboat.engines.shared.files import disk, remove_tree, write_bytes

INDEX = "artifacts/edits/edits.json"
FILES = "artifacts/edits/files"
LARGEST = 64 << 20
"""Bytes of a file, and of the index: a run keeps no larger ones, and they are read whole here."""
MOST_TROUBLES = 3
"""So many files in a row that cannot be fetched are no matter of the files: the cluster is away."""
MOST_BESIDE = 20
"""Names beside a file that are tried; all of them taken by other contents means that something goes wrong."""
Action = Literal["write", "keep both", "nothing"]


class Edit(Value, frozen=True):
    sha256: str
    before: tuple[str, ...] = ()  # contents that the file had in the run before


class BroughtBack(Value, frozen=True):
    """Paths below the user's folder."""

    written: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()  # written under another name: the user changed the file too
    left: tuple[str, ...] = ()  # not brought back: just being saved again, or it cannot be written here


class NotBrought(Exception):
    """Why a file stays in the run; empty: the next look has it."""


def decide(edit: Edit, here: str | None) -> Action:
    """`here`: SHA-256 of the file in the user's folder; None: there is none."""
    if here == edit.sha256:
        return "nothing"
    return "write" if here is None or here in edit.before else "keep both"


def is_safe(path: str, folder: Path) -> bool:
    """Whether this path of a run's lies in the folder: the index is written by whoever runs there.

    No link is followed: one of the folder's own may lead into `.git`, where files are programs. Some file systems take
    `.GIT` for the same."""
    parts = path.split("/")
    if not path or "\0" in path or os.path.isabs(path) or os.path.normpath(path) != path:
        return False
    if ".." in parts or ".git" in map(str.lower, parts):
        return False
    parent = Path(os.path.realpath(folder), *parts[:-1])
    while not os.path.lexists(parent):
        parent = parent.parent
    return os.path.realpath(parent) == str(parent)


class EditsOfRun:
    """Brings edits back again and again; only what is new since the last time is fetched."""

    def __init__(self, engine: Engine, run: str, folder: Path) -> None:
        self._engine, self.run, self._folder = engine, run, folder
        self._done: dict[str, str] = {}
        self._reported: set[str] = set()

    def bring_back(self, report: Callable[[str], None]) -> BroughtBack:
        """Raises EngineError where the run's artifacts cannot be read. What cannot be written here is left, and
        reported once."""
        written: list[str] = []
        beside: list[str] = []
        left: list[str] = []
        troubles = 0
        with disk("bring edits back"), tempfile.TemporaryDirectory(prefix="longboat-edits-") as place:
            for path, edit in self._index(Path(place)).items():
                if self._done.get(path) == edit.sha256:
                    continue
                try:
                    target = self._bring(path, edit, Path(place))
                    troubles = 0
                except NotBrought as reason:
                    left.append(path)
                    self._report_left(path, str(reason), report)
                    continue
                except LongboatError:
                    left.append(path)
                    troubles += 1
                    if troubles == MOST_TROUBLES:
                        raise
                    continue
                self._done[path] = edit.sha256
                if target is not None:
                    (written if target == path else beside).append(target)
        for path in beside:
            report(f"{path} is how the run left it: the file was changed here too")
        return BroughtBack(written=tuple(written), beside=tuple(beside), left=tuple(left))

    def _report_left(self, path: str, reason: str, report: Callable[[str], None]) -> None:
        if reason and path not in self._reported:
            self._reported.add(path)
            report(f"{path} is not brought back: {reason}")

    def _bring(self, path: str, edit: Edit, place: Path) -> str | None:
        """The path that was written, None where nothing had to be. Raises NotBrought; LongboatError of the engine."""
        if not is_safe(path, self._folder):
            raise NotBrought("its path leads elsewhere")
        action = decide(edit, digest_of(self._folder / path))
        if action == "nothing":
            return None
        try:
            content = self._copy(f"{FILES}/{path}", place)
        except (OSError, ValueError) as error:
            raise NotBrought(reason_of(error)) from error
        if content is None or hashlib.sha256(content).hexdigest() != edit.sha256:
            raise NotBrought  # saved again meanwhile
        target = path if action == "write" else self._beside(path, edit)
        if target is None:
            return None
        try:
            write(self._folder / target, content, mode_of(self._folder / path))
        except (OSError, ValueError, EngineError) as error:
            raise NotBrought(reason_of(error)) from error
        return target

    def _beside(self, path: str, edit: Edit) -> str | None:
        """A name beside the user's file that is free, or holds an older state of this edit; None: it is there.

        Raises NotBrought."""
        for number in range(1, MOST_BESIDE + 1):
            target = f"{path}.{self.run}" if number == 1 else f"{path}.{self.run}.{number}"
            if not os.path.lexists(self._folder / target):
                return target
            action = decide(edit, digest_of(self._folder / target))
            if action != "keep both":
                return target if action == "write" else None
        raise NotBrought(f"{path}.{self.run} and {MOST_BESIDE - 1} more names are taken")

    def _index(self, place: Path) -> Mapping[str, Edit]:
        try:
            content = self._copy(INDEX, place)
            return {} if content is None else decode(content, dict[str, Edit])
        except NotBrought as reason:
            raise EngineError(f"the list of edits of {self.run}: {reason}", hint=by_hand(self.run)) from reason
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise EngineError(f"the list of edits of {self.run} is damaged", hint=by_hand(self.run)) from error

    def _copy(self, source: str, place: Path) -> bytes | None:
        """Its content; None: there is none. What is no file, or too large, raises NotBrought."""
        folder = Path(tempfile.mkdtemp(dir=place))  # of its own: the run may have put a folder or a link there
        try:
            with contextlib.suppress(NotFound):
                self._engine.copy_from(self.run, source, folder / "file")
                about = os.lstat(folder / "file")
                if not stat.S_ISREG(about.st_mode):
                    raise NotBrought("it is no file")
                if about.st_size > LARGEST:
                    raise NotBrought(f"it is larger than {LARGEST >> 20} MiB")
                return (folder / "file").read_bytes()
            return None
        finally:
            remove_tree(folder)


def digest_of(path: Path) -> str | None:
    try:
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            return ""  # nothing that the run has had, and nothing to replace
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def mode_of(path: Path) -> int | None:
    """Permissions of a file of the user's; None: there is none."""
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return stat.S_IMODE(about.st_mode) & 0o777 if stat.S_ISREG(about.st_mode) else None


def write(path: Path, content: bytes, mode: int | None) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # says of a parent what a reader takes for said of the file
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
    write_bytes(path, content)
    if mode is not None:
        path.chmod(mode)


def reason_of(error: Exception) -> str:
    if isinstance(error, LongboatError):
        return error.message
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def by_hand(run: str) -> str:
    return f"longboat cp {run}:artifacts/edits ."
