"""Ctrl-C held back for a moment in which it would leave something half made."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_interrupts() -> Iterator[list[int]]:
    """Note Ctrl-C in the list instead of raising it; whoever asked looks at it afterwards. Keep it short."""
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    try:
        if before is not None:  # else it was set outside of Python, which could not put it back
            signal.signal(signal.SIGINT, lambda number, _frame: pressed.append(number))
    except ValueError:  # not the main thread: it is never interrupted
        before = None
    try:
        yield pressed
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
