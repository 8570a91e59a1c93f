"""`longboat checkpoint`: checkpoints of a run, one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from longboat.cli.input.arguments import LATEST, output_option, run_argument, run_names
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import plain, show, write
from longboat.cli.output.tables import print_table, show_metrics
from longboat.cli.output.terminal import say
from longboat.cli.output.times import show_moment
from longboat.core.errors import CheckpointDamaged, NotFound, UsageError
from longboat.core.resources import show_quantity
from longboat.core.words import counted
from longboat.sdk.names import find_run
from longboat.sdk.records import checkpoint_record

if TYPE_CHECKING:
    from longboat.storage.inventory.entries import CheckpointCheck, CheckpointEntry, CheckpointPlace


@click.group("checkpoint", short_help="List, fetch, remove, promote and verify checkpoints.")
def command() -> None:
    """Checkpoints of a run, one by one. RUN:STEP is one of them, RUN:newest and RUN:promoted too."""


def split(word: str) -> tuple[str, str]:
    """`RUN:STEP`; without a step the second is empty."""
    run, _, step = word.partition(":")
    return run or LATEST, step


@contextlib.contextmanager
def opened(run: str, *, is_whole: bool = False) -> Iterator[tuple[str, bool, CheckpointPlace]]:
    """Name of the run, whether it has ended, and its checkpoints; also of a removed run that left them, which comes
    before a run that only begins like this. `is_whole`: a beginning is not enough."""
    engine = open_engine()
    try:
        status = find_run(engine, run, is_whole=True)
        name, is_final = status.name, status.is_final
    except NotFound:
        if run != LATEST and engine.kept_checkpoints(run) is not None:
            name, is_final = run, True
        elif is_whole:
            raise
        else:
            status = find_run(engine, run)
            name, is_final = status.name, status.is_final
    with engine.checkpoints(name) as place:
        yield name, is_final, place


@command.command("ls", short_help="List the checkpoints of a run.")
@run_argument
@output_option()
@engine_options
def list_command(run: str, output: str) -> None:
    """List the checkpoints of a run: step, size, metrics, and whether they are complete."""
    with opened(run) as (name, _, place):
        entries = place.entries()
        where = place.where
    if not entries and output in ("table", "wide"):
        say(f"{name} has no checkpoints in {where}")
        return
    show(entries, output, record=checkpoint_record, tables=lambda wide: print_entries(entries, wide=wide))


def print_entries(entries: Sequence[CheckpointEntry], *, wide: bool) -> None:
    head = ("STEP", "SIZE", "FILES", "SAVED", "STATE", "METRICS")
    rows = [
        (
            entry.step,
            show_quantity(entry.size),
            entry.files,
            None if entry.time is None else show_moment(entry.time),
            state_words(entry),
            show_metrics(entry.metrics),
            entry.where,
        )
        for entry in entries
    ]
    print_table((*head, "WHERE") if wide else head, rows if wide else [row[:-1] for row in rows])


def state_words(entry: CheckpointEntry) -> str:
    if not entry.complete:
        return entry.note
    words = ["complete", *["newest"] * entry.newest, *["promoted"] * entry.promoted]
    return ", ".join(words)


@command.command("get", short_help="Copy a checkpoint here, whole or not at all.")
@click.argument("checkpoint", metavar="RUN[:STEP]", shell_complete=run_names)
@click.argument("folder", metavar="DIR", type=click.Path(readable=False, path_type=Path))
@engine_options
def get_command(checkpoint: str, folder: Path) -> None:
    """Copy a checkpoint here, whole or not at all; without STEP the newest complete one. Prints where it is.

    Into DIR if that is a folder, else as DIR itself.
    """
    from longboat.storage.inventory.actions import get

    run, wanted = split(checkpoint)
    with opened(run) as (name, _, place):
        print(get(place, name, wanted, folder))


@command.command("rm")
@click.argument("checkpoints", nargs=-1, required=True, metavar="RUN:STEP...", shell_complete=run_names)
@click.option("-f", "--force", is_flag=True, help="Also promoted ones, and the newest of a run that has not ended.")
@engine_options
def remove_command(checkpoints: Sequence[str], force: bool) -> None:
    """Remove checkpoints. Prints those that it removed."""
    from longboat.storage.inventory.actions import remove

    steps: dict[str, list[str]] = {}
    for word in checkpoints:
        run, wanted = split(word)
        if word.startswith(":"):
            raise UsageError(f"{word}: of which run?", hint=f"RUN{word}; longboat ps -a lists all runs")
        if not wanted:
            raise UsageError(f"{word}: which of its checkpoints?", hint=f"{word}:STEP; longboat rm --purge removes all")
        steps.setdefault(run, []).append(wanted)
    for run, wanted_steps in steps.items():
        with opened(run, is_whole=True) as (name, is_final, place):
            for entry in remove(place, name, wanted_steps, is_final=is_final, force=force):
                print(f"{name}:{entry.step}")


@command.command("promote", short_help="Mark a checkpoint: `keep` never removes it.")
@click.argument("checkpoint", metavar="RUN[:STEP]", shell_complete=run_names)
@click.option("--undo", is_flag=True, help="Take the mark away.")
@engine_options
def promote_command(checkpoint: str, undo: bool) -> None:
    """Mark a checkpoint, the newest without STEP, so that `keep` never removes it. RUN:promoted names it."""
    from longboat.storage.inventory.actions import promote

    run, wanted = split(checkpoint)
    with opened(run, is_whole=True) as (name, _, place):
        entry = promote(place, name, wanted, undo=undo)
    print(f"{name}:{entry.step}")


@command.command("verify")
@click.argument("checkpoint", metavar="RUN[:STEP]", shell_complete=run_names)
@output_option("table", "json", "yaml")
@engine_options
def verify_command(checkpoint: str, output: str) -> None:
    """Read a checkpoint and compare it with what was written.

    Without STEP: every complete one. Exit code 205 if something differs.
    """
    from longboat.storage.inventory.actions import verify

    run, wanted = split(checkpoint)
    with opened(run) as (name, _, place):
        checks = verify(place, name, wanted)
    if output == "table":
        print_checks(checks)
    else:
        write([plain(check) for check in checks], output)
    damaged = [check for check in checks if check.problems]
    if damaged:
        first = damaged[0]
        raise CheckpointDamaged(
            f"{counted(len(damaged), 'checkpoint')} of {name} damaged: step {first.step}: {first.problems[0]}",
            hint=f"longboat checkpoint rm {name}:{first.step}, so that nothing starts from it",
        )


def print_checks(checks: Sequence[CheckpointCheck]) -> None:
    rows = [
        (check.step, show_quantity(check.size), check.files, check.compared, "; ".join(check.problems[:3]) or "fine")
        for check in checks
    ]
    print_table(("STEP", "SIZE", "FILES", "COMPARED", "RESULT"), rows)
