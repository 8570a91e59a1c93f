"""Parser of the launcher's log lines, `RANK.STREAM SEQ TIME TEXT`. Pure: bytes in, values out.

`@N` after the stream: of attempt N, which was restarted in place in the same pod; without it, of the pod's own attempt.
`~` after the stream: the line had no newline. `^`: it ends with a carriage return, which a container runtime would drop
before a newline, so one `|` guards it. `+N`: a piece of a line that was not finished yet, from its byte N on; the whole
line follows under the same number. Every stream counts its lines from 0: whoever reads knows what is missing,
however often and wherever the stream of bytes broke. Lines that are not the launcher's (it crashed, or somebody else
wrote) have the key "".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping
from typing import NamedTuple

from longboat.core.runs import LogLine
from longboat.core.times import parse_time

FOREIGN = ""
"""Key of lines that are not the launcher's; `seen` counts them too."""

_LINE = re.compile(
    rb"((?:\d{1,9}|setup|node)\.(?:out|err)(?:@\d{1,6})?)(~|\+\d{1,15})?(\^?) (\d{1,15}) "
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z(?: |(?=\n)|\Z)"
)
_LOST = (b"unable to retrieve container logs for ", b"failed to try resolving symlinks in path ")


MOST_LINE = 64 << 20
"""Bytes of one line. What is longer has lost its newlines, or never had any."""


class PodLine(NamedTuple):
    key: str  # "0.out", "setup.out", "node.err", "0.out@1" of a later attempt in the same pod, or FOREIGN
    seq: int  # -1: not counted
    time: float
    data: bytes  # the text with its newline, if it had one
    start: int = -1  # of a piece: where in the line it begins


class LogGap(NamedTuple):
    """Lines of one stream that the pod's log no longer has, before a line of this time."""

    key: str
    first: int
    missing: int
    time: float


def batches(chunks: Iterable[bytes], *, is_last: bool = True) -> Iterator[list[bytes]]:
    """Whole lines, as many as each chunk completes. A last one without newline only if nothing can follow any more."""
    rest: list[bytes] = []
    held = 0
    for chunk in chunks:
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            whole = b"".join((*rest, head, newline))
            rest, held = [], 0
            yield whole.splitlines(keepends=True) if not _has_carriage_returns(whole) else _split(whole)
        if tail:
            rest.append(tail)
            held += len(tail)
            if held > MOST_LINE:  # told in pieces: whoever reads has no room for a line without end
                yield [b"".join(rest)]
                rest, held = [], 0
    if rest and is_last:
        yield [b"".join(rest)]


def _has_carriage_returns(data: bytes) -> bool:
    return b"\r" in data


def _split(data: bytes) -> list[bytes]:
    """Split at newlines only: `splitlines` would split at a carriage return too."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


class Parser:
    """Lines into values. Remembers the last second, for reading a date takes longer than all the rest."""

    def __init__(self) -> None:
        self._second = b""
        self._epoch = 0.0

    def parse(self, line: bytes) -> PodLine:
        match = _LINE.match(line)
        if match is None:
            return PodLine(FOREIGN, -1, 0.0, line)
        key, mark, has_guard, seq, second, fraction = match.groups()
        if second != self._second:
            epoch = parse_time(second.decode())
            if epoch is None:
                return PodLine(FOREIGN, -1, 0.0, line)
            self._epoch, self._second = epoch, second
        time = self._epoch + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)
        data = line[match.end() :]
        if has_guard and data.endswith(b"|\n"):
            data = data[:-2] + b"\n"
        if mark and data.endswith(b"\n"):
            data = data[:-1]
        start = int(mark[1:]) if mark and mark != b"~" else -1  # see `is_piece`
        return PodLine(key.decode(), int(seq), time, data, start)


def is_piece(line: bytes) -> bool:
    """Whether this is a piece of a line, which follows whole."""
    match = _LINE.match(line)
    return match is not None and (match[2] or b"~") != b"~"


def is_lost(line: bytes) -> bool:
    """Whether this is the kubelet saying that the log's file is gone, rather than a line of the log."""
    return line.startswith(_LOST)


def split_key(key: str) -> tuple[str, int | None]:
    """The stream of a key as its file is named (`0.out`), and the attempt that it is marked with."""
    stream, _, number = key.partition("@")
    return stream, int(number) if number.isdecimal() else None


def place_of(key: str) -> tuple[int, str]:
    """Rank and stream of a key: (-1, "setup") for setup, (-1, "err") for the launcher's own words and strangers'."""
    stem, _, stream = split_key(key)[0].partition(".")
    if stem.isdecimal():
        return int(stem), stream
    return -1, "setup" if stem == "setup" else "err"


def to_log_line(line: PodLine, *, role: str, node: str, attempt: int) -> LogLine:
    """`attempt`: of the pod."""
    rank, stream = place_of(line.key)
    marked = split_key(line.key)[1]
    attempt = attempt if marked is None else marked
    return LogLine(role=role, node=node, rank=rank, stream=stream, time=line.time, attempt=attempt, data=line.data)


def take(line: PodLine, seen: MutableMapping[str, int]) -> bool:
    """Whether this line is new, and note that it was seen. Lines that are not counted are always new; pieces never."""
    if line.start >= 0:
        return False
    if line.seq < 0:
        seen[line.key] = seen.get(line.key, 0) + 1
        return True
    if line.seq < seen.get(line.key, 0):
        return False
    seen[line.key] = line.seq + 1
    return True


def lines_of_pod(chunks: Iterator[bytes], *, seen: dict[str, int]) -> Iterator[LogLine]:
    """The lines of a pod's log that are not in `seen` yet, which is kept up to date: key -> next SEQ.

    Role, node and attempt are empty: whoever asked knows them.
    """
    parser = Parser()
    time = 0.0
    for batch in batches(chunks):
        for raw in batch:
            line = parser.parse(raw)
            time = line.time or time
            if take(line, seen):
                yield to_log_line(line._replace(time=time), role="", node="", attempt=0)
