"""Taking the snapshot of a tree: what belongs to it, read once, kept in the store. Not the choice of files (`scan`)."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from longboat.bundles.manifests import (
    DEFAULT_LIMITS,
    CodeSnapshot,
    Entry,
    TreeLimits,
    check_target,
    in_order,
    leaves_lexically,
    tree_hash,
)
from longboat.bundles.parallel import for_each
from longboat.bundles.source import git, limits, secret_files
from longboat.bundles.source.reading import FileContent, read_into
from longboat.bundles.source.scan import Scan, unreadable
from longboat.bundles.source.statcache import StatCache
from longboat.bundles.store import BundleStore
from longboat.core.errors import BundleError
from longboat.core.guards.digests import sha256_of
from longboat.core.words import counted

__all__ = ["Entry", "TreeLimits", "CodeSnapshot", "take"]

_MOST_NAMED = 10  # files named in one notice
_PORTION = 32  # files that one thread reads before it looks whether another has failed
_MAX_UNTRACKED = 200  # names in the diff that is kept with a run; a data folder has thousands


def take(
    root: Path,
    store: BundleStore,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    limits: TreeLimits = DEFAULT_LIMITS,
) -> CodeSnapshot:
    """Keep the tree at `root` in the store and return it. A tree that is too large is refused before it is read."""
    place = os.path.realpath(root)
    if not os.path.isdir(place):
        raise BundleError(f"{root}: the code's folder is not a folder", hint="set `workdir` to the folder of your code")
    scan = Scan(place, include=include, exclude=exclude, limits=limits)
    return _Taking(place, store, scan, limits).run()


class _Taking:
    """One snapshot in the making."""

    def __init__(self, root: str, store: BundleStore, scan: Scan, most: TreeLimits) -> None:
        self._root = root
        self._store = store
        self._scan = scan
        self._most = most
        self._left_out: list[tuple[str, str]] = []
        self._warnings = scan.warnings
        self._outside: dict[str, str] = {}

    def run(self) -> CodeSnapshot:
        files = self._without_named_secrets()
        limits.check({path: info.st_size for path, info in files.items()}, self._most)
        links = [self._link(path) for path, info in files.items() if stat.S_ISLNK(info.st_mode)]
        with self._store.in_use():
            cache = StatCache(self._store, self._root)
            regular = [(path, info) for path, info in files.items() if stat.S_ISREG(info.st_mode)]
            read = self._files(regular, cache)
            entries = in_order((*(link for link in links if link is not None), *read))
            limits.check({entry.path: entry.size for entry in entries}, self._most)
            snapshot = self._snapshot(entries)
            self._store.save(snapshot)
            cache.save()  # after the contents were synced: what it names needs no sync again
        return snapshot

    def _without_named_secrets(self) -> dict[str, os.stat_result]:
        kept = {}
        for path, info in self._scan.files.items():
            if secret_files.named_like_one(path) and path not in self._scan.by_name and stat.S_ISREG(info.st_mode):
                self._left_out.append((path, "its name is that of a secret"))
            else:
                kept[path] = info
        return kept

    def _snapshot(self, entries: tuple[Entry, ...]) -> CodeSnapshot:
        paths = {entry.path for entry in entries}
        self._warn_of_links(entries, paths)
        self._warn_of_secrets()
        commit, dirty, diff = self._history(paths)
        diff_hash = sha256_of(diff) if diff else None
        if diff_hash is not None:
            self._store.put(diff, diff_hash)
        return CodeSnapshot(
            hash=tree_hash(entries),
            entries=entries,
            size=sum(entry.size for entry in entries),
            commit=commit,
            dirty=dirty,
            diff_hash=diff_hash,
            warnings=tuple(self._warnings),
            outside=self._outside,
            root=self._root,
        )

    def _history(self, paths: set[str]) -> tuple[str | None, bool, bytes]:
        """The commit, whether something is not in it, and the changes as a patch."""
        if not self._scan.under_git:
            return None, False, b""
        new = sorted(path for path in self._scan.untracked if path in paths)
        diff = b"".join(b"# not in git: " + path.encode() + b"\n" for path in new[:_MAX_UNTRACKED] if "\n" not in path)
        if len(new) > _MAX_UNTRACKED:
            diff += f"# not in git: {counted(len(new) - _MAX_UNTRACKED, 'more file')}\n".encode()
        try:
            commit = git.head(self._root)
            if commit is not None:
                diff += git.diff(self._root, lambda path: path in paths or self._is_gone_or_folder(path))
        except (git.GitFailed, OSError) as error:
            self._warnings.append(f"git cannot tell the uncommitted changes: {error}")
            return None, True, b""
        return commit, bool(diff) or commit is None, diff

    def _is_gone_or_folder(self, path: str) -> bool:
        place = f"{self._root}/{path}"
        return not os.path.lexists(place) or os.path.isdir(place)

    def _link(self, path: str) -> Entry | None:
        try:
            target = os.readlink(f"{self._root}/{path}")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(path, error) from None
        check_target(path, target)
        place = f"{self._root}/{path}"
        real = os.path.realpath(place)
        if not (real + "/").startswith(self._root.rstrip("/") + "/"):
            check_target(path, real)
            self._outside[path] = real
            return None
        if leaves_lexically(path, target):  # absolute, or out and in again: it would lead to the folder as it is later
            target = os.path.relpath(real, os.path.dirname(place))
        return Entry(path=path, kind="link", target=target)

    def _files(self, regular: Sequence[tuple[str, os.stat_result]], cache: StatCache) -> list[Entry]:
        contents = {path: self._known(path, info, cache) for path, info in regular}
        unread = [path for path, content in contents.items() if content is None]
        contents.update(self._read(unread))
        for path in unread:
            content = contents[path]
            if content is not None and content.is_steady:
                cache.put(path, content.found, content.hash, content.secret)
            elif content is not None:
                self._warnings.append(f"{path}: changed while it was read; the run gets what was read last")
        kept = ((path, content) for path, content in contents.items() if content and self._is_kept(path, content))
        return [_entry(path, content) for path, content in kept]

    def _known(self, path: str, info: os.stat_result, cache: StatCache) -> FileContent | None:
        """The content of a file that has not changed since it was kept; None: it has to be read."""
        known = cache.get(path, info)
        if known is None:
            return None
        hash, secret = known
        is_left_out = secret and path not in self._scan.by_name
        if not is_left_out and not self._store.has(hash, info.st_size, synced_until_ns=cache.synced_until_ns):
            return None
        return FileContent(hash, info.st_size, secret, info, is_steady=True)

    def _read(self, paths: Sequence[str]) -> dict[str, FileContent | None]:
        """By a few threads where waiting is most of the work: from a cold disk, or from one in a network."""
        contents: dict[str, FileContent | None] = {}

        def read(portion: Sequence[str]) -> None:
            for path in portion:
                is_wanted, most = path in self._scan.by_name, self._most.max_bytes
                contents[path] = read_into(self._store, self._root, path, keeps_secrets=is_wanted, most=most)

        for_each([paths[first : first + _PORTION] for first in range(0, len(paths), _PORTION)], read, if_slow=True)
        return contents

    def _is_kept(self, path: str, content: FileContent) -> bool:
        if not content.secret or path in self._scan.by_name:
            return True
        self._left_out.append((path, f"it holds {content.secret}"))
        return False

    def _warn_of_secrets(self) -> None:
        for path, reason in self._left_out[:_MOST_NAMED]:
            self._warnings.append(f"{path}: left out, {reason}; to take it along, name it: include: [{path}]")
        more = [path for path, _ in self._left_out[_MOST_NAMED:]]
        if more:
            self._warnings.append(f"{len(more)} more files are left out because they look like secrets: {more[0]}, ...")

    def _warn_of_links(self, entries: Sequence[Entry], paths: set[str]) -> None:
        """A link whose target stays behind leads nowhere in the run."""
        folders = {""}
        for path in paths:
            while (path := path.rpartition("/")[0]) not in folders:
                folders.add(path)
        for entry in entries:
            if entry.kind == "link":
                place = os.path.realpath(f"{self._root}/{entry.path}")
                target = os.path.relpath(place, self._root)
                if os.path.exists(place) and target != "." and target not in paths and target not in folders:
                    self._warnings.append(f"{entry.path}: this link points to {target}, which stays behind")


def _entry(path: str, content: FileContent) -> Entry:
    executable = bool(content.found.st_mode & stat.S_IXUSR)
    return Entry(path=path, hash=content.hash, size=content.size, executable=executable)
