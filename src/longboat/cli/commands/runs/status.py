"""`longboat status`: runs in full."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click
import msgspec

from longboat.cli.input.arguments import LATEST, output_option, runs_argument
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import plain, write
from longboat.cli.output.tables import print_fields, print_table, show_metrics
from longboat.cli.output.terminal import clean, paint
from longboat.cli.output.times import show_duration, show_moment
from longboat.core.errors import NotFound
from longboat.core.resources import show_quantity
from longboat.core.runs import Attempt, RunStatus
from longboat.core.words import three_digits
from longboat.engines.engine import Engine
from longboat.engines.shared.explanations import restart_words
from longboat.sdk.names import find_run


@click.command("status", short_help="Show runs in full.")
@runs_argument
@output_option()
@engine_options
def command(runs: Sequence[str], output: str) -> None:
    """Show runs in full: phase, reason, attempts, ranks, folders. Without RUN: the latest."""
    place = open_engine()
    statuses = [with_sweep(with_disk_use(find_or_tell(place, run))) for run in runs or (LATEST,)]
    if output == "name":
        for run in statuses:
            print(run.name)
    elif output in ("json", "yaml"):
        records = [plain(run) for run in statuses]
        write(records if len(runs) > 1 else records[0], output)
    else:
        for number, run in enumerate(statuses):
            print("\n" * bool(number), end="")
            print_status(run, wide=output == "wide", cost=cost_of(place, run))


def with_sweep(run: RunStatus) -> RunStatus:
    """Who stopped a trial early, as its reason."""
    if "sweep" not in run.labels:
        return run
    from longboat.engines.shared.home import Home
    from longboat.sdk.sweeps import pruned_words

    words = pruned_words(Home(), run)
    return run if words is None else msgspec.structs.replace(run, reason=words)


def find_or_tell(place: Engine, run: str) -> RunStatus:
    """The run; of one that `run --failover -d` brought to no place, the error says so."""
    try:
        return find_run(place, run)
    except NotFound as error:
        from longboat.engines.shared.home import Home
        from longboat.multicluster.failover import lost_runs

        text = lost_runs(Home()).get(run)
        raise error if text is None else NotFound(text) from None


def cost_of(place: Engine, run: RunStatus) -> str | None:
    """What its GPU-hours cost by the price that was set; None where none was, and for one's own machines."""
    if not run.gpu_hours:
        return None
    from longboat.multicluster.ask import set_price
    from longboat.sdk.places import currency

    price = set_price(place)
    return f"{run.gpu_hours * price:,.2f} {currency()}" if price else None


def with_disk_use(run: RunStatus) -> RunStatus:
    """Add the disk use of the run's folder. Not the engine's work: following a run must not read thousands of files."""
    if run.directory is None:
        return run
    from pathlib import Path

    from longboat.engines.shared.files import disk_use

    return msgspec.structs.replace(run, disk=disk_use(Path(run.directory)))


def spare_words(run: RunStatus) -> str | None:
    """`worker-4 is ready on gpu-7`, of spares that there are; None: the job has none, or they have ended."""
    words = []
    for spare in run.spares:
        state = "is ready" if spare.is_ready else "prepares itself" if spare.since else "has not started"
        words.append(f"{spare.node} {state}" + (f" on {spare.host}" if spare.host else ""))
    return "; ".join(words) or None


def print_status(run: RunStatus, *, wide: bool, cost: str | None = None) -> None:
    now = time.time()
    print_fields(status_fields(run, now, wide=wide, cost=cost))
    for finding in run.findings:
        print(paint(f"notice: {clean(finding)}", "yellow", sys.stdout))
    failed = [attempt for attempt in run.attempts if attempt.failure]
    if wide or len(run.attempts) > 1 or failed:
        print()
        rows = [attempt_row(attempt, run.attempts, with_size=bool(run.size)) for attempt in run.attempts]
        size = ("NODES",) if run.size else ()
        print_table(("ATTEMPT", *size, "STARTED", "HOW", "TIME", "RESUMED FROM", "END"), rows)
    if run.ranks and (wide or len(run.ranks) > 1):
        print()
        print_ranks(run)
    if run.node_troubles:
        print()
        print_node_troubles(run, now)


def status_fields(run: RunStatus, now: float, *, wide: bool, cost: str | None) -> list[tuple[str, object]]:
    lasted = show_duration((run.ended or now) - run.started) if run.started else None
    return [
        ("run", run.name),
        ("phase", run.phase),
        ("reason", run.reason),
        ("exit code", run.exit_code),
        ("command", run.command),
        ("created", f"{show_moment(run.created)} ({show_duration(now - run.created)} ago)"),
        ("time", lasted),
        ("nodes", run.nodes if not run.size else size_words(run)),
        ("spares", spare_words(run)),
        ("gpus", run.gpus),
        ("priority", run.priority or None),
        ("attempt", f"{run.attempt + 1} of at most {run.retries + run.resizes + 1}"),
        ("retry", retry_words(run, now)),
        ("step", run.step),
        ("pace", pace_words(run)),
        ("metrics", show_metrics(run.metrics)),
        ("gpu hours", None if run.gpu_hours is None else f"{run.gpu_hours:.2f}"),
        ("cost", cost),
        ("checkpoint", run.checkpoint),
        ("checkpoints", run.checkpoint_dir),
        ("drill", run.drill),
        ("artifacts", run.artifacts_dir),
        ("disk", None if run.disk is None else f"{show_quantity(run.disk)}, without checkpoints"),
        ("directory", run.directory if wide else None),
        ("expired", show_moment(run.expired) if run.expired is not None else None),
        ("left", "; ".join(run.left) or ("nothing but this record" if run.expired is not None else None)),
        ("labels", ", ".join(f"{key}={value}" for key, value in sorted(run.labels.items()))),
    ]


def pace_words(run: RunStatus) -> str | None:
    if run.steps_per_s is None or run.step_s is None:
        return None
    each = f"{three_digits(run.step_s)} s" if run.step_s >= 1 else f"{three_digits(1000 * run.step_s)} ms"
    data = "" if run.data_share is None else f", {run.data_share:.0%} of it waiting for data"
    return f"{three_digits(run.steps_per_s)} steps/s, {each} per step{data}"


def retry_words(run: RunStatus, now: float) -> str | None:
    if run.next_attempt is None:
        return None
    return f"in {show_duration(run.next_attempt - now)}" if run.next_attempt > now else "now"


def size_words(run: RunStatus) -> str:
    """Of an elastic run: `4 of 2-8 nodes: with 5 nodes it waits for ...`."""
    return f"{run.size}: {run.size_reason}" if run.size_reason else run.size


def attempt_row(attempt: Attempt, attempts: Sequence[Attempt], *, with_size: bool = False) -> tuple[object, ...]:
    lasted = show_duration(attempt.ended - attempt.started) if attempt.ended else None
    end = None
    if attempt.failure:
        where = f"rank {attempt.failure.rank.rank}: " if attempt.failure.rank else ""
        end = f"{attempt.failure.cause}, exit code {attempt.failure.exit_code}: {where}{attempt.failure.message}"
    if attempt.resized:
        end = attempt.resized
    how = restart_words(attempt, attempts)
    size = (attempt.size,) if with_size else ()
    return (attempt.number + 1, *size, show_moment(attempt.started), how, lasted, attempt.resumed_from, end)


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
