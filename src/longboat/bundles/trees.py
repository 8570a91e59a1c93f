"""Rules of a safe folder tree: names that stay inside, links that do not leave, sizes that may travel. Pure.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from longboat.core.errors import BundleError

GIB = 1 << 30
MAX_PATH_BYTES = 4000
"""Linux takes 4096, and the folder that the tree is laid out in comes before it."""
MAX_NAME_BYTES = 255
"""What Linux and macOS file systems take."""
MAX_LINKS_FOLLOWED = 40
"""As many as Linux follows."""


class TreeLimits(NamedTuple):
    """What may travel. The ratio counts only above `ratio_from`: small archives may well be dense."""

    max_bytes: int = 2 * GIB
    max_files: int = 100_000
    max_ratio: int = 500  # unpacked : packed
    ratio_from: int = 64 << 20


DEFAULT_LIMITS = TreeLimits()


class TreeEntry(Protocol):
    """What the rules ask of one file or link; `manifests.Entry` is one."""

    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def hash(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def target(self) -> str: ...


def is_hash(text: str) -> bool:
    return len(text) == 64 and all(char in "0123456789abcdef" for char in text)


def check_name(path: str) -> None:
    """Refuse a path that could leave the tree or cannot exist on every machine."""
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise BundleError(f"{path!r} is not a path inside the tree")
    try:
        length = len(path.encode())
        longest = max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        raise BundleError(f"{path!r} is not a name in UTF-8", hint="rename it or add it to .longboatignore") from None
    if length > MAX_PATH_BYTES or longest > MAX_NAME_BYTES:
        raise BundleError(f"{path[:100]!r}... is too long a path ({length} bytes)")


def leaves_tree(path: str, links: Mapping[str, str]) -> bool:
    """Whether following the link at `path` ever steps out of the tree, other links of the tree followed on the way."""
    place: list[str] = path.split("/")[:-1]
    todo = list(reversed(links[path].split("/")))
    if links[path].startswith("/"):
        return True
    followed = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not place:
                return True
            place.pop()
            continue
        place.append(part)
        target = links.get("/".join(place))
        if target is None:
            continue
        followed += 1
        if target.startswith("/"):
            return True
        if followed > MAX_LINKS_FOLLOWED:
            return False  # a loop: it leads nowhere, so it does not lead outside
        place.pop()
        todo.extend(reversed(target.split("/")))
    return False


def leaves_lexically(path: str, target: str) -> bool:
    """Whether the text alone of a link's target points out of the tree."""
    if target.startswith("/"):
        return True
    depth = path.count("/")
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False


def check_tree(entries: Iterable[TreeEntry]) -> None:
    """Refuse a manifest that could not come from a tree: odd or repeated names, a file below a file or a link, links
    that leave, hashes that are none. What a stranger sent is never written before this has passed."""
    seen: dict[str, TreeEntry] = {}
    for entry in entries:
        check_name(entry.path)
        if entry.path in seen:
            raise BundleError(f"{entry.path!r} occurs twice")
        if entry.kind == "file" and (not is_hash(entry.hash) or entry.size < 0):
            raise BundleError(f"{entry.path!r} has no valid hash")
        seen[entry.path] = entry
    folders: set[str] = set()
    for path in seen:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            if folder in seen:
                raise BundleError(f"{path!r} lies below {folder!r}, which is no folder")
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    links = {path: entry.target for path, entry in seen.items() if entry.kind == "link"}
    check_links(links)


def check_links(links: Mapping[str, str]) -> None:
    for path, target in links.items():
        check_target(path, target)
        if leaves_lexically(path, target) or leaves_tree(path, links):
            raise BundleError(f"the link {path!r} leaves the tree: {target!r}")


def check_target(path: str, target: str) -> None:
    try:
        length = len(target.encode())
    except UnicodeEncodeError:
        length = 0
    if not length or "\0" in target or length > MAX_PATH_BYTES:
        raise BundleError(f"the link {path!r} has a target that cannot be kept: {target[:100]!r}")
