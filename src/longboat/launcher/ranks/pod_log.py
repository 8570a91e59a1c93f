"""The pod's log: every line of every rank on the launcher's own stdout, prefixed and whole.

In a pod the prefix is `RANK.STREAM SEQ TIME`, so that a reader can count lines and a broken stream can be resumed. It
reads the lines back from the log files, so a slow reader of stdout costs no memory and never holds up a rank, and a
line may be of any length.

What there is of a line that is not finished (a prompt, a progress bar) is shown in pieces meanwhile, marked as such.
The line itself follows whole, so whoever reads lines passes over the pieces.
"""

from __future__ import annotations

import os
import time

from ..node.loop import POLLOUT, EventLoop
from .streams import RECORD, RankStream

PATIENCE_S = 60.0
"""The end of the node waits no longer for a reader of its stdout that takes nothing."""
PIECE_S, SLOW_PIECE_S = 0.2, 1.0
"""What waits for its newline is shown after this, then less and less often: hours of progress stay small in a log."""
PIECE_BYTES = 16384
"""A line that grows faster than this between two pieces is data that nobody watches: it comes when it is whole."""
_READ = 65536  # what a pipe holds
_WRITE = 4096  # what a pipe that is ready takes without blocking


class _Source:
    """A log, echoed line by line under a label."""

    def __init__(self, stream: RankStream, label: str) -> None:
        self.stream = stream
        self.label = ("[%s] " % label).encode("utf-8", "replace")
        self.sent = stream.end  # echoed up to here: always the start of a line
        self.scanned = stream.end  # no newline between `sent` and here

    def labelled(self, lines: bytes) -> bytes:
        """Format whole lines that start at `sent`, given without the last newline."""
        return self.label + lines.replace(b"\n", b"\n" + self.label) + b"\n"

    def around(self, end: int, is_whole: bool) -> tuple[bytes, bytes]:
        """Prefix and suffix of the line that ends at this offset."""
        return self.label, b"\n"

    def wait_s(self, now: float) -> float | None:
        """Seconds until more of an unfinished line may be written; None: there is none."""
        return None

    def piece(self) -> bytes:
        """New text of the unfinished line, as a line of its own."""
        return b""


class _PodSource(_Source):
    """A log in the format of the pod's log. A line's time is that of its last byte, from the index."""

    def __init__(self, stream: RankStream) -> None:
        _Source.__init__(self, stream, "")
        self.name = os.path.basename(stream.log)
        self.seq = 0
        self._index = os.open(stream.log + ".idx", os.O_RDONLY)
        self._records = b""
        self._at = 0
        self._known = 0  # offset up to which `_ns` holds
        self._ns = 0
        self.most_piece = PIECE_BYTES
        self._shown = 0  # up to here the unfinished line was shown in pieces
        self._due = 0.0  # the next piece; 0: nothing waits
        self._pause_s = PIECE_S

    def wait_s(self, now: float) -> float | None:
        if self._shown <= self.sent:
            self._shown, self._pause_s = self.sent, PIECE_S
        if not 0 < self.scanned - self._shown <= self.most_piece:
            self._due = 0.0
            return None
        self._due = self._due or now + self._pause_s
        return max(0.0, self._due - now)

    def piece(self) -> bytes:
        data = self.stream.read(self._shown, self.scanned - self._shown)
        before, after = self._frame(self.scanned, b"+%d" % (self._shown - self.sent), data.endswith(b"\r"))
        self.seq -= 1  # the line's own number, once it is whole
        self._shown, self._due, self._pause_s = self.scanned, 0.0, min(2 * self._pause_s, SLOW_PIECE_S)
        return before + data + after

    def labelled(self, lines: bytes) -> bytes:
        parts, end = [], self.sent
        for line in lines.split(b"\n"):
            end += len(line) + 1
            before, after = self._frame(end, b"", line.endswith(b"\r"))
            parts += [before, line, after]
        return b"".join(parts)

    def around(self, end: int, is_whole: bool) -> tuple[bytes, bytes]:
        last = self.stream.read(end - 2 if is_whole else end - 1, 1)
        return self._frame(end, b"" if is_whole else b"~", last == b"\r" and end - is_whole > self.sent)

    def _frame(self, end: int, mark: bytes, returns: bool) -> tuple[bytes, bytes]:
        """Prefix and suffix of a line. `^` marks a carriage return at its end, which container runtimes drop."""
        seq, self.seq = self.seq, self.seq + 1
        mark += b"^" if returns else b""
        before = b"%s%s %d %s " % (self.name.encode("ascii"), mark, seq, stamp(self._time(end)).encode("ascii"))
        return before, b"|\n" if returns else b"\n"

    def _time(self, end: int) -> int:
        while self._known < end:
            if self._at >= len(self._records):
                data = os.read(self._index, 4096 * RECORD.size)
                if len(data) < RECORD.size:  # the index could not be written: the disk is full
                    return max(self._ns, time.time_ns())
                self._records, self._at = data, 0
            self._known, self._ns = RECORD.unpack_from(self._records, self._at)
            self._at += RECORD.size
        return self._ns


