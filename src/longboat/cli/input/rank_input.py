"""stdin of an attached run's only rank: pipes and files are handed over as they are, a terminal never is.

Ranks are in a session of their own, where job control stops nobody's reads: a rank that had the terminal would take
what is typed in the shell once this command was stopped, was put in the background or has left. So the rank reads a
pipe that this command fills while it is in the foreground, and that ends with it. The terminal stays in its usual mode:
lines are edited and echoed there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator

from longboat.cli.output.terminal import is_terminal, may_read_stdin

STDIN = 0
LINE_BYTES = 4096
"""The longest line that a terminal gives, and what the smallest pipe holds."""
BACKGROUND_S = 0.3
"""While the shell has the terminal, this long between two looks whether that is over."""


@contextlib.contextmanager
def rank_input(ranks: int) -> Iterator[int | None]:
    """Yield the descriptor that becomes the rank's stdin, None for no stdin; then forward what is typed."""
    if ranks != 1 or not may_read_stdin():
        yield None
    elif not is_terminal(sys.stdin):
        yield STDIN
    else:
        reader, writer = os.pipe()
        try:
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1)  # rounded up to one page: see `pass_on`
            yield reader
        except BaseException:
            os.close(writer)
            raise
        finally:
            os.close(reader)
        threading.Thread(target=pass_on, args=(STDIN, writer), name="stdin", daemon=True).start()


def pass_on(terminal: int, writer: int) -> None:
    """Forward the terminal to the rank until Ctrl-D or until the rank closes its stdin.

    A pipe of one page takes the next write when all of the last was read. So at most one line is taken that the rank
    did not ask for; what was typed behind it is the shell's, as it is after any command that does not read.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN})  # a read in the background fails and stops nobody
    has_room = select.poll()
    has_room.register(writer, select.POLLOUT)
    try:
        while has_room.poll() == [(writer, select.POLLOUT)] and (data := _typed(terminal, writer)):
            os.write(writer, data)
    except OSError:  # the terminal or the last reader has gone
        pass
    finally:
        os.close(writer)


def _typed(terminal: int, writer: int) -> bytes:
    """Read the next line; empty at end of input, or when the rank has closed its stdin."""
    events = select.poll()
    events.register(terminal, select.POLLIN)
    events.register(writer, 0)  # told of errors alone
    while True:
        ready = dict(events.poll())
        if writer in ready:
            return b""
        if may_read_stdin():
            try:
                return os.read(terminal, LINE_BYTES)
            except OSError as error:
                if error.errno != errno.EIO or ready[terminal] & select.POLLHUP:
                    raise
        time.sleep(BACKGROUND_S)
