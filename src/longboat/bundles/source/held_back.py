"""Why a file of the folder is not in its snapshot: the rule that keeps it back, and what takes it along.

For messages: `scan` and `snapshot` decide, in the order in which the rules are asked here.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from longboat.bundles.source import git, secret_files
from longboat.bundles.source.ignore import IgnoreRules, Pattern, parse
from longboat.bundles.source.scan import IGNORE_FILE, NEVER, is_environment

Rule = Literal["never", "environment", "link", "exclude", "ignored", "git", "secret", "empty", "special"]

_DEEPEST = 3  # folders in a folder that are looked into for what keeps all of it back


class HeldBack(NamedTuple):
    path: str  # the file, or the whole folder that the rule keeps back
    rule: Rule
    reason: str  # which line or list says so, in words
    is_folder: bool


def travels(path: str, paths: Collection[str]) -> bool:
    """Whether a file, or something in a folder, is among the paths of a snapshot."""
    return path in paths or any(each.startswith(path + "/") for each in paths)


def held_back(root: str, path: str, *, exclude: Sequence[str] = ()) -> HeldBack | None:
    """What keeps this path behind; None where there is no such path, or no rule is known that does."""
    if not os.path.lexists(f"{root}/{path}"):
        return None
    parts = path.split("/")
    prefixes = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    return _by_place(root, prefixes) or _by_line(root, prefixes, exclude) or _by_itself(root, path, exclude)


def advice(held: HeldBack, *, is_cluster: bool) -> str:
    """What to write so that the run has it."""
    path = held.path if re.fullmatch(r"[\w./-]+", held.path) else json.dumps(held.path)
    if held.rule == "environment" and is_cluster:
        return "say `python`, in an image that has the packages or with `setup: pip install -r requirements.txt`"
    if held.rule == "environment":
        return "activate it before `longboat run`, and say `python`"
    if held.rule == "never":
        return "make it in `setup`"
    if held.rule == "empty":
        return f"make it in the script, or in `setup: mkdir -p {path}`"
    if held.rule == "special":
        return "make it in the script"
    if held.rule == "link":
        return f"mount what it leads to: `volumes: {{{path}: {{claim: NAME}}}}`"
    if held.rule == "exclude":
        return "drop that line of `exclude`"
    if held.rule == "secret":
        return f"`include: [{path}]` takes it along; values are safer in `secrets`"
    if not held.is_folder:
        return f"`include: [{path}]` takes it along"
    large = f"`volumes: {{{path}: ./{path}}}` shows the run the folder itself"
    if is_cluster:
        large = f"large data comes from a volume or by `data: [{{url: s3://BUCKET/NAME/, to: {path}}}]`"
    return f"`include: [{path}]` takes it along; {large}"


def _by_place(root: str, prefixes: Sequence[str]) -> HeldBack | None:
    """Folders that never travel, and what lies behind a link."""
    for prefix in prefixes:
        place, name = f"{root}/{prefix}", prefix.rpartition("/")[2]
        if name in NEVER:
            return HeldBack(prefix, "never", f"{name} never travels", os.path.isdir(place))
        if os.path.islink(place):
            return HeldBack(prefix, "link", f"it is a link to {os.path.realpath(place)}", os.path.isdir(place))
        if is_environment(place):
            return HeldBack(prefix, "environment", "virtual environments never travel", True)
    return None


def _by_line(root: str, prefixes: Sequence[str], exclude: Sequence[str]) -> HeldBack | None:
    """Lines of `exclude`, of .longboatignore and of git's ignore files."""
    path = prefixes[-1]
    is_folder = os.path.isdir(f"{root}/{path}")
    for pattern in exclude:
        if IgnoreRules.at_root([pattern]).leaves_out(path, is_folder=is_folder) is not None:
            return HeldBack(path, "exclude", f"`exclude` of the job has {pattern!r}", is_folder)
    line = IgnoreRules(lambda folder: _patterns(root, folder)).leaves_out(path, is_folder=is_folder)
    if line is not None:
        place = f"{line[0]}/{IGNORE_FILE}" if line[0] else IGNORE_FILE
        return HeldBack(path, "ignored", f"{place} has {line[1].text!r}", is_folder)
    ignored = git.ignored_by(root, prefixes) if git.in_repository(root) else None
    if ignored is not None:
        return HeldBack(ignored[0], "git", f"git ignores it by {ignored[1]}", os.path.isdir(f"{root}/{ignored[0]}"))
    return None


def _patterns(root: str, folder: str) -> Sequence[Pattern]:
    try:
        with open(f"{root}/{folder}/{IGNORE_FILE}", encoding="utf-8") as file:
            return parse(file.read())
    except (OSError, UnicodeDecodeError):
        return ()


def _by_itself(root: str, path: str, exclude: Sequence[str]) -> HeldBack | None:
    """Secrets, empty folders, pipes; of a folder, what keeps its first file back."""
    place = f"{root}/{path}"
    mode = os.lstat(place).st_mode
    if stat.S_ISDIR(mode):
        children = sorted(os.listdir(place))[:1] if os.access(place, os.R_OK) else []
        if not children:
            return HeldBack(path, "empty", "empty folders do not travel", True)
        inner = held_back(root, f"{path}/{children[0]}", exclude=exclude) if path.count("/") < _DEEPEST else None
        return None if inner is None else inner._replace(path=path, is_folder=True)
    if not stat.S_ISREG(mode):
        return HeldBack(path, "special", "it is a pipe, a socket or a device", False)
    if secret_files.named_like_one(path):
        return HeldBack(path, "secret", "its name is that of a secret", False)
    secret = _secret_in(place, path)
    return HeldBack(path, "secret", f"it holds {secret}", False) if secret else None


def _secret_in(place: str, path: str) -> str:
    try:
        with open(place, "rb") as file:
            return secret_files.found_in(path, file.read(secret_files.MAX_SCANNED_BYTES + 1))
    except OSError:
        return ""
