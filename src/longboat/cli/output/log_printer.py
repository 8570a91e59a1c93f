"""Prints log lines: bytes as they were, a prefix only where several ranks write."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from typing import BinaryIO

from longboat.cli.output.terminal import CODES, RANK_COLOURS, has_colour, is_terminal, say
from longboat.cli.output.times import show_moment
from longboat.core.runs import LogLine

STICKY_S = 3.0
"""A progress bar keeps the bottom line while it moves at least so often: bars that take turns cannot be read."""
LONGEST, LONGEST_KEPT = 1 << 16, 1 << 20
"""Bytes of an unfinished line that are held, for a terminal and for a file; a longer one goes on in the next line."""
ERASE = b"\r\033[K"
MESSAGE = ("", -1, "message")
"""Stands for a message in the bottom line, where else the unfinished line of a rank is."""


class LinePrinter:
    """Writes lines: the trainer's stdout to stdout, its stderr to stderr, each at once.

    A line may come in pieces, the last one with the newline. One rank's pieces are written as they are; of several
    ranks whole lines are, and on a terminal the bottom line shows what there is of one that is not finished.
    """

    def __init__(
        self,
        *,
        prefixes: bool,
        timestamps: bool = False,
        attempts: int | None = None,
        highlight: Sequence[re.Pattern[bytes]] = (),
    ) -> None:
        """`attempts`: the maximum, to announce each further one. `highlight`: patterns to colour."""
        self.is_plain = not (prefixes or timestamps)
        self.prefixes = prefixes
        self.timestamps = timestamps
        self.attempts = attempts
        self.colour = {"out": has_colour(sys.stdout), "err": has_colour(sys.stderr)}
        self.streams: dict[str, BinaryIO] = {"out": sys.stdout.buffer, "err": sys.stderr.buffer}
        self.has_terminal = {"out": is_terminal(sys.stdout), "err": is_terminal(sys.stderr)}
        self.highlight = highlight
        self.lock = threading.RLock()  # another thread says what happens to the run
        self.attempt: int | None = None
        self.unfinished: dict[tuple[str, int, str], bytes] = {}
        self.bottom: tuple[str, int, str] | None = None  # whose unfinished line is shown
        self.drawn_at = 0.0
        self.is_midline = False  # what was written last had no newline
        self.is_one_file = _is_one_file()  # 2>&1: a message after an unfinished line would go on in it

    def __call__(self, line: LogLine) -> None:
        with self.lock:
            self._mark(line.attempt)
            self._print(line)

    def _print(self, line: LogLine) -> None:
        name = "out" if line.stream == "out" else "err"
        if self.is_plain:
            self._erase()
            data = self._highlighted(line.data, name)
            self.is_midline = (self.has_terminal[name] or self.is_one_file) and not data.endswith(b"\n")
            self._write(name, data)
            return
        key = (line.node, line.rank, line.stream)
        data = self.unfinished.pop(key, b"") + line.data
        whole, newline, rest = data.rpartition(b"\n") if self.has_terminal[name] else _split_updates(data)
        if newline:
            self._erase()
            for text in whole.split(b"\n"):
                shown = _last_update(text) if self.has_terminal[name] else text
                self._write(name, self.head(line) + self._highlighted(shown, name) + b"\n")
        rest = _needed(rest) if self.has_terminal[name] else rest
        if len(rest) > (LONGEST if self.has_terminal[name] else LONGEST_KEPT):
            self._erase()
            self._write(name, self.head(line) + self._highlighted(_last_update(rest), name) + b"\n")
            rest = b""
        if rest:
            self.unfinished[key] = rest
            self._draw(key, line, name, _last_update(rest))

    def close(self) -> None:
        """Write unfinished lines at the end of the log."""
        self._erase()
        for (node, rank, stream), data in self.unfinished.items():
            name = "out" if stream == "out" else "err"
            line = LogLine(role="", node=node, rank=rank, stream=stream, time=time.time(), attempt=0, data=data)
            self._write(name, self.head(line) + _last_update(data) + b"\n")
        self.unfinished = {}

    def say(self, text: str) -> None:
        """Print a message on a line of its own."""
        with self.lock:
            self._erase()
            say(f"\n{text}" if self.is_midline and (self.has_terminal["err"] or self.is_one_file) else text)
            self.is_midline = False

    def draw(self, text: str) -> bool:
        """Show a message in the bottom line until other output overwrites it. False: there is no terminal."""
        if not self.has_terminal["err"]:
            return False
        with self.lock:
            if not self.is_midline and self.bottom in (None, MESSAGE):
                self.bottom = MESSAGE
                self._write("err", ERASE + text[: _columns() - 1].encode())
        return True

    def _mark(self, attempt: int) -> None:
        before, self.attempt = self.attempt, attempt
        if before is None or before == attempt:
            return
        self.close()
        if self.attempts is not None:
            self.say(f"longboat: attempt {attempt + 1} of {max(self.attempts, attempt + 1)}")

    def _write(self, name: str, data: bytes) -> None:
        stream = self.streams[name]
        stream.write(data)
        stream.flush()

    def _draw(self, key: tuple[str, int, str], line: LogLine, name: str, text: bytes) -> None:
        """Show an unfinished line in the bottom line, unless another rank's is still being updated there."""
        now = time.monotonic()
        is_taken = self.bottom not in (None, key) and now - self.drawn_at < STICKY_S
        if not self.has_terminal[name] or is_taken or not text.strip():
            return
        room = max(_columns() - len(f"{line.node}/{line.rank} | ") - 1 - 25 * self.timestamps, 10)
        shown = text.decode("utf-8", "replace")[:room].encode()
        self.bottom, self.drawn_at = key, now
        self._write(name, ERASE + self.head(line) + shown)

    def _erase(self) -> None:
        """Erase the bottom line before a whole line is written."""
        if self.bottom is not None:
            self._write("out" if self.bottom[2] == "out" else "err", ERASE)
            self.bottom = None

    def _highlighted(self, data: bytes, name: str) -> bytes:
        for pattern in self.highlight if self.colour[name] else ():
            data = pattern.sub(lambda match: b"\033[1;31m%s\033[0m" % match[0] if match[0] else b"", data)
        return data

    def head(self, line: LogLine) -> bytes:
        """The prefix of a line, `worker-0/1 | `: node and rank, after the timestamp if wanted."""
        head = f"{show_moment(line.time)} " if self.timestamps else ""
        if self.prefixes:
            beside = "launcher" if line.stream == "err" else "setup"  # who speaks that is no rank
            prefix = f"{line.node}/{line.rank if line.rank >= 0 else beside} |"
            if self.colour["out" if line.stream == "out" else "err"]:
                prefix = f"\033[{CODES[RANK_COLOURS[line.rank % len(RANK_COLOURS)]]}m{prefix}\033[0m"
            head += f"{prefix} "
        return head.encode()


