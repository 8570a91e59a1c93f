"""Messages of a workbench server in the log of its run."""

from __future__ import annotations

import sys


def tell(text: str) -> None:
    sys.stderr.write("longboat: %s\n" % text)
    sys.stderr.flush()


def told_duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return "%d %s" % (seconds // size, unit)
    return "%g s" % seconds
