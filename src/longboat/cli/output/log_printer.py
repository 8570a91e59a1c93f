"""Prints log lines: bytes as they were, a prefix only where several ranks write."""

from __future__ import annotations

import sys
from typing import BinaryIO

from longboat.cli.output.terminal import CODES, RANK_COLOURS, has_colour
from longboat.cli.output.times import show_moment
from longboat.core.runs import LogLine


class LinePrinter:
    """Writes lines: the trainer's stdout to stdout, its stderr to stderr, each at once."""

    def __init__(self, *, prefixes: bool, timestamps: bool = False) -> None:
        self.prefixes = prefixes
        self.timestamps = timestamps
        self.colour = {"out": has_colour(sys.stdout), "err": has_colour(sys.stderr)}
        self.streams: dict[str, BinaryIO] = {"out": sys.stdout.buffer, "err": sys.stderr.buffer}

    def __call__(self, line: LogLine) -> None:
        stream = self.streams["out" if line.stream == "out" else "err"]
        data = line.data
        if self.prefixes or self.timestamps:
            data = self.head(line) + (data if data.endswith(b"\n") else data + b"\n")
        stream.write(data)
        stream.flush()

    def head(self, line: LogLine) -> bytes:
        """`worker-0/1 | `: node and rank; the time before it where it was asked for."""
        head = f"{show_moment(line.time)} " if self.timestamps else ""
        if self.prefixes:
            beside = "launcher" if line.stream == "err" else "setup"  # who speaks that is no rank
            prefix = f"{line.node}/{line.rank if line.rank >= 0 else beside} |"
            if self.colour["out" if line.stream == "out" else "err"]:
                prefix = f"\033[{CODES[RANK_COLOURS[line.rank % len(RANK_COLOURS)]]}m{prefix}\033[0m"
            head += f"{prefix} "
        return head.encode()


class JsonPrinter:
    """Writes every line as one JSON object on stdout."""

    def __call__(self, line: LogLine) -> None:
        import msgspec

        from longboat.cli.output.formats import plain

        record = plain(line)
        record["text"] = record.pop("data").removesuffix("\n")
        sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
        sys.stdout.buffer.flush()