def _is_one_file() -> bool:
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or not a file at all
        return False


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns or 80


def _last_update(text: bytes) -> bytes:
    """The text after the last carriage return: what a terminal shows of a progress bar."""
    return text.rstrip(b"\r").rpartition(b"\r")[2]


def _needed(rest: bytes) -> bytes:
    """The part of an unfinished line that later updates do not overwrite."""
    return _last_update(rest) + (b"\r" if rest.endswith(b"\r") else b"")


def _split_updates(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Split updates of a progress bar into lines, for outputs that are not a terminal."""
    whole, newline, rest = data.replace(b"\r\n", b"\n").rpartition(b"\n")
    held = rest[-1:] if rest.endswith(b"\r") else b""  # the newline after it may be on its way
    updates, _, rest = rest[: len(rest) - len(held)].rpartition(b"\r")
    lines = [update for line in (whole.split(b"\n") if newline else ()) for update in _updates(line) or [b""]]
    lines += _updates(updates)
    return b"\n".join(lines), b"\n" if lines else b"", rest + held


def _updates(line: bytes) -> list[bytes]:
    return [update for update in line.split(b"\r") if update]


class JsonPrinter:
    """Writes every line as one JSON object on stdout."""

    def __call__(self, line: LogLine) -> None:
        import msgspec

        from longboat.cli.output.formats import plain

        record = plain(line)
        record["text"] = record.pop("data").removesuffix("\n")
        sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Do nothing: every line is written at once."""
