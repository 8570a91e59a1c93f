"""`longboat doctor`: is this machine fit."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from longboat.cli.input.arguments import output_option
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import plain, write
from longboat.cli.output.terminal import clean, paint
from longboat.core.errors import EngineError
from longboat.core.plans import DoctorCheck

MARKS = {True: ("ok", "green"), False: ("FAILED", "red"), None: ("none", "dim")}


@click.command("doctor", short_help="Check this machine.")
@output_option("table", "wide", "json", "yaml", "name")
@engine_options
def command(output: str) -> int:
    """Check what runs need on this machine (or, with --on, in a cluster), and say how to mend what is missing."""
    checks = open_engine().doctor()
    if output in ("json", "yaml"):
        write([plain(check) for check in checks], output)
    elif output == "name":
        for check in checks:
            print(check.name)
    else:
        print_checks(checks)
    return EngineError.exit_code if any(check.ok is False for check in checks) else 0


def print_checks(checks: Sequence[DoctorCheck]) -> None:
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        word, colour = MARKS[check.ok]
        print(f"{paint(word.ljust(6), colour, sys.stdout)}  {check.name.ljust(width)}  {clean(check.detail)}".rstrip())
        if check.hint and check.ok is not True:
            print(f"        {' ' * width}  hint: {clean(check.hint)}")