_second: tuple[int, str] = (-1, "")


def stamp(ns: int) -> str:
    """`2026-11-15T07:10:02.123456Z`"""
    global _second
    seconds, rest = divmod(ns, 1_000_000_000)
    if seconds != _second[0]:
        _second = (seconds, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)))
    return "%s.%06dZ" % (_second[1], rest // 1000)


class PodLogWriter:
    def __init__(self, loop: EventLoop, descriptor: int, is_pod: bool = False) -> None:
        self._loop = loop
        self._is_pod = is_pod
        self._fd = descriptor
        self._sources: list[_Source] = []
        self._pending = b""
        # The line being written: its source, where its text ends, what follows, and where the next one begins.
        self._line: tuple[_Source, int, bytes, int] | None = None
        self._next = 0
        self._broken = False
        self._last = False
        self._watching = False

    def add(self, stream: RankStream, label: str) -> None:
        self._sources.append(_PodSource(stream) if self._is_pod else _Source(stream, label))

    def lines(self) -> dict[str, int]:
        """Number of lines written by stream, from which readers find lines that are missing."""
        pods = [source for source in self._sources if isinstance(source, _PodSource)]
        return {source.name: source.seq for source in pods if source.seq}

    def more(self) -> None:
        """Write new lines, if any."""
        if not self._watching and not self._broken and self._fill():
            self._watching = True
            self._loop.watch(self._fd, self._write, POLLOUT)

    def finish(self) -> None:
        """Write everything, unfinished lines included. A reader that blocks for long is given up."""
        self._last = True
        self.more()
        while self._watching:
            self._loop.after("echo", PATIENCE_S, self._give_up)
            self._loop.turn()
        self._loop.cancel("echo")

    def _give_up(self) -> None:
        self._broken = True
        self._watching = False
        self._loop.unwatch(self._fd)

    def _write(self) -> None:
        try:
            count = os.write(self._fd, self._pending[:_WRITE])
        except BlockingIOError:
            return
        except OSError:
            self._broken = True  # nobody reads any more; the logs are in their files
            count = len(self._pending)
        self._pending = self._pending[count:]
        if self._broken or not (self._pending or self._fill()):
            self._watching = False
            self._loop.unwatch(self._fd)

    def _fill(self) -> bool:
        """Put the next bytes into `_pending`: the rest of a long line, else whole lines of the next rank."""
        if self._line is not None:
            self._go_on(*self._line)
            return True
        for step in range(len(self._sources)):
            source = self._sources[(self._next + step) % len(self._sources)]
            if self._take_lines(source):
                self._next = (self._next + step + 1) % len(self._sources)
                return True
        return not self._last and self._take_pieces(time.monotonic())

    def _take_pieces(self, now: float) -> bool:
        waits = [(source.wait_s(now), source) for source in self._sources]
        due = [source for wait_s, source in waits if wait_s == 0]
        self._pending += b"".join(source.piece() for source in due)
        later = [wait_s for wait_s, _ in waits if wait_s]
        if later:
            self._wake_after(min(later))
        return bool(due)

    def _wake_after(self, seconds: float) -> None:
        self._loop.after("pieces", seconds, self.more)

    def _go_on(self, source: _Source, end: int, after: bytes, next_line: int) -> None:
        data = source.stream.read(source.sent, min(_READ, end - source.sent))
        source.sent += len(data)
        self._pending += data
        if source.sent >= end or not data:
            self._line = None
            self._pending += after
            source.sent = next_line

    def _take_lines(self, source: _Source) -> bool:
        if source.scanned == source.sent:
            lines, newline, _ = source.stream.read(source.sent, _READ).rpartition(b"\n")
            if newline:
                self._pending += source.labelled(lines)
                source.sent += len(lines) + 1
                source.scanned = source.sent
                return True
        end, is_whole = self._line_end(source)
        if end is None:
            return False
        before, after = source.around(end, is_whole)
        self._pending += before
        self._line = (source, end - is_whole, after, end)
        return True

    def _line_end(self, source: _Source) -> tuple[int | None, bool]:
        """Where the line that starts at `sent` ends, and whether with a newline; None: not yet."""
        while source.scanned < source.stream.end:
            data = source.stream.read(source.scanned, _READ)
            if not data:
                break
            at = data.find(b"\n")
            if at >= 0:
                source.scanned += at + 1
                return source.scanned, True
            source.scanned += len(data)
        return (source.scanned if self._last and source.scanned > source.sent else None), False
