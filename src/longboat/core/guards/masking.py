"""Masking of secrets in streams of bytes: their values become `***` before anything is written. Pure.

A value that is cut by the end of a chunk is held back until the rest of it has come. Values shorter than LEAST are left
as they are: `1` or `true` would take half of every log with it. A value of several lines is masked line by line. What a
program does to a value first (quoting, encoding, cutting) is not recognised.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = b"***"
LEAST = 8
"""Bytes. Tokens and passwords worth hiding are longer; shorter values are words that logs have anyway."""


class Masker:
    """One stream. `feed` gives what may be written now, `finish` the rest."""

    def __init__(self, values: Iterable[str]) -> None:
        found = {os.fsencode(part.strip()) for value in values for part in value.splitlines()}
        self._values = sorted((value for value in found if len(value) >= LEAST), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._values)) or b"(?!)")
        self._held = b""

    def __bool__(self) -> bool:
        """Whether there is anything to mask."""
        return bool(self._values)

    def feed(self, data: bytes) -> bytes:
        data, self._held = self._held + data, b""
        parts, done, end = [], 0, len(data) - self._begun(data)
        for match in self._pattern.finditer(data):
            if match.start() >= end:
                break  # it may be a part of a longer value
            parts += [data[done : match.start()], MASK]
            done = match.end()
            if done > end:
                end = len(data) - self._begun(data[done:])
        parts.append(data[done:end])
        self._held = data[end:]
        return b"".join(parts)

    def finish(self) -> bytes:
        """The end of the stream. What there is of a value is not told either, if it is long enough to be one."""
        held, self._held = self._held, b""
        return MASK if len(held) >= LEAST else held

    def _begun(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a value."""
        longest = len(self._values[0]) - 1 if self._values else 0
        for count in range(min(len(data), longest), 0, -1):
            tail = data[-count:]
            if any(len(value) > count and value.startswith(tail) for value in self._values):
                return count
        return 0
