"""A command that cannot open some device files: `launcher --isolated auto|required DEVICES COMMAND...`.

DEVICES are paths with commas between them. Where they cannot be hidden, `auto` runs the command all the same.
"""

from __future__ import annotations

import os
import sys

from .node.device_isolation import hide

EXIT_USAGE, EXIT_SETUP = 201, 209
EXIT_NOT_STARTED = 126  # what a shell gives


def main(argv: list[str]) -> int:
    if len(argv) < 4 or argv[1] not in ("auto", "required"):
        sys.stderr.write("usage: launcher --isolated auto|required DEVICES COMMAND...\n")
        return EXIT_USAGE
    try:
        hide(argv[2].split(","))
    except OSError as error:
        if argv[1] == "required":
            sys.stderr.write("%s\n" % (error.strerror or error))
            return EXIT_SETUP
    try:
        os.execv(argv[3], argv[3:])
    except OSError as error:
        sys.stderr.write("%s: %s\n" % (argv[3], error.strerror))
        return EXIT_NOT_STARTED
