"""Log lines that a pod's log no longer has, from their copies: the node's files, the run's storage, the record.

The launcher writes every rank's output to files of its own. While a pod lives they are read in it by exec; what was
copied to the run's storage at the end is read by a helper pod; else the record may have the last lines. Whoever asks
gets the lines, or one line that says how many are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from longboat.core.errors import LongboatError, NotFound
from longboat.engines.kubernetes.logs.lines import FOREIGN, LogGap, Parser, PodLine, place_of, split_key, take
from longboat.engines.kubernetes.logs.spool import append
from longboat.engines.kubernetes.manifests.volumes import NODE, STORAGE
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.shared.logfiles import Reader, Source
from longboat.kubeapi.errors import Unreachable

TRIES = 5  # each goes on where the one before broke off


class FileReader(Protocol):
    """A pod in which files can be read: one of the run's, or a helper pod."""

    def cat(self, path: str, offset: int = 0) -> Iterator[bytes]:
        """A file from a byte on. Raises NotFound."""

    def names(self, path: str) -> list[str]:
        """Entries of a folder. Raises NotFound."""


class LogCopies:
    """Copies here of one node's log files, extended when more of them is asked for."""

    def __init__(self, folder: Path, reach: FileReader, place: str) -> None:
        self.folder = folder
        self._reach = reach
        self._place = place

    def streams(self) -> list[str]:
        return [name for name in self._reach.names(self._place) if not name.endswith(".idx") and is_log(name)]

    def lines(self, key: str, first: int, missing: int | None, *, is_over: bool = False) -> Iterator[PodLine]:
        """Lines `first` and so many after it; None: all. `is_over`: nobody writes any more, half a line is a line."""
        # The index last: bytes without a time are worse than times without bytes.
        for name in (key, f"{key}.idx"):
            self._extend(name)
        rank, stream = place_of(key)
        source = Source(path=str(self.folder / key), role="", node="", rank=rank, stream=stream, attempt=0)
        for seq, line in enumerate(Reader(source).lines(is_last=is_over)):
            if missing is not None and seq >= first + missing:
                return
            if seq >= first:
                yield PodLine(key, seq, line.time, line.data)

    def _extend(self, name: str) -> None:
        path = self.folder / name
        for left in reversed(range(TRIES)):
            have = path.stat().st_size if path.exists() else 0
            try:
                for block in self._reach.cat(f"{self._place}/{name}", have):
                    append(path, block)
                return
            except Unreachable:
                if not left:
                    raise


def is_log(name: str) -> bool:
    stem, _, stream = split_key(name)[0].partition(".")
    return (stem.isdecimal() or stem in ("setup", "node")) and stream in ("out", "err")


