"""The values of a bundle: entries and the snapshot they make. The rules they keep are in `trees`, and offered here too.

Pure: nothing here reads a file. Taking a snapshot is in `snapshot`, keeping it in `store`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from longboat.bundles.trees import (
    DEFAULT_LIMITS,
    GIB,
    MAX_LINKS_FOLLOWED,
    MAX_NAME_BYTES,
    MAX_PATH_BYTES,
    TreeLimits,
    check_links,
    check_name,
    check_target,
    check_tree,
    is_hash,
    leaves_lexically,
    leaves_tree,
)
from longboat.core.guards.digests import sha256_of
from longboat.core.jobs import Value

__all__ = [
    "DEFAULT_LIMITS",
    "EMPTY_HASH",
    "GIB",
    "MAX_LINKS_FOLLOWED",
    "MAX_NAME_BYTES",
    "MAX_PATH_BYTES",
    "Entry",
    "TreeLimits",
    "CodeSnapshot",
    "check_links",
    "check_name",
    "check_target",
    "check_tree",
    "in_order",
    "is_hash",
    "leaves_lexically",
    "leaves_tree",
    "tree_hash",
]


class Entry(Value, frozen=True):
    path: str  # relative, separated by /
    kind: Literal["file", "link"] = "file"
    hash: str = ""  # sha256 of the content; of a file only
    size: int = 0
    executable: bool = False
    target: str = ""  # of a link only


class CodeSnapshot(Value, frozen=True):
    """A tree at one moment. `hash` covers paths, contents, executable bits and link targets, and nothing else."""

    hash: str
    entries: tuple[Entry, ...] = ()
    size: int = 0
    commit: str | None = None  # what git calls HEAD
    dirty: bool = False  # something here is not in that commit
    diff_hash: str | None = None  # object that holds the uncommitted changes
    warnings: tuple[str, ...] = ()
    outside: dict[str, str] = {}  # links that leave the tree, by path: where they lead on the machine it was taken on
    root: str = ""  # the folder it was taken of, on that machine

    @classmethod
    def empty(cls) -> CodeSnapshot:
        """The snapshot of a run with which no code travels."""
        return cls(hash=EMPTY_HASH)

    @property
    def objects(self) -> dict[str, int]:
        """Hash and size of every different content."""
        return {entry.hash: entry.size for entry in self.entries if entry.kind == "file"}


def tree_hash(entries: Iterable[Entry]) -> str:
    """The hash of a tree: entries by path, each field ended by a NUL, which no path holds."""
    parts = ["longboat tree 1\0"]
    for entry in entries:
        if entry.kind == "link":
            parts.append(f"link\0{entry.path}\0{entry.target}\0")
        else:
            parts.append(f"{'exec' if entry.executable else 'file'}\0{entry.path}\0{entry.hash}\0")
    return sha256_of("".join(parts).encode())


EMPTY_HASH = tree_hash(())


def in_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    # Code points sort as their UTF-8 bytes do, so no key has to be encoded.
    return tuple(sorted(entries, key=lambda entry: entry.path))
