"""Checkpoints of one run below a URL of an object store: sent, kept to a number, fetched, removed.

Every sending has a prefix of its own, `step-N/aATTEMPT-TIME-RANDOM/`, and is complete with `.complete` in it: an object
that is written last and removed first, so that one that is half sent or half removed never looks complete, and no two
senders ever write to one prefix. Attempts are fenced as in a folder, by objects `.attempt-K` (`fences`). A checkpoint
right below `step-N/`, put there by hand or by an older version, is read as well.
Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from longboat.bundles.disk import explain
from longboat.bundles.durable import sync_folder, sync_tree
from longboat.core.errors import EngineError
from longboat.storage import fences, retention
from longboat.storage.checkpoints import MARKER, complete_steps, files_of
from longboat.storage.data import remove_tree_if_there
from longboat.storage.download_prefix import fetch_below
from longboat.storage.fences import Fence, Marker
from longboat.storage.retention import Candidate, Retention
from longboat.storage.stores.object_store import ObjectMissing
from longboat.storage.stores.registry import open_store
from longboat.storage.transfers import DEFAULT_TRANSFER, Transfer
from longboat.storage.urls import ObjectUrl, object_url

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

AT_ONCE = 8  # files: the latency of a request is hidden, and a store does not slow down
SMALL = 4 << 20
"""Files up to this size are sent a few at once; larger ones one after the other, for memory is the trainer's."""
FETCH_TRIES = 3
"""A checkpoint may be replaced while it is fetched; who replaces it every time writes faster than anybody can read."""
_OBJECT = re.compile(r"(step-(\d{1,18}))/(?:(a(\d{1,9})-[0-9a-f]{16}-[0-9a-f]{8})/)?(.+)", re.DOTALL)
_STEP = re.compile(r"step-\d{1,18}")


class Gone(Exception):
    """The checkpoint was removed or replaced while it was read."""


def identity(folder: Path) -> tuple[int, int, int] | None:
    """What tells a complete checkpoint from another of the same name that took its place; None: it is not complete."""
    try:
        info = os.stat(folder / MARKER)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return info.st_dev, info.st_ino, info.st_mtime_ns


class CheckpointCopy(NamedTuple):
    """One checkpoint as it was sent once: every sending has a folder of its own, which nobody else ever writes to."""

    step: int
    name: str  # step-N
    folder: str  # aATTEMPT-TIME-RANDOM; empty: right below step-N, put there by hand or by an older version
    attempt: int | None  # that sent it

    @property
    def key(self) -> str:
        return f"{self.name}/{self.folder}" if self.folder else self.name


class MirrorContents(NamedTuple):
    """What the store has at one moment."""

    copies: dict[CheckpointCopy, dict[str, int]]  # paths inside of each, and their sizes
    newest_attempt: int | None  # that has put up a fence
    marks: tuple[str, ...]  # names of fences, marks of promoted checkpoints, and what an evaluator told of one