class LogSources:
    """The other sources of one run's logs. `helper_pod` makes one when it is first needed; safe for several threads."""

    def __init__(
        self,
        record: Record,
        folder: Path,
        *,
        in_pod: Callable[[str], FileReader],
        helper_pod: Callable[[], FileReader] | None,
    ) -> None:
        self._record = record
        self._folder = folder
        self._in_pod = in_pod
        self._make_helper_pod = helper_pod if record.storage is not None else None
        self._helper_pod: FileReader | None = None
        self._lock = threading.Lock()

    def of_pod(self, attempt: int, node: str, pod: str) -> LogCopies:
        """From the files in a pod that lives."""
        return LogCopies(self._room(attempt, node, "pod"), self._in_pod(pod), f"{NODE}/logs")

    def of_storage(self, attempt: int, node: str) -> LogCopies | None:
        """From the run's storage; None when it has none."""
        with self._lock:
            if self._helper_pod is None and self._make_helper_pod is not None:
                self._helper_pod = self._make_helper_pod()
        if self._helper_pod is None or self._record.storage is None:
            return None
        place = f"{STORAGE}/{self._record.storage.folder}/logs/{attempt}/{node}/logs"
        return LogCopies(self._room(attempt, node, "storage"), self._helper_pod, place)

    def _room(self, attempt: int, node: str, source: str) -> Path:
        folder = self._folder / "copies" / source / str(attempt) / node
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def fill(self, gap: LogGap, attempt: int, node: str, pod: str | None) -> Iterator[PodLine]:
        """The lines of a gap: from the pod, which is named if it lives, else from the storage; else one that tells."""
        count = 0
        for open_copies, is_marked in self._sources(gap.key, attempt, node, pod):
            try:
                copies = open_copies()
                if copies is None:
                    continue
                key = gap.key if is_marked else split_key(gap.key)[0]
                for line in copies.lines(key, gap.first + count, gap.missing - count):
                    count += 1
                    yield line._replace(key=gap.key)
            except LongboatError:
                continue
            if count == gap.missing:
                return
        yield gap_line(gap._replace(first=gap.first + count, missing=gap.missing - count))

    def _sources(
        self, key: str, attempt: int, node: str, pod: str | None
    ) -> Iterator[tuple[Callable[[], LogCopies | None], bool]]:
        """Copies that have this stream, and whether files there bear the mark of their attempt."""
        if pod is not None:
            yield lambda: self.of_pod(attempt, node, pod), True
        number = split_key(key)[1]
        yield lambda: self.of_storage(attempt if number is None else number, node), False

    def rest(self, attempt: int, node: str, seen: dict[str, int], state: State) -> tuple[Iterator[PodLine], str]:
        """Remaining lines of a node whose pod is gone, without those seen, and a notice for the user."""
        try:
            copies = self.of_storage(attempt, node)
            keys = copies.streams() if copies is not None else []
        except NotFound:
            copies, keys = None, []
        if copies is not None and keys:
            return self._all_of(copies, keys, seen), ""
        tail = tail_in(state, attempt, node)
        if tail:
            return tail_lines(tail, seen), f"the pod of {node} is gone: only the last lines of its log were kept"
        return iter(()), f"the pod of {node} is gone, and its log with it"

    def _all_of(self, copies: LogCopies, keys: list[str], seen: dict[str, int]) -> Iterator[PodLine]:
        for key in keys:
            yield from copies.lines(key, seen.get(key, 0), None, is_over=True)

    def others(self, seen: dict[str, int], attempt: int, node: str, pod: str | None) -> Iterator[PodLine]:
        """Lines of every stream that are not in `seen`, as of now: from the pod if it lives, else from the storage.

        None where neither can be had.
        """
        marks = sorted({f"@{number}" for number in map(_mark_of, seen) if number is not None})
        if pod is not None:
            try:
                yield from self._unseen(self.of_pod(attempt, node, pod), seen, "", is_over=False)
                return
            except LongboatError:
                pass
        for mark in ("", *marks):
            try:
                copies = self.of_storage(int(mark[1:]) if mark else attempt, node)
                if copies is not None:
                    yield from self._unseen(copies, seen, mark, is_over=pod is None)
            except LongboatError:
                continue

    def _unseen(self, copies: LogCopies, seen: dict[str, int], mark: str, *, is_over: bool) -> Iterator[PodLine]:
        for name in copies.streams():
            key = name + mark
            for line in copies.lines(name, seen.get(key, 0), None, is_over=is_over):
                seen[key] = line.seq + 1
                yield line._replace(key=key)


def _mark_of(key: str) -> int | None:
    return split_key(key)[1]


def gap_line(gap: LogGap) -> PodLine:
    """The line that stands for lines that nobody has any more."""
    rank, _ = place_of(gap.key)
    text = "1 line was" if gap.missing == 1 else f"{gap.missing} lines were"
    key = f"{rank}.err" if rank >= 0 else FOREIGN
    return PodLine(key, -1, gap.time, f"longboat: {text} rotated away by the kubelet\n".encode())


def tail_in(state: State, attempt: int, node: str) -> str:
    """The kept last lines of a node: under `ATTEMPT/NODE`, or `NODE` for those of the last attempt."""
    tails: Mapping[str, str] = state.tails
    return tails.get(f"{attempt}/{node}") or (tails.get(node, "") if attempt == state.attempt else "")


def tail_lines(text: str, seen: dict[str, int]) -> Iterator[PodLine]:
    parser = Parser()
    time = 0.0
    for raw in text.encode("utf-8", "surrogateescape").split(b"\n"):
        if raw:
            line = parser.parse(raw + b"\n")
            time = line.time or time
            if take(line, seen):
                yield line._replace(time=time)
