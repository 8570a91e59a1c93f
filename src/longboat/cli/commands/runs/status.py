"""`longboat status`: runs in full."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
import msgspec

from longboat.cli.commands.runs.ps import show_metrics
from longboat.cli.input.arguments import LATEST, output_option, runs_argument
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import plain, write
from longboat.cli.output.tables import print_fields, print_table
from longboat.cli.output.times import show_duration, show_moment
from longboat.core.resources import show_quantity
from longboat.core.runs import Attempt, RunStatus
from longboat.sdk.names import find_run


@click.command("status", short_help="Show runs in full.")
@runs_argument
@output_option()
@engine_options
def command(runs: Sequence[str], output: str) -> None:
    """Show runs in full: phase, reason, attempts, ranks, folders. Without RUN: the latest."""
    place = open_engine()
    statuses = [with_disk_use(find_run(place, run)) for run in runs or (LATEST,)]
    if output == "name":
        for run in statuses:
            print(run.name)
    elif output in ("json", "yaml"):
        records = [plain(run) for run in statuses]
        write(records if len(runs) > 1 else records[0], output)
    else:
        for number, run in enumerate(statuses):
            print("\n" * bool(number), end="")
            print_status(run, wide=output == "wide")


def with_disk_use(run: RunStatus) -> RunStatus:
    """Add the disk use of the run's folder. Not the engine's work: following a run must not read thousands of files."""
    if run.directory is None:
        return run
    from pathlib import Path

    from longboat.engines.shared.files import disk_use

    return msgspec.structs.replace(run, disk=disk_use(Path(run.directory)))


def print_status(run: RunStatus, *, wide: bool) -> None:
    now = time.time()
    lasted = show_duration((run.ended or now) - run.started) if run.started else None
    print_fields(
        [
            ("run", run.name),
            ("phase", run.phase),
            ("reason", run.reason),
            ("exit code", run.exit_code),
            ("command", run.command),
            ("created", f"{show_moment(run.created)} ({show_duration(now - run.created)} ago)"),
            ("time", lasted),
            ("nodes", run.nodes),
            ("gpus", run.gpus),
            ("priority", run.priority or None),
            ("attempt", f"{run.attempt + 1} of at most {run.retries + 1}"),
            ("retry", retry_words(run, now)),
            ("step", run.step),
            ("metrics", show_metrics(run.metrics)),
            ("checkpoint", run.checkpoint),
            ("checkpoints", run.checkpoint_dir),
            ("artifacts", run.artifacts_dir),
            ("disk", None if run.disk is None else f"{show_quantity(run.disk)}, without checkpoints"),
            ("directory", run.directory if wide else None),
            ("expired", show_moment(run.expired) if run.expired is not None else None),
            ("left", "; ".join(run.left) or ("nothing but this record" if run.expired is not None else None)),
            ("labels", ", ".join(f"{key}={value}" for key, value in sorted(run.labels.items()))),
        ]
    )
    failed = [attempt for attempt in run.attempts if attempt.failure]
    if wide or len(run.attempts) > 1 or failed:
        print()
        print_table(("ATTEMPT", "STARTED", "TIME", "RESUMED FROM", "END"), [attempt_row(a) for a in run.attempts])
    if run.ranks and (wide or len(run.ranks) > 1):
        print()
        print_ranks(run)
    if run.node_troubles:
        print()
        print_node_troubles(run, now)


def retry_words(run: RunStatus, now: float) -> str | None:
    if run.next_attempt is None:
        return None
    return f"in {show_duration(run.next_attempt - now)}" if run.next_attempt > now else "now"


def attempt_row(attempt: Attempt) -> tuple[object, ...]:
    lasted = show_duration(attempt.ended - attempt.started) if attempt.ended else None
    end = None
    if attempt.failure:
        where = f"rank {attempt.failure.rank.rank}: " if attempt.failure.rank else ""
        end = f"{attempt.failure.cause}, exit code {attempt.failure.exit_code}: {where}{attempt.failure.message}"
    return (attempt.number + 1, show_moment(attempt.started), lasted, attempt.resumed_from, end)


def print_ranks(run: RunStatus) -> None:
    rows = [
        (
            rank.rank,
            rank.node,
            "alive" if rank.alive else "ended" if rank.exit_code is not None else None,
            rank.exit_code,
            rank.step,
            show_duration(rank.silent_s) if rank.alive else None,
            show_metrics(rank.metrics),
        )
        for rank in run.ranks
    ]
    print_table(("RANK", "NODE", "STATE", "EXIT", "STEP", "SILENT", "METRICS"), rows)


def print_node_troubles(run: RunStatus, now: float) -> None:
    rows = [
        (
            trouble.node,
            numbers(trouble.ranks),
            trouble.what,
            show_duration(now - trouble.since) if trouble.since is not None else None,
            trouble.follows,
        )
        for trouble in run.node_troubles
    ]
    print_table(("NODE", "RANKS", "STATE", "FOR", "WHAT FOLLOWS"), rows)


def numbers(ranks: Sequence[int]) -> str:
    """Ranks as ranges: `0-7, 12`."""
    groups: list[list[int]] = []
    for rank in sorted(ranks):
        if groups and rank == groups[-1][1] + 1:
            groups[-1][1] = rank
        else:
            groups.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in groups)
