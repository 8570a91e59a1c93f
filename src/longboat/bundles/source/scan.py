"""The files that belong to a tree: git's answer or all files, less .longboatignore, plus and minus what the job says.

Sizes only; no content is read here. The order, strongest first: what never travels; files the job includes by their
path; the job's `exclude`; the job's `include`; `.longboatignore`; git.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence

from longboat.bundles.manifests import TreeLimits
from longboat.bundles.source import git
from longboat.bundles.source.ignore import IgnoreRules, Pattern, is_literal, literal_prefix, parse, parse_line
from longboat.bundles.source.limits import too_many
from longboat.core.errors import BundleError

IGNORE_FILE = ".longboatignore"
NEVER = frozenset((".git", ".longboat", "__pycache__", "node_modules", ".ipynb_checkpoints")) | {
    f".{tool}_cache" for tool in ("mypy", "pytest", "ruff")
}
"""Folders that never travel, whatever git says; virtual environments (with a pyvenv.cfg) neither."""

_SHOWN = 60  # characters of a path that is too long to be shown
_MAX_IGNORE_BYTES = 1 << 20  # a larger .gitignore is some other file
_SPECIAL = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device"}


class Scan:
    """One look at one tree. Afterwards `files` holds the stat of every file and link that belongs to it."""

    def __init__(
        self, root: str, *, include: Sequence[str] = (), exclude: Sequence[str] = (), limits: TreeLimits
    ) -> None:
        self.files: dict[str, os.stat_result] = {}
        self.warnings: list[str] = []
        self.untracked: list[str] = []
        self.by_name: set[str] = set()  # the job includes exactly these
        self.under_git = False
        self._root = root
        self._limits = limits
        self._folders = 0
        self._enterable: dict[str, bool] = {"": True}
        self._rules = IgnoreRules(self._read_patterns)
        self._excluded = IgnoreRules.at_root(exclude)
        self._find(include)

    def _find(self, include: Sequence[str]) -> None:
        patterns = [included for text in include if (included := self._include_by_name(text)) is not None]
        self.under_git = git.in_repository(self._root) and self._add_listing("")
        if not self.under_git:
            self._walk("", self._belongs, self._is_open)
        self._take_back()
        for pattern in patterns:
            self._include_pattern(pattern)

    def _add_listing(self, folder: str) -> bool:
        """Add what git lists in the repository at `folder`; False when git has nothing to say."""
        try:
            listing = git.listing(self._path(folder))
        except git.GitFailed as failure:
            if str(failure):
                self.warnings.append(f"{folder or '.'}: git cannot be asked, so all files are taken: {failure}")
            return False
        prefix = f"{folder}/" if folder else ""
        self.warnings += listing.warnings
        nested = [prefix + name for name in listing.repositories]
        for names, are_new in ((listing.tracked, False), (listing.untracked, True)):
            for name in names:
                nested += self._add_listed(prefix + name, are_new)
        for name in nested:
            self._add_repository(name)
        return True

    def _add_listed(self, path: str, is_new: bool) -> list[str]:
        """Add one path; the path itself comes back when it is a folder, so a repository of its own."""
        if not self._belongs(path) or path in self.files:
            return []
        try:
            info = os.lstat(f"{self._root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return []  # deleted, not yet committed
        except OSError as error:
            raise unreadable(path, error) from None
        if stat.S_ISDIR(info.st_mode):
            return [path]
        self._add(path, info)
        if is_new:
            self.untracked.append(path)
        return []

    def _add_repository(self, path: str) -> None:
        if not self._is_open(path):
            return
        if not os.path.lexists(f"{self._root}/{path}/.git"):
            self.warnings.append(f"{path}: this submodule is not checked out, so it is empty in the run")
        elif not self._add_listing(path):
            self._walk(path, self._belongs, self._is_open)

    def _read_patterns(self, folder: str) -> tuple[Pattern, ...]:
        place = f"{folder}/{IGNORE_FILE}" if folder else IGNORE_FILE
        try:
            with open(f"{self._root}/{place}", "rb") as file:
                return parse(file.read(_MAX_IGNORE_BYTES).decode())
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except UnicodeDecodeError:
            raise BundleError(f"{place}: this is not UTF-8", hint="save it as UTF-8") from None
        except OSError as error:
            is_there = os.path.lexists(f"{self._root}/{place}")  # if not, it is the folder that may not be entered
            raise unreadable(place if is_there else folder or ".", error) from None

    def _take_back(self) -> None:
        """Negated patterns also bring back what git ignores; entering folders may show further ones."""
        if not self.under_git:
            return
        done = 0
        while done < len(taken_back := self._rules.takes_back()):
            folder, pattern = taken_back[done]
            done += 1
            start = _start_of(pattern, folder)
            self._walk(start, lambda path: self._belongs(path) and self._rules.file(path) is True, self._is_open)

    def _include_by_name(self, text: str) -> Pattern | None:
        """Take in a file named by its path; a folder or a pattern comes back as a pattern."""
        name = text.removeprefix("./").rstrip("/")
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise BundleError(f"include: {text!r} is not a path inside the code's folder")
        if not is_literal(name):
            return parse_line(text.removeprefix("./"))
        try:
            info = os.lstat(self._path(name))
        except OSError:
            raise BundleError(f"include: there is no {text!r} in {self._root}") from None
        is_folder = stat.S_ISDIR(info.st_mode)
        if not self._may_enter(name if is_folder else name.rpartition("/")[0]):
            raise BundleError(f"include: {text!r} never travels", hint="docs/code.md lists what always stays behind")
        if is_folder:
            return parse_line("/" + name)
        self.by_name.add(name)
        self._add(name, info)
        return None

    def _include_pattern(self, pattern: Pattern) -> None:
        wanted = IgnoreRules(lambda folder: () if folder else (pattern,))
        before = len(self.files)

        def accepts(path: str) -> bool:
            # A match of the pattern reads as "left out" in an ignore file; here it means "taken in".
            return wanted.file(path) is False and self._excluded.file(path) is not False

        def enters(folder: str) -> bool:
            return self._may_enter(folder) and self._excluded.folder(folder) is not False

        self._walk(_start_of(pattern, ""), accepts, enters)
        if len(self.files) == before and not any(wanted.file(path) is False for path in self.files):
            self.warnings.append(f"include: {pattern.text!r} matches no file")

    def _walk(self, start: str, accepts: Callable[[str], bool], enters: Callable[[str], bool]) -> None:
        place = self._path(start)
        if start and (os.path.islink(place) or not os.path.isdir(place)):
            if os.path.lexists(place) and start not in self.files and accepts(start):
                self._add(start, os.lstat(place))
            return
        todo = [start] if not start or enters(start) else []
        while todo:
            folder = todo.pop()
            self._folders += 1
            if self._folders > 10 * self._limits.max_files:
                raise BundleError(f"{self._root} has too many folders to be code", hint="start in the project's folder")
            for path, child in self._children(folder):
                if child.is_dir(follow_symlinks=False):
                    if enters(path):
                        todo.append(path)
                elif path not in self.files and accepts(path):
                    try:
                        self._add(path, child.stat(follow_symlinks=False))
                    except FileNotFoundError:
                        continue  # gone in between

    def _children(self, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
        try:
            with os.scandir(self._path(folder)) as children:
                prefix = f"{folder}/" if folder else ""
                return [(prefix + child.name, child) for child in children]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(folder or ".", error) from None

    def _add(self, path: str, info: os.stat_result) -> None:
        special = _SPECIAL.get(stat.S_IFMT(info.st_mode))
        if special is not None:
            self.warnings.append(f"{path}: left out, it is {special}")
            return
        try:
            path.encode()
        except UnicodeEncodeError:
            raise git.not_utf8(os.fsencode(path)) from None
        self.files[path] = info
        if len(self.files) > self._limits.max_files:
            raise too_many({name: info.st_size for name, info in self.files.items()}, self._limits)

    def _belongs(self, path: str) -> bool:
        """Whether nothing keeps the path out."""
        folder, _, name = path.rpartition("/")
        if name == ".git" or not self._may_enter(folder):
            return False
        return self._excluded.file(path) is not False and self._rules.file(path) is not False

    def _is_open(self, folder: str) -> bool:
        if not self._may_enter(folder) or self._excluded.folder(folder) is False:
            return False
        return self._rules.folder(folder) is not False

    def _may_enter(self, folder: str) -> bool:
        """Whether a folder may travel at all: a real folder, none of those that never do, and so all above it."""
        unknown = []
        while folder not in self._enterable:
            unknown.append(folder)
            folder = folder.rpartition("/")[0]
        may_enter = self._enterable[folder]
        for folder in reversed(unknown):
            may_enter = may_enter and folder.rpartition("/")[2] not in NEVER and self._is_plain_folder(folder)
            self._enterable[folder] = may_enter
        return may_enter

    def _is_plain_folder(self, folder: str) -> bool:
        place = f"{self._root}/{folder}"
        try:
            return stat.S_ISDIR(os.lstat(place).st_mode) and not is_environment(place)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise unreadable(folder, error) from None

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def is_environment(folder: str) -> bool:
    """Whether this is a virtual environment of Python: it has paths of this machine in it."""
    return os.path.lexists(f"{folder}/pyvenv.cfg")


def _start_of(pattern: Pattern, folder: str) -> str:
    """The folder (or the file itself) below which all matches of a pattern lie."""
    if not pattern.anchored:
        return folder
    body = pattern.text.removeprefix("!").strip("/")
    start = body if is_literal(body) else literal_prefix(body).rpartition("/")[0]
    return "/".join(part for part in (folder, start) if part)


def unreadable(path: str, error: OSError) -> BundleError:
    hint = "make it readable, or add it to .longboatignore"
    if error.errno == errno.ENAMETOOLONG:
        path, hint = f"{path[:_SHOWN]}...", f"add {path.partition('/')[0]}/ to .longboatignore, or start further below"
    return BundleError(f"{path}: cannot be read: {error.strerror or error}", hint=hint)
