"""`longboat ps`: the list of runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import click

from longboat.cli.input.arguments import output_option
from longboat.cli.input.engine_option import engine_options, open_engine, placed, same_place, several_names
from longboat.cli.output.formats import show
from longboat.cli.output.tables import print_table, show_metrics
from longboat.cli.output.terminal import note, say
from longboat.cli.output.times import show_duration
from longboat.core.errors import UsageError
from longboat.core.runs import RunStatus
from longboat.core.words import counted
from longboat.sdk.records import run_record as run_record

RECENT_S = 24 * 3600  # of ended runs, those of the last day: `-a` shows all
HEAD = ("NAME", "PHASE", "NODES", "GPUS", "AGE", "TIME", "EXIT", "INFO")
WIDE_HEAD = (*HEAD[:-1], "TRY", "STEP", "METRICS", "ENGINE", "USER", "COMMAND", "INFO")
TERM = re.compile(r"(?P<absent>!?)(?P<key>[\w./-]+)|(?P<label>[\w./-]+)\s*(?P<equals>==?|!=)\s*(?P<value>[\w.-]*)")
"""One term of a label selector: a label is there, or not, or has (not) this value."""


@click.command("ps", short_help="List runs.")
@click.option("-a", "--all", "everything", is_flag=True, help="Also runs that ended more than a day ago.")
@click.option("-l", "--label", "labels", multiple=True, metavar="K[=V]", help="Only runs with this label, or K!=V.")
@click.option("-w", "--watch", is_flag=True, help="Watch until Ctrl-C: redrawn on a terminal, else a line per change.")
@output_option()
@engine_options
def command(everything: bool, labels: Sequence[str], watch: bool, output: str) -> int:
    """List runs, newest first: those that have not ended, and those that ended within a day."""
    wanted = selector(labels)
    if not watch:
        tell_lost()
    if len(several_names() or ()) > 1:
        from longboat.cli.commands.runs.ps_several import list_several

        return list_several(lambda run, now: wanted(run.labels) and (everything or is_recent(run, now)), output, watch)
    place = open_engine()
    if watch:
        from longboat.cli.output.watching import RunTable, watch_runs

        def look() -> list[RunStatus]:
            now = time.time()
            return [run for run in place.list() if wanted(run.labels) and (everything or is_recent(run, now))]

        return watch_runs(look, RunTable(output, run_record, row, HEAD, WIDE_HEAD))
    now = time.time()
    known = place.list()
    listed = [run for run in known if wanted(run.labels)]
    runs = [run for run in listed if everything or is_recent(run, now)]
    if output in ("wide", "json", "yaml"):
        runs = list(place.with_steps(runs))
    if known and not listed:
        say(f"no run matches {unmatched(labels, known)}")
    if runs or not known or output not in ("table", "wide"):
        show(runs, output, record=run_record, tables=lambda wide: print_runs(runs, wide=wide, now=now))
    if len(runs) < len(listed) and output in ("table", "wide"):
        more = "more" if runs else f"{counted(len(listed), 'run').partition(' ')[2]} ended more than a day ago"
        say(f"{len(listed) - len(runs)} {more}: {placed('longboat ps -a')}")
    return 0


def tell_lost() -> None:
    """Runs of `run --failover -d` that no list shows: no place took them, or nobody looks after them."""
    from longboat.engines.shared.home import Home

    home = Home()
    if any((home.root / "failovers").glob("*.json")):
        from longboat.multicluster.failover import lost_runs

        for text in lost_runs(home).values():
            note(text)


def is_recent(run: RunStatus, now: float) -> bool:
    return not run.is_final or run.ended is None or now - run.ended < RECENT_S


def print_runs(runs: Sequence[RunStatus], *, wide: bool, now: float) -> None:
    if not runs:
        say(f"no runs: start one with longboat run{same_place()} train.py")
        return
    print_table(WIDE_HEAD if wide else HEAD, [row(run, wide=wide, now=now) for run in runs])


def row(run: RunStatus, *, wide: bool, now: float) -> tuple[object, ...]:
    lasted = show_duration((run.ended or now) - run.started) if run.started else None
    first = (run.name, run.phase, run.nodes, run.gpus, show_duration(now - run.created), lasted, run.exit_code)
    info = "; ".join(filter(None, (run.reason, "expired" if run.expired is not None else "")))
    if not wide:
        return (*first, info)
    tries, metrics = f"{run.attempt + 1}/{run.retries + 1}", show_metrics(run.metrics)
    return (*first, tries, run.step, metrics, run.engine, run.user, run.command, info)


def selector(texts: Sequence[str]) -> Callable[[dict[str, str]], bool]:
    """Parse label selectors (`k=v`, `k==v`, `k!=v`, `k`, `!k`, joined by commas or repeated) into a predicate."""
    terms = [_term(part) for part in parts(texts)]
    return lambda labels: all(holds(labels) for holds in terms)


def parts(texts: Sequence[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",")]


def unmatched(texts: Sequence[str], runs: Sequence[RunStatus]) -> str:
    """Selector terms that match no run; where each matches some, all terms."""
    alone = [part for part in parts(texts) if not any(_term(part)(run.labels) for run in runs)]
    return ", ".join(alone) or f"all of {', '.join(parts(texts))}"


def _term(text: str) -> Callable[[dict[str, str]], bool]:
    match = TERM.fullmatch(text)
    if match is None:  # taken as it is, it would select nothing, and look as if there were no runs
        problem = f"{text!r} is not a label selector" if text else "an empty label selector"
        raise UsageError(
            problem, hint="write it like team=vision,stage!=test; also team (it is there) and !team (it is not)"
        )
    if match["key"]:
        return lambda labels: (match["key"] in labels) is not bool(match["absent"])
    return lambda labels: (labels.get(match["label"]) == match["value"]) is (match["equals"] != "!=")
