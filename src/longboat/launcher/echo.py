"""The echo: every line of every rank on the launcher's own stdout, prefixed and whole.

It reads the lines back from the log files, so a slow reader of stdout costs no memory and never holds up a rank, and a
line may be of any length.
"""

from __future__ import annotations

import os

from .loop import POLLOUT, Loop
from .streams import Stream

PATIENCE_S = 60.0
_READ = 65536
_WRITE = 4096  # what a pipe that is ready takes without blocking


class _Source:
    __slots__ = ("label", "scanned", "sent", "stream")

    def __init__(self, stream: Stream, label: str) -> None:
        self.stream = stream
        self.label = ("[%s] " % label).encode("utf-8", "replace")
        self.sent = stream.end  # echoed up to here: always the start of a line
        self.scanned = stream.end  # no newline between `sent` and here


class Echo:
    def __init__(self, loop: Loop, descriptor: int) -> None:
        self._loop = loop
        self._fd = descriptor
        self._sources: list[_Source] = []
        self._pending = b""
        self._line: tuple[_Source, int] | None = None  # the line being written: its source, where it ends
        self._next = 0
        self._broken = False
        self._last = False
        self._watching = False

    def add(self, stream: Stream, label: str) -> None:
        self._sources.append(_Source(stream, label))

    def more(self) -> None:
        """There may be new lines."""
        if not self._watching and not self._broken and self._fill():
            self._watching = True
            self._loop.watch(self._fd, self._write, POLLOUT)

    def finish(self) -> None:
        """Write out everything, also lines without an end. A reader that takes nothing for long is given up."""
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
        """Put the next bytes into `_pending`: the rest of a long line, else the next whole lines of the next rank."""
        if self._line is not None:
            self._go_on(*self._line)
            return True
        for step in range(len(self._sources)):
            source = self._sources[(self._next + step) % len(self._sources)]
            if self._take_lines(source):
                self._next = (self._next + step + 1) % len(self._sources)
                return True
        return False

    def _go_on(self, source: _Source, end: int) -> None:
        data = source.stream.read(source.sent, min(_READ, end - source.sent))
        source.sent += len(data)
        self._pending += data
        if source.sent >= end or not data:
            self._line = None
            if not data.endswith(b"\n"):
                self._pending += b"\n"

    def _take_lines(self, source: _Source) -> bool:
        if source.scanned == source.sent:
            lines, newline, _ = source.stream.read(source.sent, _READ).rpartition(b"\n")
            if newline:
                source.sent += len(lines) + 1
                source.scanned = source.sent
                self._pending += source.label + lines.replace(b"\n", b"\n" + source.label) + b"\n"
                return True
        end = self._line_end(source)
        if end is None:
            return False
        self._pending += source.label
        self._line = (source, end)
        return True

    def _line_end(self, source: _Source) -> int | None:
        """Where the line that starts at `sent` ends; None: not written yet."""
        while source.scanned < source.stream.end:
            data = source.stream.read(source.scanned, _READ)
            if not data:
                break
            at = data.find(b"\n")
            if at >= 0:
                source.scanned += at + 1
                return source.scanned
            source.scanned += len(data)
        return source.scanned if self._last and source.scanned > source.sent else None
