"""stdin of a run's only rank, as its submitter passes it on: `--stdin FOLDER`, run beside the node by exec.

The rank reads a named pipe. The launcher holds its other end open until the submitter's side has come, so that a rank
that reads at once waits for it; from then on the pipe ends with that side, however it ends. What comes is in frames,
each after its length, the last one empty: older API servers cannot pass on that an input has ended.

The first byte is sent alone. That the rank has read it is told (an empty line on stdout): nothing more is taken of the
submitter's input before, for a rank that reads none of it leaves it to others.
"""

from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..ranks.state import LauncherState

PIPE, READY = "stdin", "stdin-ready"
EXIT_USAGE, EXIT_LATE = 201, 202
COME_S = 60.0
"""The submitter's side comes as soon as it sees the container run. After this it is gone, and its input is empty."""
LOOK_S = 0.05  # between two looks for a pipe that the launcher is about to make
_F_SETPIPE_SZ = 1031
_ROOM = 65536  # of a pipe that is read
_BLOCK = 65536


def open_stdin(state: LauncherState) -> None:
    """Replace our stdin, which the only rank inherits, by a named pipe."""
    import fcntl

    pipe, ready = state.path(PIPE), state.path(READY)
    os.mkfifo(ready, 0o600)
    sign = os.open(ready, os.O_RDONLY | os.O_NONBLOCK)
    os.mkfifo(pipe + ".new", 0o600)
    reader = os.open(pipe + ".new", os.O_RDONLY | os.O_NONBLOCK)
    held = os.open(pipe + ".new", os.O_WRONLY)
    os.rename(pipe + ".new", pipe)  # whoever finds it finds a reader
    fcntl.fcntl(held, _F_SETPIPE_SZ, 1)  # rounded up to one page: it has room again when all that was in it was read
    os.set_blocking(reader, True)
    os.dup2(reader, 0)
    os.close(reader)

    def let_go() -> None:
        state.loop.cancel(PIPE)
        state.loop.unwatch(sign)
        os.close(sign)
        os.close(held)

    state.loop.watch(sign, let_go)  # whoever opens and closes it has come
    state.loop.after(PIPE, COME_S, let_go)


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        sys.stderr.write("usage: launcher --stdin FOLDER\n")
        return EXIT_USAGE
    try:
        writer = _join(argv[1])
    except OSError:
        sys.stderr.write("longboat launcher: nobody waits for input in %s\n" % argv[1])
        return EXIT_LATE
    try:
        is_wanted = False
        while True:
            data = _frame()
            if not data:
                return 0
            _write(writer, data)
            if not is_wanted:
                is_wanted = _is_read(writer)
                if not is_wanted:
                    return 0
                os.write(1, b"\n")
    except (BrokenPipeError, EOFError):
        return 0  # nobody reads any more, or nobody is there to send more


def _join(folder: str) -> int:
    """Open the pipe for writing. Raises OSError when the launcher has stopped waiting or has ended."""
    pipe, ready = os.path.join(folder, PIPE), os.path.join(folder, READY)
    until = time.monotonic() + COME_S
    while not os.path.exists(pipe) and time.monotonic() < until:
        time.sleep(LOOK_S)
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    os.close(os.open(ready, os.O_WRONLY | os.O_NONBLOCK))  # fails where the launcher has let go of it
    os.set_blocking(writer, True)
    return writer


def _frame() -> bytes:
    return _exactly(int.from_bytes(_exactly(4), "big"))


def _exactly(count: int) -> bytes:
    parts = []
    while count:
        data = os.read(0, min(count, _BLOCK))
        if not data:
            raise EOFError
        parts.append(data)
        count -= len(data)
    return b"".join(parts)


def _write(writer: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view) :]


def _is_read(writer: int) -> bool:
    """Wait until the rank has emptied the pipe. False: the submitter's side has closed before."""
    import fcntl

    poll = select.poll()
    poll.register(writer, select.POLLOUT)
    poll.register(0, 0)  # told of its end alone
    events = dict(poll.poll())
    if not events.get(writer, 0) & select.POLLOUT:
        return False
    try:
        fcntl.fcntl(writer, _F_SETPIPE_SZ, _ROOM)
    except OSError:
        pass  # the user's pipes have used up what the kernel allows: it goes on page by page
    return True
