"""`longboat prune`: remove old runs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import click
import msgspec

from longboat.cli.input.arguments import duration_option, output_option
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import plain, show
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import clean, is_terminal, say
from longboat.cli.output.times import show_duration
from longboat.core.errors import EngineError, UsageError
from longboat.core.resources import show_quantity
from longboat.core.runs import FINAL_PHASES, PrunedItem, PruneQuery
from longboat.engines.engine import Engine

HEAD = ("NAME", "WHAT", "PHASE", "ENDED", "SIZE", "USER")


@click.command("prune", short_help="Remove runs that ended long ago.")
@duration_option("--older-than", help="Runs that ended longer ago than this: 30d, 12h. Required.")
@click.option("--failed", is_flag=True, help="Only runs that failed.")
@click.option("--checkpoints", is_flag=True, help="Also checkpoints of runs that were removed that long ago.")
@click.option("--all-users", is_flag=True, help="On a cluster: also runs that others submitted.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@output_option()
@engine_options
def command(older_than: float | None, failed: bool, dry_run: bool, yes: bool, output: str, **options: bool) -> int:
    """Remove runs that ended long ago: their logs, artifacts and working copies; checkpoints stay.

    Runs that have not ended are never removed. On this machine the Python environments, imported data and code that no
    run needs any more go too; on a cluster, what others submitted stays. Sweeps that ended as long ago go with their
    runs. Prints the names of what it removed; asks first on a terminal.
    """
    if older_than is None:
        raise UsageError("say how old: --older-than", hint="longboat prune --older-than 30d --dry-run")
    place = open_engine()
    now = time.time()
    phases = ("failed",) if failed else FINAL_PHASES
    query = PruneQuery(ended_before=now - older_than, phases=phases, dry_run=True, **options)
    if query.checkpoints and place.name != "local":
        raise UsageError("--checkpoints is for removed runs of this machine", hint="on a cluster: rm --purge")
    is_asked = is_terminal(sys.stdin) and not yes
    if dry_run or is_asked:
        items = list(pruned(place, query))
        if dry_run:
            show(items, output, record=plain, tables=lambda _: print_items(items, now))
            say(f"would remove {summary(items)}")
            return 0
        print_items(items, now, is_message=True)
        if items:
            click.confirm(f"Remove {summary(items)}?", abort=True, err=True)
    return remove(pruned(place, msgspec.structs.replace(query, dry_run=False)), output)


def pruned(place: Engine, query: PruneQuery) -> Iterator[PrunedItem]:
    """Runs, and sweeps whose trials have all ended as long ago."""
    from longboat.engines.shared.home import Home
    from longboat.sdk.sweeps import prune_sweeps

    yield from place.prune(query)
    yield from prune_sweeps(Home(), place, query)


def remove(items: Iterable[PrunedItem], output: str) -> int:
    """Remove items and print each; the exit code is an engine error's if one could not be removed."""
    removed, is_whole = [], True
    for item in items:
        if item.problem is not None:
            is_whole = False
            say(f"not removed: {item.name}: {clean(item.problem)}")
            continue
        removed.append(item)
        if output in ("table", "wide", "name"):
            print(item.name, flush=True)
    if output in ("json", "yaml"):
        show(removed, output, record=plain, tables=lambda _: None)
    say(f"removed {summary(removed)}")
    return 0 if is_whole else EngineError.exit_code


def print_items(items: Sequence[PrunedItem], now: float, *, is_message: bool = False) -> None:
    if items:
        rows = [
            (
                item.name,
                item.kind,
                item.phase,
                None if item.ended is None else f"{show_duration(now - item.ended)} ago",
                None if item.size is None else show_quantity(item.size),
                item.user,
            )
            for item in items
        ]
        print_table(HEAD, rows, sys.stderr if is_message else sys.stdout)


def summary(items: Sequence[PrunedItem]) -> str:
    """`3 runs and 1 environment, 1.2Gi`; the size only where that of every item is known."""
    if not items:
        return "nothing"
    plurals = {
        "run": "runs",
        "sweep": "sweeps",
        "environment": "environments",
        "data": "data imports",
        "checkpoints": "checkpoint folders",
    }
    kinds = Counter(item.kind for item in items)
    words = [f"{count} {plurals[kind] if count > 1 else plurals[kind][:-1]}" for kind, count in kinds.items()]
    sizes = [item.size for item in items if item.size is not None]
    size = f", {show_quantity(sum(sizes))}" if len(sizes) == len(items) else ""
    return f"{' and '.join(words)}{size}"
