"""The launcher's log files: raw bytes per rank and stream plus an index of arrival times, read back as lines.

Shared by the engines: the embedded one reads them in place, the Kubernetes one from copies. Not here: which of them
belong to a run, and following one.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from longboat.core.errors import UsageError
from longboat.core.jobs import Value
from longboat.core.runs import LogLine, LogQuery

_RECORD = struct.Struct("<QQ")
_BLOCK = 1 << 20
_TAIL_BLOCK = 1 << 16
_LATEST_NS = 4_000_000_000_000_000_000  # in the year 2096: a time beyond it is garbage, and no calendar shows it
MOST_LINE = 64 << 20
"""Bytes of one line. What is longer has lost its newlines, or never had any."""


class Source(Value, frozen=True):
    """One log file of one rank."""

    path: str
    role: str
    node: str
    rank: int
    stream: str
    attempt: int


class LineTimes:
    """Arrival times of log bytes by offset, from the index beside the log. Grows as the index does."""

    def __init__(self, path: str) -> None:
        self._path = path + ".idx"
        self._log = path
        self._first = 0  # records before it are not read
        self._ends: list[int] = []
        self._times: list[int] = []
        self._is_broken = False

    def start_at(self, offset: int) -> None:
        """Skip index entries before this offset: reading the index of a long log takes seconds."""
        position, _ = self._bisect(lambda end, _when: end <= offset)
        self._first = position

    def offset_until(self, until: float) -> int | None:
        """Offset after the last byte that had arrived by this time; None where no index tells."""
        limit = int(until * 1e9)
        position, before = self._bisect(lambda _end, when: when <= limit)
        return before if position or os.path.exists(self._path) else None

    def _bisect(self, is_before: Callable[[int, int], bool]) -> tuple[int, int]:
        """Number of the first record of which this does not hold, and where the one before it ends."""
        low, before = 0, 0
        try:
            with open(self._path, "rb") as file:
                high = os.fstat(file.fileno()).st_size // _RECORD.size
                while low < high:
                    middle = (low + high) // 2
                    end, when = _RECORD.unpack(os.pread(file.fileno(), _RECORD.size, middle * _RECORD.size))
                    if is_before(end, when):
                        low, before = middle + 1, end
                    else:
                        high = middle
        except (FileNotFoundError, struct.error):
            return 0, 0
        return low, before

    def refresh(self) -> None:
        """Read new index entries. The first invalid record (left by a power loss) ends the index."""
        if self._is_broken:
            return
        try:
            with open(self._path, "rb") as file:
                file.seek((self._first + len(self._ends)) * _RECORD.size)
                data = file.read()
        except FileNotFoundError:
            return
        whole = len(data) - len(data) % _RECORD.size
        for end, when in _RECORD.iter_unpack(data[:whole]):
            # Zeros are left of a block that never reached the disk; a time of 0 alone is a copied line without one.
            if not end or end < (self._ends[-1] if self._ends else 0) or when >= _LATEST_NS:
                self._is_broken = True
                return
            self._ends.append(end)
            self._times.append(when)

    def at(self, end: int) -> float:
        """Arrival time of the byte before this offset."""
        position = bisect_left(self._ends, end)
        if position < len(self._times):
            return self._times[position] / 1e9
        try:
            return max(os.stat(self._log).st_mtime, self._times[-1] / 1e9 if self._times else 0.0)
        except OSError:
            return 0.0

    def offset_since(self, since: float) -> int:
        """Offset of the first byte that arrived at or after this time."""
        position = bisect_left(self._times, int(since * 1e9))
        return self._ends[position - 1] if position else 0


class Reader:
    """Reads the lines of one log that match the query, from its position to the current end.

    Keeps an unfinished line until it is finished; with `pieces` what there is of it is a line without newline.
    """

    def __init__(self, source: Source, query: LogQuery | None = None) -> None:
        self.source = source
        self._matches = matcher(query) if query is not None else None
        self._has_pieces = query is not None and query.pieces and self._matches is None
        self._times = LineTimes(source.path)
        self._offset = 0
        self._end: int | None = None  # nothing after it is read
        self._partial: list[bytes] = []
        self._held = 0  # bytes of it

    def skip_to(self, query: LogQuery) -> None:
        if query.until is not None and not query.follow:
            end = self._times.offset_until(query.until)
            self._end = None if end is None else self._line_start(end)
        if query.since is not None:
            self._times.refresh()
            self._offset = max(self._offset, self._line_start(self._times.offset_since(query.since)))
        elif query.tail is not None and (self._matches is None or query.tail_bytes is not None):
            # How many lines it takes for so many matches is not known: the bytes alone are the limit.
            self._offset = self._tail_start(query.tail if self._matches is None else None, query.tail_bytes)
            self._times.start_at(self._offset)

    def _tail_start(self, count: int | None, most: int | None) -> int:
        """Offset of the last N lines at least, found by reading the file from its end; None: of `most` bytes."""
        left = (count or 0) + 1  # the newline before the first of them, should the last be finished; one more else
        try:
            with open(self.source.path, "rb") as file:
                end = os.fstat(file.fileno()).st_size if self._end is None else self._end
                least = 0 if most is None else max(0, end - most)
                if count is None:
                    return least
                while end > least:
                    start = max(0, end - _TAIL_BLOCK)
                    block = os.pread(file.fileno(), end - start, start)
                    have = block.count(b"\n")
                    if have >= left:
                        position = len(block)
                        for _ in range(left):
                            position = block.rindex(b"\n", 0, position)
                        return start + position + 1
                    left, end = left - have, start
                return end
        except OSError:
            return 0

    def _line_start(self, offset: int) -> int:
        """Start of the line that contains this offset."""
        if offset == 0:
            return 0
        try:
            with open(self.source.path, "rb") as file:
                while offset > 0:
                    start = max(0, offset - 65536)
                    file.seek(start)
                    newline = file.read(offset - start).rfind(b"\n")
                    if newline >= 0:
                        return start + newline + 1
                    offset = start
        except OSError:
            pass
        return offset

    def lines(self, *, is_last: bool) -> Iterator[LogLine]:
        """New lines. `is_last`: also a last line without newline."""
        try:
            file = open(self.source.path, "rb")
        except FileNotFoundError:
            return
        with file:
            if os.fstat(file.fileno()).st_size > self._offset:
                file.seek(self._offset)
                while block := file.read(
                    _BLOCK if self._end is None else max(0, min(_BLOCK, self._end - self._offset))
                ):
                    self._times.refresh()
                    yield from self._split(block)
        if self._partial and (is_last or self._has_pieces):
            data = b"".join(self._partial)
            self._partial = []
            if self._matches is None or self._matches(data):
                yield self._line(data, self._offset)

    def _split(self, block: bytes) -> Iterator[LogLine]:
        *whole, rest = block.split(b"\n")
        offset = self._offset
        for piece in whole:
            offset += len(piece) + 1
            if self._partial:
                piece = b"".join((*self._partial, piece))
                self._partial = []
            if self._matches is None or self._matches(piece):
                yield self._line(piece + b"\n", offset)
        self._offset += len(block)
        if rest:
            self._partial.append(rest)
            self._held = len(rest) if whole else self._held + len(rest)
            if self._held > MOST_LINE:  # told in pieces: nobody has room for a line without end
                data, self._partial, self._held = b"".join(self._partial), [], 0
                yield self._line(data, self._offset)

    def _line(self, data: bytes, end: int) -> LogLine:
        source = self.source
        return LogLine(
            role=source.role,
            node=source.node,
            rank=source.rank,
            stream=source.stream,
            time=self._times.at(end),
            attempt=source.attempt,
            data=data,
        )


@lru_cache(maxsize=8)
def matcher(query: LogQuery) -> Callable[[bytes], bool] | None:
    """A predicate for `grep`; None: every line matches. Raises UsageError."""
    if not query.grep:
        return None
    import re

    try:
        patterns = [re.compile(pattern, re.IGNORECASE if query.ignore_case else 0) for pattern in query.grep]
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"not a regular expression: {' '.join(query.grep)!r}: {error}") from None
    searches = [pattern.search for pattern in patterns]

    def is_match(data: bytes) -> bool:
        text = data[: query.grep_bytes].decode("utf-8", "replace").rstrip("\r\n")
        return any(search(text) for search in searches) != query.invert_match

    return is_match


def sources(attempt_dir: Path, attempt: int, query: LogQuery) -> list[Source]:
    """Log files of an attempt that match the query."""
    log_files = []
    for path in sorted(attempt_dir.glob("*/logs/*")):
        stem, _, stream = path.name.partition(".")
        node = path.parent.parent.name
        role = node.rpartition("-")[0]
        if stream not in ("out", "err") or (query.roles and role not in query.roles):
            continue
        rank = int(stem) if stem.isdigit() else -1
        if query.ranks and rank not in query.ranks:
            continue
        log_files.append(
            Source(
                path=str(path),
                role=role,
                node=node,
                rank=rank,
                stream="setup" if stem == "setup" else stream,
                attempt=attempt,
            )
        )
    return log_files


def last_lines(lines: Iterator[LogLine], count: int, *, of_all: bool = False) -> list[LogLine]:
    """The last `count` lines of each rank (and of each node's setup), or of all together; in their merged order."""
    from collections import deque

    if of_all:
        return list(deque(lines, maxlen=count))
    kept: dict[tuple[str, int], deque[tuple[int, LogLine]]] = {}
    for position, line in enumerate(lines):
        kept.setdefault((line.node, line.rank), deque(maxlen=count)).append((position, line))
    chosen = [item for items in kept.values() for item in items]
    return [line for _, line in sorted(chosen, key=lambda item: item[0])]
