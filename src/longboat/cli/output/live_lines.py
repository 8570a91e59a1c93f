"""Lines of a terminal that are redrawn in place, for tables of work in progress."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import IO

from longboat.cli.output.tables import cut


class LiveLines:
    """Each drawing replaces the one before; what does not fit the terminal is cut."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._height = 0

    def draw(self, lines: Sequence[str]) -> None:
        size = shutil.get_terminal_size()
        shown = [cut(line, size.columns) for line in lines[: max(size.lines - 2, 2)]]
        up = f"\033[{self._height}A" if self._height else ""
        self._stream.write(up + "".join(f"\r\033[K{line}\n" for line in shown))
        self._stream.flush()
        self._height = len(shown)