class Mirror:
    """The checkpoints of one run in a store, as one attempt sees them. Every call raises EngineError.

    `attempt` None: whoever looks is no attempt of the run, and nothing that it does is fenced.
    """

    def __init__(
        self,
        url: str,
        environment: Mapping[str, str],
        transfer: Transfer = DEFAULT_TRANSFER,
        *,
        attempt: int | None = None,
    ) -> None:
        self.where: ObjectUrl = object_url(url.rstrip("/") + "/")
        self._environment = environment
        self._transfer = transfer
        self._store = open_store(self.where, environment, transfer)
        self._attempt = attempt
        self._begun: tuple[str, object, str] | None = None  # name, identity and folder of what was being sent
        self._markers: dict[CheckpointCopy, Marker] = {}  # that were read

    def url_of(self, name: str) -> str:
        return str(self.where._replace(key=self.where.key + name))

    def complete(self) -> list[tuple[int, str]]:
        """Step and name of every complete one that counts, oldest first."""
        return [(copy.step, copy.name) for copy in _best(self._counting(self._contents()))]

    def begin_attempt(self, attempt: int, uid: str) -> None:
        """Fence off the attempts before this one, before it looks for what to resume from. Raises Fenced."""
        if attempt <= 0:
            return
        contents = self._contents()
        fences.check(contents.newest_attempt, attempt)
        accepted = frozenset(copy.key for copy in self._counting(contents))
        self._store.put(self.where.key + fences.fence_name(attempt), fences.encode(Fence(attempt, accepted), uid))
        for name in contents.marks:
            if fences.FENCE.fullmatch(name) and name != fences.fence_name(attempt):
                self._store.remove(self.where.key + name)

    def _contents(self) -> MirrorContents:
        copies: dict[CheckpointCopy, dict[str, int]] = {}
        names = []
        for each in self._store.listed(self.where.key):
            path = each.key[len(self.where.key) :]
            match = _OBJECT.fullmatch(path)
            if match:
                name, step, folder, attempt, inside = match.groups()
                copy = CheckpointCopy(int(step), name, folder or "", int(attempt) if attempt else None)
                copies.setdefault(copy, {})[inside] = each.size
            elif any(mark.fullmatch(path) for mark in (fences.FENCE, retention.PROMOTED, retention.EVALUATED)):
                names.append(path)
        return MirrorContents(copies, fences.newest_of(names), tuple(names))

    def _counting(self, contents: MirrorContents) -> list[CheckpointCopy]:
        """Complete ones, less what older attempts sent after a newer one had started."""
        fence = None
        if contents.newest_attempt is not None:
            key = self.where.key + fences.fence_name(contents.newest_attempt)
            try:
                fence = fences.decode(contents.newest_attempt, self._store.ask("GET", key).body)
            except ObjectMissing:  # a newer one has taken its place this moment
                fence = Fence(contents.newest_attempt)
        complete = [copy for copy, paths in contents.copies.items() if MARKER in paths]
        return [copy for copy in complete if fences.counts(fence, copy.key, copy.attempt)]

    def send(self, folder: Path) -> None:
        """Send a complete checkpoint; its marker last. Raises Gone when it is not the same any more at the end, Fenced
        when a newer attempt has started."""
        before = identity(folder)
        if before is None:
            raise Gone(str(folder))
        sent = self._folder_for(folder.name, before)
        prefix = f"{self.where.key}{folder.name}/{sent}/"
        try:
            sizes = self._send_all(prefix, files_of(folder))
            there = {each.key[len(prefix) :]: each.size for each in self._store.listed(prefix)}
            if identity(folder) != before:
                raise Gone(str(folder))
            if there != sizes:
                raise EngineError(f"{self.url_of(folder.name)}: somebody else writes there at the same time")
            self._check_fence()
            self._send_one(prefix + MARKER, str(folder / MARKER))
        except FileNotFoundError:
            raise Gone(str(folder)) from None
        except OSError as error:
            raise EngineError(f"{error.filename or folder}: {error.strerror or error}") from None
        self._remove_earlier(folder.name, sent)

    def _folder_for(self, name: str, which: object) -> str:
        """A folder of its own for every checkpoint; the same one when its sending failed and is tried again."""
        if self._begun is None or self._begun[:2] != (name, which):
            folder = f"a{self._attempt or 0}-{time.time_ns():016x}-{os.urandom(4).hex()}"
            self._begun = (name, which, folder)
        return self._begun[2]

    def _check_fence(self) -> None:
        if self._attempt is not None:
            names = [each.key[len(self.where.key) :] for each in self._store.listed(self.where.key + ".attempt-")]
            fences.check(fences.newest_of(names), self._attempt)

    def _remove_earlier(self, name: str, sent: str) -> None:
        """What the checkpoint that was just sent takes the place of; nothing of a newer attempt, nor of what that one
        has accepted: whoever was asleep before its marker has sent what does not count. Raises Fenced."""
        contents = self._contents()
        fences.check(contents.newest_attempt, self._attempt)
        for copy, paths in contents.copies.items():
            if copy.name == name and copy.folder != sent and self._may_remove(copy):
                self._remove(copy, paths)

    def _may_remove(self, copy: CheckpointCopy) -> bool:
        return self._attempt is None or copy.attempt is None or copy.attempt <= self._attempt

    def _send_all(self, prefix: str, files: Mapping[str, str]) -> dict[str, int]:
        small = sorted(path for path, place in files.items() if os.stat(place).st_size <= SMALL)
        sizes: dict[str, int] = {}
        for path in sorted(files.keys() - set(small)):
            sizes[path] = self._send_one(prefix + path, files[path])
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            sent = pool.map(lambda path: (path, self._send_one(prefix + path, files[path])), small)
            sizes.update(sent)
        return sizes

    def _send_one(self, key: str, path: str) -> int:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._store.write(key, file, size)
        return size

    def prune(self, keep: int | Retention) -> list[str]:
        """Remove complete ones that `keep` does not keep (a number: all but the newest so many; 0 keeps all), those
        that do not count, and what was never finished before the newest; names of what was removed. The newest complete
        one stays, and all of newer attempts."""
        contents = self._contents()
        fences.check(contents.newest_attempt, self._attempt)
        best = _best(self._counting(contents))
        if not best:
            return []
        kept = self._kept(best, retention.retention_of(keep), contents.marks)
        newest = best[-1].step
        doomed = [
            copy
            for copy, paths in contents.copies.items()
            if copy not in kept and self._may_remove(copy) and (MARKER in paths or copy.step < newest)
        ]
        removed = [copy for copy in doomed if self._remove(copy, contents.copies[copy], unless_promoted=copy in best)]
        for name in {retention.evaluated_name(copy.step) for copy in removed if copy in best} & set(contents.marks):
            self._store.remove(self.where.key + name)
        return list(dict.fromkeys(copy.name for copy in removed))

    def _kept(self, best: list[CheckpointCopy], rule: Retention, marks: Collection[str]) -> set[CheckpointCopy]:
        """Markers are read only for a policy that asks for their metrics or times, and each of them once."""
        candidates = [Candidate(copy.step) for copy in best]
        if rule.last > 0 and (rule.best > 0 or rule.every_s > 0):
            candidates = self._candidates(best, marks, with_metrics=rule.best > 0)
        steps = retention.kept_steps(candidates, rule, retention.promoted_steps(marks))
        return {copy for copy in best if copy.step in steps}

    def _candidates(self, best: list[CheckpointCopy], marks: Collection[str], *, with_metrics: bool) -> list[Candidate]:
        for copy in best:
            if copy not in self._markers:
                self._markers[copy] = fences.read_marker(self.read(f"{copy.key}/{MARKER}") or b"")
        names = {copy: retention.evaluated_name(copy.step) for copy in best if with_metrics}
        evaluations = {copy: self.read(name) or b"" for copy, name in names.items() if name in marks}
        markers = [(copy, self._markers[copy]) for copy in best]
        return [
            Candidate(copy.step, mark.time or 0.0, fences.metrics_of(mark, evaluations.get(copy, b"")))
            for copy, mark in markers
        ]

    def remove_all(self) -> int:
        """Everything of the run; how many checkpoints that were complete."""
        contents = self._contents()
        count = len(_best(self._counting(contents)))
        for copy, paths in contents.copies.items():
            self._remove(copy, paths)
        for name in contents.marks:
            self._store.remove(self.where.key + name)
        return count

    # for whoever looks at them one by one

    def inventory(self) -> tuple[MirrorContents, list[CheckpointCopy]]:
        """All that the store has, and of it those that are complete and count, one for each step."""
        contents = self._contents()
        return contents, _best(self._counting(contents))

    def candidates(self, *, most_read: int) -> tuple[list[Candidate], set[int]]:
        """Complete checkpoints that count, oldest first, and the steps of those that were promoted. Markers of the
        newest are read, each by a request; only these have metrics."""
        contents, best = self.inventory()
        names, first = contents.marks, max(len(best) - most_read, 0)
        known = [Candidate(copy.step) for copy in best[:first]]
        known += self._candidates(best[first:], names, with_metrics=True)
        return known, retention.promoted_steps(names)

    def read(self, path: str) -> bytes | None:
        """A small object below the run's prefix; None: there is none."""
        try:
            return self._store.ask("GET", self.where.key + path).body
        except ObjectMissing:
            return None

    def mark(self, name: str, data: bytes | None) -> None:
        """Write a mark beside the checkpoints; None removes it."""
        if data is None:
            self._store.remove(self.where.key + name)
        else:
            self._store.put(self.where.key + name, data)

    def remove(self, step: int) -> bool:
        """Remove a checkpoint with all its copies; whether there was one."""
        contents = self._contents()
        removed = [self._remove(copy, paths) for copy, paths in contents.copies.items() if copy.step == step]
        if (name := retention.evaluated_name(step)) in contents.marks:
            self._store.remove(self.where.key + name)
        return bool(removed)

    def _remove(self, copy: CheckpointCopy, paths: Iterable[str], *, unless_promoted: bool = False) -> bool:
        """Whether it was: one that was promoted since it was chosen stays, as whoever promoted it looks for it then."""
        rest, prefix = list(paths), f"{self.where.key}{copy.key}/"
        promoted = self.where.key + retention.promoted_name(copy.step)
        marker = self.read(f"{copy.key}/{MARKER}") if unless_promoted else None
        if marker is not None and self._store.look(promoted):
            return False
        if MARKER in rest:
            self._store.remove(prefix + MARKER)
            rest.remove(MARKER)
        if marker is not None and self._store.look(promoted):
            self._store.put(prefix + MARKER, marker)
            return False
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            list(pool.map(lambda path: self._store.remove(prefix + path), rest))
        return True

    def fetch_newest(self, folder: Path) -> Path | None:
        """See that the newest complete one is in the folder, unless the folder has a newer one; None: there is none.

        One that is removed meanwhile is passed over: the next newest takes its place.
        """
        own = complete_steps(folder)
        for copy in reversed(_best(self._counting(self._contents()))):
            if own and own[-1][0] >= copy.step:
                break
            path = self._fetch(copy, folder)
            if path is not None:
                return path
        return own[-1][1] if own else None

    def fetch(self, name: str, folder: Path) -> Path | None:
        """Bring one into the folder, under another name until all of it is there; None: there is none any more."""
        for _ in range(FETCH_TRIES):
            copies = [copy for copy in _best(self._counting(self._contents())) if copy.name == name]
            path = self._fetch(copies[0], folder) if copies else None
            if path is not None or not copies:
                return path
        return None

    def _fetch(self, copy: CheckpointCopy, folder: Path) -> Path | None:
        where = self.where._replace(key=f"{self.where.key}{copy.key}/")
        parts, stage = str(folder / f".{copy.name}.tmp-parts"), str(folder / f".{copy.name}.tmp-fetched")
        os.makedirs(folder, exist_ok=True)
        remove_tree_if_there(stage)
        try:
            fetch_below(where, parts, stage, self._environment, self._transfer)
            failure = None
        except EngineError as error:
            failure = error
        # The marker is removed first: while it is there, all that was listed was all of it.
        is_there = self._store.look(where.key + MARKER) is not None
        if not is_there or (failure is None and not os.path.isfile(f"{stage}/{MARKER}")):
            remove_tree_if_there(stage)
            remove_tree_if_there(parts)
            return None
        if failure is not None:
            raise failure
        remove_tree_if_there(parts)
        target = folder / copy.name
        if identity(target) is None:
            _publish(stage, target)
        else:
            remove_tree_if_there(stage)
        return target


def _publish(stage: str, target: Path) -> None:
    """Bytes to the disk before the name: after a loss of power, what looks complete is."""
    try:
        sync_tree(stage)
        remove_tree_if_there(str(target))
        os.rename(stage, target)
        sync_folder(str(target.parent))
    except OSError as error:
        raise explain(error, str(target)) from error


def _best(copies: Iterable[CheckpointCopy]) -> list[CheckpointCopy]:
    """One for each step: that of the newest attempt, and of these the latest. Oldest step first."""
    checkpoint_copies: dict[int, CheckpointCopy] = {}
    for copy in sorted(copies, key=lambda each: (each.step, -1 if each.attempt is None else each.attempt, each.folder)):
        checkpoint_copies[copy.step] = copy
    return list(checkpoint_copies.values())


def fetch_checkpoint(url: str, folder: Path, environment: Mapping[str, str]) -> Path | None:
    """The one that a URL itself means, or the newest complete one below it. Raises EngineError."""
    parent, _, name = url.rstrip("/").rpartition("/")
    if _STEP.fullmatch(name) and parent.count("/") > 1:
        path = Mirror(parent, environment).fetch(name, folder)
        if path is not None:
            return path
    return Mirror(url, environment).fetch_newest(folder)
