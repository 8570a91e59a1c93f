"""`longboat logs`: the log of a run."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

import click

from longboat.cli.attach import exit_code
from longboat.cli.input.arguments import output_option, run_argument
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.log_printer import JsonPrinter, LinePrinter
from longboat.cli.output.terminal import clean, say
from longboat.cli.output.times import parse_moment
from longboat.core.errors import UsageError
from longboat.core.runs import LogQuery, RunStatus
from longboat.sdk.arguments import check_query
from longboat.sdk.names import find_run


@click.command("logs", short_help="Print the log of a run.")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Follow until the run has ended; returns its exit code.")
@click.option(
    "--rank", "ranks", type=click.IntRange(min=0), metavar="N", multiple=True, help="Only this rank. Repeatable."
)
@click.option("--role", "roles", metavar="NAME", multiple=True, help="Only this role. Repeatable.")
@click.option("--since", metavar="TIME", help="Only lines since 10m (ago), or 2025-01-31T12:00:00Z.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each rank.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Only this attempt, counted from 1.")
@click.option(
    "--grep", multiple=True, metavar="PATTERN", help="Only lines that match this regular expression. Repeatable."
)
@click.option("-i", "--ignore-case", is_flag=True, help="With --grep: ignore case.")
@click.option("-v", "--invert-match", is_flag=True, help="With --grep: only lines that do not match.")
@click.option("-t", "--timestamps", is_flag=True, help="Put the time before each line.")
@output_option("text", "json")
@engine_options
def command(run: str, timestamps: bool, output: str, **options: Any) -> int:
    """Print the log of a run: stdout to stdout, stderr to stderr. Without RUN: the latest.

    With several ranks each line begins with its node and rank: worker-0/1 |
    """
    place = open_engine()
    status = find_run(place, run)
    query = make_query(options, time.time(), output)
    if (query.ignore_case or query.invert_match) and not query.grep:
        raise UsageError("-i and -v go with --grep", hint=f"longboat logs {status.name} --grep PATTERN -i")
    check_query(status, query)
    printer: LinePrinter | JsonPrinter = JsonPrinter()
    if output == "text":
        printer = LinePrinter(
            prefixes=len(query.ranks) != 1 and is_many(status),
            timestamps=timestamps,
            attempts=status.retries + 1,
            highlight=highlight(query),
        )
    if query.follow and status.phase == "pending" and status.reason:
        say(f"longboat: {status.name} is pending: {clean(status.reason)}")
    for line in place.logs(status.name, query):
        printer(line)
    printer.close()
    return exit_code(place.wait(status.name)) if query.follow else 0


def make_query(options: dict[str, Any], now: float, output: str) -> LogQuery:
    since, attempt = options["since"], options["attempt"]
    return LogQuery(
        follow=options["follow"],
        ranks=tuple(options["ranks"]),
        roles=tuple(options["roles"]),
        since=None if since is None else parse_moment(since, now),
        tail=options["tail"],
        attempt=None if attempt is None else attempt - 1,
        grep=tuple(options["grep"]),
        ignore_case=options["ignore_case"],
        invert_match=options["invert_match"],
        pieces=options["follow"] and output == "text",
    )


def highlight(query: LogQuery) -> list[re.Pattern[bytes]]:
    """Patterns whose matches are coloured."""
    if query.invert_match:
        return []
    with contextlib.suppress(re.error):  # a pattern that is one for text only: its lines are found, without colour
        return [re.compile(pattern.encode(), re.IGNORECASE * query.ignore_case) for pattern in query.grep]
    return []


def is_many(run: RunStatus) -> bool:
    return run.spec.ranks > 1 if run.spec else len(run.ranks) > 1
