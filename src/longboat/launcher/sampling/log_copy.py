"""A copy of the node's metrics on the pod's log, thinned and packed: without a storage, all that outlives a container.

Each line has the form of a piece of an unfinished line that nobody began (`ranks.pod_log`): readers of logs pass over
it. The text is base64 of zlib.
"""

from __future__ import annotations

import os
import select
import time

from ..node.jsonfiles import dumps, read_bytes
from ..ranks.pod_log import stamp
from .series_file import NAME, STEPS, fit, read_header, read_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..ranks.state import LauncherState

START = 10**12
"""Where the piece begins in its line: no line is that long."""
LINE = 3900
"""Characters: with its prefix a line is what a pipe that is ready takes without blocking."""
PATIENCE_S = 10.0
"""The end of the node waits no longer, in all, for a reader of its stdout that takes nothing, or little at a time."""
PLAIN_BYTES = 96 << 10
"""Before it is packed, which takes four fifths of it away."""


EARLIER_MAX = 8
"""Attempts before this one in the same pod that are written once more: readers look at the end of a log."""


def write_log_copy(state: LauncherState) -> None:
    """Write the metrics to stdout, if there are any: this attempt's, and those before it in the same pod. Best
    effort."""
    again, plan = state.plan.again or {}, state.plan
    until = time.monotonic() + PATIENCE_S
    first = int(again.get("first", plan.attempt))
    for number in range(max(first, plan.attempt - EARLIER_MAX), plan.attempt):
        mark = "" if number == first else "@%d" % number
        _write(state.path("attempts", str(number), NAME), mark, until)
    _write(state.path(NAME), plan.mark, until)


def _write(path: str, mark: str, until: float) -> None:
    try:
        text = packed(read_bytes(path))
        now = stamp(time.time_ns())
        out = select.poll()
        out.register(1, select.POLLOUT)
        for number, at in enumerate(range(0, len(text), LINE)):
            line = "node.err%s+%d 0 %s %s\n" % (mark, START + number, now, text[at : at + LINE])
            if not out.poll(max(until - time.monotonic(), 0.0) * 1000):
                return
            os.write(1, line.encode("ascii"))
    except OSError:
        pass


def packed(data: bytes) -> str:
    """A file of metrics in few characters. Pure."""
    import zlib
    from binascii import b2a_base64

    rows = read_rows(data)
    lines = [dumps(read_header(data))]
    for is_step in (True, False):
        chosen = [row for row in rows if (row[0] in STEPS) == is_step]
        lines += fit(chosen, 0.0, 0.1 if is_step else 5.0, PLAIN_BYTES // 2)[1]
    return b2a_base64(zlib.compress("\n".join(lines).encode("ascii"), 9), newline=False).decode("ascii")
