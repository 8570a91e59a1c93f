"""`longboat rm`: remove runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

import click

from longboat.cli.input.arguments import runs_argument
from longboat.cli.input.engine_option import engine_options, open_engine, placed
from longboat.cli.output.terminal import is_terminal, say
from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.runs import RunStatus
from longboat.core.words import counted, listing
from longboat.engines.engine import Engine
from longboat.sdk.names import find_run


@click.command("rm", short_help="Remove runs; checkpoints stay.")
@runs_argument
@click.option("--purge", is_flag=True, help="Remove the checkpoints too; also of a run that was removed before.")
@click.option(
    "-f", "--force", is_flag=True, help="Also runs that have not ended, or cannot be read: they are stopped first."
)
@click.option("--all", "everything", is_flag=True, help="All ended runs; with --force all runs.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@engine_options
def command(runs: Sequence[str], purge: bool, force: bool, everything: bool, yes: bool) -> None:
    """Remove runs: their logs, artifacts and working copies; checkpoints stay. Prints the names of what it removed."""
    if bool(runs) == everything:
        raise UsageError("name the runs to remove, or --all", hint="longboat ps -a lists them; - is the latest")
    place = open_engine()
    unread: list[str] = []
    if everything:
        statuses = [run for run in place.list() if force or run.is_final]
    else:
        statuses, unread = chosen(place, runs, force=force, purge=purge)
    names = list(dict.fromkeys([*(run.name for run in statuses), *unread]))
    alive = [run.name for run in statuses if not run.is_final]
    if alive and not force:
        raise UsageError(
            f"{', '.join(alive)} {'has' if len(alive) == 1 else 'have'} not ended",
            hint=f"{placed('longboat stop ' + ' '.join(alive))}, or longboat rm --force",
        )
    if not yes and (purge or everything) and is_terminal(sys.stdin):
        confirm(names, purge=purge)
    for name in names:
        place.delete(name, purge=purge)
        print(name)


def chosen(place: Engine, runs: Sequence[str], *, force: bool, purge: bool) -> tuple[list[RunStatus], list[str]]:
    """Resolve the runs to remove.

    Also returns exact names of runs without a status: those with an unreadable record (with force), and removed ones
    whose checkpoints are to be purged.
    """
    statuses, unread = [], []
    for run in runs:
        try:
            statuses.append(find_run(place, run, is_whole=True))
        except EngineError:
            if not force:
                raise
            unread.append(run)
        except NotFound:
            if not purge or place.kept_checkpoints(run) is None:
                with contextlib.suppress(NotFound):
                    place.delete(run, purge=purge)  # what a removal that was killed has left goes all the same
                raise
            unread.append(run)
    return statuses, unread


def confirm(runs: Sequence[str], *, purge: bool) -> None:
    """Ask for confirmation before many runs or checkpoints are removed, on a terminal only."""
    say(f"{counted(len(runs), 'run')}: {listing(runs, 8)}")
    question = "Remove them with their checkpoints?" if purge else "Remove them?"
    click.confirm(question, abort=True, err=True)
