"""`longboat wait`: block until runs have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from longboat.cli.arguments import LATEST, duration_option, output_option, runs_argument
from longboat.cli.attach import exit_code
from longboat.cli.outputs import show
from longboat.cli.places import open_engine
from longboat.cli.ps import print_runs, run_record
from longboat.sdk.names import find_run


@click.command("wait", short_help="Wait until runs have ended.")
@runs_argument
@duration_option("--timeout", help="Give up after this long; the runs go on.")
@output_option()
def command(runs: Sequence[str], timeout: float | None, output: str) -> int:
    """Wait until all these runs have ended (without RUN: the latest).

    Returns the trainer's exit code; of several runs, that of the first in the order given that failed.
    """
    place = open_engine()
    names = [find_run(place, run).name for run in runs or (LATEST,)]
    end = None if timeout is None else time.monotonic() + timeout
    ended = [place.wait(name, timeout_s=None if end is None else max(end - time.monotonic(), 0.0)) for name in names]
    show(ended, output, record=run_record, tables=lambda wide: print_runs(ended, wide=wide, now=time.time()))
    return next((code for code in map(exit_code, ended) if code), 0)
