"""The launcher's log files: raw bytes per rank and stream plus an index of arrival times, read back as lines.

Shared by the engines: the embedded one reads them in place, the Kubernetes one from copies. Not here: which of them
belong to a run, and following one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate, compress, repeat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from longboat.core.errors import EngineError, UsageError
from longboat.core.guards.decoding import decode_msgpack
from longboat.core.guards.own_modules import own_program
from longboat.core.jobs import Value
from longboat.core.runs import LogLine, LogQuery
from longboat.engines.shared.files import blocks_from_end, line_start

if TYPE_CHECKING:
    from subprocess import Popen

_RECORD = struct.Struct("<QQ")
_BLOCK = 1 << 20
_TAIL_BLOCK = 1 << 16
_LATEST_NS = 4_000_000_000_000_000_000  # in the year 2096: a time beyond it is garbage, and no calendar shows it
MOST_LINE = 64 << 20
"""Bytes of one line. What is longer has lost its newlines, or never had any."""
SEARCH_S = 5.0
"""Of processor time for the lines of one block in a process of their own; expressions of use take a hundredth."""
SEARCH_IDLE_S = 2.0  # blocks of one search follow each other at once; without another one it is over
_SEARCH_PROGRAM = own_program("from longboat.engines.shared.logfiles import main; main()", first_root=1)


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
            self._end = None if end is None else line_start(self.source.path, end)
        if query.since is not None:
            self._times.refresh()
            self._offset = max(self._offset, line_start(self.source.path, self._times.offset_since(query.since)))
        elif query.tail is not None:
            if self._matches is None or query.tail_bytes is not None:
                # How many lines it takes for so many matches is not known: the bytes alone are the limit.
                self._offset = self._tail_start(query.tail if self._matches is None else None, query.tail_bytes)
            else:
                self._offset = self._matching_start(query.tail)
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

    def _matching_start(self, count: int) -> int:
        """Offset of the last N finished lines that match, or of all that do; what is not finished yet is after it."""
        assert self._matches is not None
        try:
            end = os.stat(self.source.path).st_size if self._end is None else self._end
            earliest = end = line_start(self.source.path, end)
            for start, lines in blocks_from_end(self.source.path, end, most_line=MOST_LINE) if count else ():
                starts = list(accumulate((len(line) + 1 for line in lines), initial=start))
                for offset in reversed(list(compress(starts, self._matches(lines)))):
                    earliest, count = offset, count - 1
                    if not count:
                        return earliest
            return earliest
        except OSError:
            return 0

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
            if self._matches is None or all(self._matches([data])):
                yield self._line(data, self._offset)

    def _split(self, block: bytes) -> Iterator[LogLine]:
        *whole, rest = block.split(b"\n")
        ends = list(accumulate((len(piece) + 1 for piece in whole), initial=self._offset))[1:]
        if whole and self._partial:
            whole[0] = b"".join((*self._partial, whole[0]))
            self._partial = []
        chosen = repeat(True) if self._matches is None else self._matches(whole)
        for piece, end in compress(zip(whole, ends), chosen):
            yield self._line(piece + b"\n", end)
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


Matcher = Callable[[Sequence[bytes]], Sequence[bool]]
"""Which of these lines match."""


@lru_cache(maxsize=8)
def matcher(query: LogQuery) -> Matcher | None:
    """A filter for `grep`; None: every line matches. Raises UsageError, with `grep_apart` also when it is used."""
    if not query.grep:
        return None
    import re

    try:
        patterns = [re.compile(pattern, re.IGNORECASE if query.ignore_case else 0) for pattern in query.grep]
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"not a regular expression: {' '.join(query.grep)!r}: {error}") from None
    if query.grep_apart:
        return partial(_search_apart, query)
    searches = [pattern.search for pattern in patterns]

    def is_match(data: bytes) -> bool:
        text = data[: query.grep_bytes].decode("utf-8", "replace").rstrip("\r\n")
        return any(search(text) for search in searches) != query.invert_match

    return lambda lines: [is_match(data) for data in lines]


class SearchRequest(Value, frozen=True):
    query: LogQuery
    lines: list[bytes]
    limit_s: float


_idle_searches: list[Popen[bytes]] = []


def _search_apart(query: LogQuery, lines: Sequence[bytes]) -> Sequence[bool]:
    """Search in a process of its own: an expression may take for ever, and no other thread of this one would run."""
    asked = msgspec.structs.replace(query, grep_apart=False)
    request = SearchRequest(query=asked, lines=[data[: query.grep_bytes] for data in lines], limit_s=SEARCH_S)
    code = 0
    while lines and code == 0:  # an idle one may just have left
        child = _search_child()
        answer = _answer_of(child, msgspec.msgpack.encode(request), len(lines))
        if answer is not None:
            return [byte == 1 for byte in answer]
        code = child.returncode
    if not lines:
        return []
    if code == -signal.SIGVTALRM:
        raise UsageError(
            f"the search for {' '.join(query.grep)!r} was stopped after {SEARCH_S:g} s",
            hint="a repetition inside a repetition, like (a+)+, may take for ever: use a simpler expression",
        )
    raise EngineError(f"the process that searches has ended: exit code {code}", hint="search again")


def _answer_of(child: Popen[bytes], request: bytes, count: int) -> bytes | None:
    """So many bytes of the process; None: it has ended."""
    assert child.stdin is not None and child.stdout is not None
    answer = b""
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(len(request).to_bytes(8, "big") + request)
            child.stdin.flush()
            answer = child.stdout.read(count)
    finally:
        if len(answer) == count:
            _idle_searches.append(child)
        else:
            child.communicate()  # closes its input too: it is ending, or does so now
    return answer if len(answer) == count else None


def _search_child() -> Popen[bytes]:
    import subprocess

    while _idle_searches:
        with contextlib.suppress(IndexError):  # another thread was first
            child = _idle_searches.pop()
            if child.poll() is None:
                return child
    roots = [str(Path(__file__).parents[3]), str(Path(msgspec.__file__).parents[1])]
    return subprocess.Popen(
        [sys.executable, "-c", _SEARCH_PROGRAM, *roots],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def main() -> None:
    """The process that searches. It ends when nothing has been asked for a while, or by the signal of its timer."""
    import select

    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    while select.select([sys.stdin], [], [], SEARCH_IDLE_S)[0] and (size := sys.stdin.buffer.read(8)):
        request = decode_msgpack(sys.stdin.buffer.read(int.from_bytes(size, "big")), SearchRequest)
        matches = matcher(request.query)
        assert matches is not None
        signal.setitimer(signal.ITIMER_VIRTUAL, request.limit_s)
        answer = bytes(matches(request.lines))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


def sources(attempt_dir: Path, attempt: int, query: LogQuery) -> list[Source]:
    """Log files of an attempt that match the query."""
    log_files = []
    for path in sorted(attempt_dir.glob("*/logs/*")):
        stem, _, stream = path.name.partition(".")
        node = path.parent.parent.name
        role = node.rpartition("-")[0]
        if stream not in ("out", "err") or (query.roles and role not in query.roles):
            continue
        rank = int(stem) if stem.isdecimal() else -1
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
