"""`longboat stop`: ask runs to stop, and wait for it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from longboat.cli.input.arguments import duration_option, runs_argument
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.terminal import say
from longboat.core.errors import UsageError
from longboat.sdk.names import match


@click.command("stop", short_help="Stop runs.")
@runs_argument
@duration_option("--grace", help="Time the ranks have to end by themselves (default: the job's).")
@click.option("--all", "everything", is_flag=True, help="Every run that has not ended.")
@click.option("--wait/--no-wait", default=True, help="Return when the runs have ended (default), or at once.")
@engine_options
def command(runs: Sequence[str], grace: float | None, everything: bool, wait: bool) -> None:
    """Stop runs: SIGTERM to every rank, SIGKILL after the grace. Prints the names of the runs it stopped."""
    if bool(runs) == everything:
        raise UsageError("name the runs to stop, or --all", hint="longboat ps lists them; - is the latest")
    place = open_engine()
    # One list, and not `find_run`: that asks every rank how it is, which takes as long as the stop itself.
    known = {run.name: run for run in place.list()}
    if everything:
        statuses = [run for run in known.values() if not run.is_final]
    else:
        statuses = [known[match(run, list(known), is_whole=True)] for run in runs]
    alive = [run.name for run in statuses if not run.is_final]
    for run in statuses:
        if run.is_final:
            say(f"{run.name} has ended already: {run.phase}")
    for name in alive:
        place.stop(name, grace_s=grace)
    for name in alive:
        if wait:
            place.wait(name)
        print(name)
