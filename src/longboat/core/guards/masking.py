"""Masking of secrets in streams of bytes: their values become `***` before anything is written. Pure.

A value that is cut by the end of a chunk is held back until the rest of it has come. Values shorter than LEAST are left
as they are: `1` or `true` would take half of every log with it. A value of several lines is masked line by line. Values
that overlap are one `***`. What a program does to a value first (quoting, encoding, cutting) is not recognised.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MASK = b"***"
LEAST = 8
"""Bytes. Tokens and passwords worth hiding are longer; shorter values are words that logs have anyway."""


class Masker:
    """One stream. `feed` gives what may be written now, `finish` the rest."""

    def __init__(self, values: Iterable[str]) -> None:
        parts = {os.fsencode(part.strip()) for value in values for part in value.splitlines()}
        self._values = sorted(value for value in parts if len(value) >= LEAST)
        borders = {value: begun(value, value[1:]) for value in self._values}
        self._again = {value: value[border:] for value, border in borders.items() if border}
        self._held = b""
        self._covered = 0  # so many of the bytes that are held belong to a mask that was given already

    def __bool__(self) -> bool:
        """Whether there is anything to mask."""
        return bool(self._values)

    def feed(self, data: bytes) -> bytes:
        data = self._held + data
        end = len(data) - max((begun(value, data) for value in self._values), default=0)
        parts, done = [], self._covered
        for start, stop in sorted(self._occurrences(data)):
            if start >= end:
                break  # it may be a part of a longer value
            if start >= done:
                parts += [data[done:start], MASK]
            done = max(done, stop)
        parts.append(data[done:end])
        self._held, self._covered = data[end:], max(done - end, 0)
        return b"".join(parts)

    def feed_rest(self, data: bytes) -> bytes:
        """As `feed`, first, where another reader was killed: of a value that it had the beginning of, the end is not
        told either."""
        count = max((begun(value[::-1], data[: len(value)][::-1]) for value in self._values), default=0)
        if any(data in value for value in self._values):
            count = len(data)
        self._covered = count if count >= LEAST else 0
        return (MASK if self._covered else b"") + self.feed(data)

    def finish(self) -> bytes:
        """The end of the stream. What there is of a value is not told either, if it is long enough to be one."""
        rest, is_known = self._held[self._covered :], len(self._held) >= LEAST
        is_told = self._covered > 0
        self._held, self._covered = b"", 0
        if rest and is_known:
            return b"" if is_told else MASK
        return rest

    def _occurrences(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where values are, from and to. One that overlaps itself (`abababab`) again and again is found once."""
        for value in self._values:
            again = self._again.get(value)
            start = data.find(value)
            while start >= 0:
                stop = start + len(value)
                while again and data.startswith(again, stop):
                    stop += len(again)
                yield start, stop
                start = data.find(value, stop - len(value) + 1)


def begun(value: bytes, data: bytes) -> int:
    """How many bytes at the end may be the beginning of this value, and are not all of it."""
    head, view = value[:LEAST], memoryview(data)
    start = data.find(head, max(0, len(data) - len(value) + 1))
    while start >= 0:
        if value.startswith(view[start:]):
            return len(data) - start
        start = data.find(head, start + 1)
    return next((count for count in range(min(len(data), LEAST - 1), 0, -1) if head.startswith(view[-count:])), 0)
