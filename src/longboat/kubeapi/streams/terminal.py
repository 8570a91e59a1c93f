"""Raw terminal of the user for exec: keys passed on as they are typed, its size when it changes. POSIX only."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


def size_of(number: int) -> tuple[int, int]:
    """(columns, lines)."""
    size = os.get_terminal_size(number)
    return size.columns, size.lines


@contextlib.contextmanager
def raw(number: int) -> Iterator[None]:
    """Raw mode: no echo, no line editing, Ctrl-C is a key like any other. As it was before, afterwards."""
    import termios
    import tty

    before = termios.tcgetattr(number)
    try:
        tty.setraw(number)
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


@contextlib.contextmanager
def resized(call: Callable[[], None]) -> Iterator[None]:
    """Call it whenever the window changes; never in a thread other than the main one, where no signal is heard, nor
    where a handler was set outside of Python, which could not put it back."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGWINCH) is None:
        yield
        return

    def heard(_number: int, _frame: Any) -> None:
        # Not here: the code that the signal interrupted may hold the very lock that `call` needs.
        threading.Thread(target=call, name="resized", daemon=True).start()

    before = signal.signal(signal.SIGWINCH, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
