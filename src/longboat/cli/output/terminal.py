"""Terminal output: colour where a person is looking, and messages on stderr."""

from __future__ import annotations

import os
import sys
from typing import IO

CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
RANK_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
PHASE_COLOURS = {"succeeded": "green", "failed": "red", "stopped": "yellow", "running": "cyan", "recovering": "yellow"}

CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""Control characters are shown as escapes, so that no text out of a file or a run can drive the terminal."""


def is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # a closed stream
        return False


def may_read_stdin() -> bool:
    """Whether stdin is this command's to read: a pipe, or a terminal whose foreground process it is."""
    if not is_terminal(sys.stdin):
        return True
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # not the terminal that controls us: it knows no background
        return True


def has_colour(stream: IO[str]) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: IO[str]) -> str:
    return f"\033[{CODES[colour]}m{text}\033[0m" if has_colour(stream) else text


def clean(text: str) -> str:
    """Remove control characters and line breaks."""
    return " ".join(text.split("\n")).translate(CONTROLS)


def say(text: str) -> None:
    """Print a message for the user to stderr; never data."""
    print(text, file=sys.stderr, flush=True)


_noted: set[str] = set()


def note_once(text: str) -> None:
    """Print a note that this command has not printed yet."""
    if text not in _noted:
        note(text)


def note(text: str) -> None:
    """Print a note to stderr. What it quotes, of runs or of a cluster, cannot drive the terminal."""
    _noted.add(text)
    lines = "\n".join(map(clean, text.split("\n")))
    say(f"{paint('note:', 'yellow', sys.stderr)} {lines}")
