"""`longboat priority`: the place of a waiting run."""

from __future__ import annotations

import click

from longboat.cli.input.arguments import run_names
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.terminal import say
from longboat.sdk.names import find_run


@click.command("priority", short_help="Change the priority of a waiting run.")
@click.argument("run", shell_complete=run_names)
@click.argument("number", type=int, metavar="N")
@engine_options
def command(run: str, number: int) -> None:
    """Change the priority of a run that waits: runs with a higher one start first.

    For a negative number: longboat priority -- RUN -5
    """
    place = open_engine()
    name = find_run(place, run).name
    place.set_priority(name, number)
    say(f"longboat: {name} has priority {number}")
