"""`longboat wait`: block until runs have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from longboat.cli.attach import exit_code, notify_of_end
from longboat.cli.commands.runs.ps import print_runs, run_record
from longboat.cli.input.arguments import LATEST, duration_option, output_option, runs_argument
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import show
from longboat.cli.output.times import show_duration
from longboat.core.errors import WaitTimeout
from longboat.core.runs import RunStatus
from longboat.engines.engine import Engine
from longboat.sdk.names import find_run


@click.command("wait", short_help="Wait until runs have ended.")
@runs_argument
@duration_option("--timeout", help="Give up after this long; the runs go on.")
@output_option()
@engine_options
def command(runs: Sequence[str], timeout: float | None, output: str) -> int:
    """Wait until all these runs have ended (without RUN: the latest).

    Returns the trainer's exit code; of several runs, that of the first in the order given that failed.
    """
    place = open_engine()
    names = [find_run(place, run).name for run in runs or (LATEST,)]
    ended = wait_all(place, names, timeout)
    for run in ended:
        notify_of_end(place, run)
    show(ended, output, record=run_record, tables=lambda wide: print_runs(ended, wide=wide, now=time.time()))
    return next((code for code in map(exit_code, ended) if code), 0)


def wait_all(place: Engine, names: Sequence[str], timeout_s: float | None) -> list[RunStatus]:
    """Wait for all runs and return their final statuses; the timeout covers all of them together."""
    if timeout_s is None:
        return [place.wait(name) for name in names]
    end = time.monotonic() + timeout_s
    ended = []
    for name in names:
        try:
            ended.append(place.wait(name, timeout_s=max(end - time.monotonic(), 0.0)))
        except WaitTimeout:
            lasted = show_duration(timeout_s)
            raise WaitTimeout(f"{name} has not ended after {lasted}", hint="the run goes on") from None
    return ended
