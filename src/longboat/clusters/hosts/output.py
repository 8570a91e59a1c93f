"""Bounded output of a script: its beginning and its end; what a host prints is data, of any length."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

HEAD = 64 << 10
"""Enough for the first error of a long build, which often explains the later ones."""
TAIL = (1 << 20) - HEAD
LONGEST_LINE = 64 << 10  # longer ones come in pieces, so that nothing waits for an end that never comes


class ScriptOutput:
    """The text of one stream. With a mark, text before the line that begins with it is dropped: a login shell may print
    its own. `after_mark` is the rest of that line.
    """

    def __init__(self, *, mark: str = "", on_line: Callable[[str], None] | None = None) -> None:
        self._mark, self.on_line = mark.encode(), on_line
        self._head, self._tail = bytearray(), deque[bytes]()
        self._tail_size = self._dropped = 0
        self._line = bytearray()
        self.after_mark: str | None = None

    def feed(self, data: bytes) -> None:
        if self._mark and self.after_mark is None:
            data = self._look_for_mark(data)
        self._keep(data)
        if self.on_line is not None and (not self._mark or self.after_mark is not None):
            self._split(data)

    def text(self) -> str:
        said = f"\n[... {self._dropped} bytes left out ...]\n".encode() if self._dropped else b""
        return b"".join((self._head, said, *self._tail)).decode("utf-8", "replace")

    def close(self) -> None:
        """Add the last line, which may lack its newline."""
        if self._line and self.on_line is not None:
            self.on_line(self._line.decode("utf-8", "replace"))
        self._line.clear()

    def _look_for_mark(self, data: bytes) -> bytes:
        """Text after the line with the mark; all text is kept until the mark is seen."""
        seen = bytes(self._head) + data
        start = seen.find(self._mark)
        end = seen.find(b"\n", start)
        if start < 0 or end < 0:
            return data
        self.after_mark = seen[start + len(self._mark) : end].decode("ascii", "replace").strip()
        self._head.clear()
        self._tail.clear()
        self._tail_size = self._dropped = 0
        return seen[end + 1 :]

    def _keep(self, data: bytes) -> None:
        room = HEAD - len(self._head)
        self._head += data[:room]
        if data[room:]:
            self._tail.append(data[room:])
            self._tail_size += len(data) - room
        while self._tail_size > TAIL:
            extra = self._tail_size - TAIL
            first = self._tail.popleft()
            cut = min(extra, len(first))
            if first[cut:]:
                self._tail.appendleft(first[cut:])
            self._tail_size -= cut
            self._dropped += cut

    def _split(self, data: bytes) -> None:
        self._line += data
        while (end := self._line.find(b"\n")) >= 0 or len(self._line) > LONGEST_LINE:
            size = end if 0 <= end <= LONGEST_LINE else LONGEST_LINE
            text = bytes(self._line[:size]).decode("utf-8", "replace")
            del self._line[: size + (self._line[size : size + 1] == b"\n")]
            if self.on_line is not None:
                self.on_line(text)
