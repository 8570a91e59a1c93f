"""`longboat rm`: remove runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from longboat.cli.input.arguments import runs_argument
from longboat.cli.input.engine_option import engine_options, open_engine, placed
from longboat.cli.output.terminal import is_terminal, say
from longboat.core.errors import EngineError, UsageError
from longboat.core.runs import RunStatus
from longboat.core.words import counted
from longboat.engines.engine import Engine
from longboat.sdk.names import find_run


@click.command("rm", short_help="Remove runs; checkpoints stay.")
@runs_argument
@click.option("--purge", is_flag=True, help="Remove the checkpoints too.")
@click.option(
    "-f", "--force", is_flag=True, help="Also runs that have not ended, or cannot be read: they are stopped first."
)
@click.option("--all", "everything", is_flag=True, help="All ended runs; with --force all runs.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@engine_options
def command(runs: Sequence[str], purge: bool, force: bool, everything: bool, yes: bool) -> None:
    """Remove runs: their logs, artifacts and working copies. Prints the names of the runs it removed."""
    if bool(runs) == everything:
        raise UsageError("name the runs to remove, or --all", hint="longboat ps -a lists them; - is the latest")
    place = open_engine()
    damaged: list[str] = []
    if everything:
        found = [run for run in place.list() if force or run.is_final]
    else:
        found, damaged = chosen(place, runs, force=force)
    alive = [run.name for run in found if not run.is_final]
    if alive and not force:
        names = " ".join(alive)
        raise UsageError(
            f"{', '.join(alive)} {'has' if len(alive) == 1 else 'have'} not ended",
            hint=f"{placed(f'longboat stop {names}')}, or longboat rm --force",
        )
    if not yes and (purge or everything) and is_terminal(sys.stdin):
        confirm(found, purge=purge)
    for name in dict.fromkeys([*(run.name for run in found), *damaged]):
        place.delete(name, purge=purge)
        print(name)


def chosen(place: Engine, runs: Sequence[str], *, force: bool) -> tuple[list[RunStatus], list[str]]:
    """The runs that are meant; by force also those of an exact name whose record cannot be read."""
    found, damaged = [], []
    for run in runs:
        try:
            found.append(find_run(place, run, is_whole=True))
        except EngineError:
            if not force:
                raise
            damaged.append(run)
    return found, damaged


def confirm(found: Sequence[RunStatus], *, purge: bool) -> None:
    """Ask before many runs or checkpoints go; only where somebody can answer."""
    names = ", ".join(run.name for run in found[:8]) + (", ..." if len(found) > 8 else "")
    say(f"{counted(len(found), 'run')}: {names}")
    what = "Remove them with their checkpoints?" if purge else "Remove them?"
    click.confirm(what, abort=True, err=True)
