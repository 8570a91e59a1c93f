"""`longboat sweep ls|status|best|stop|rm`: sweeps that are there."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from longboat.cli.commands.sweeps.board import no_best, print_best, print_board, show_number
from longboat.cli.input.arguments import LATEST, output_option
from longboat.cli.input.engine_option import chosen_engine, engine_options
from longboat.cli.output.formats import plain, show, write
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import note, say
from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.engines.shared.home import Home
from longboat.sdk.sweeps import (
    OpenSweep,
    all_sweeps,
    ensure_driven,
    find_sweep,
    remove_damaged,
    remove_sweep,
    stop_sweep,
    wait_sweep,
)
from longboat.sweeps.record import SweepFolder, sweep_names
from longboat.sweeps.report import SweepReport, report_of
from longboat.sweeps.trials import FINAL


def complete_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of sweeps. Raises nothing: a shell cannot show an error."""
    try:
        return [CompletionItem(name) for name in sweep_names(Home()) if name.startswith(incomplete)]
    except Exception:
        return []


sweep_argument = click.argument("name", default=LATEST, shell_complete=complete_names)
sweeps_argument = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_names)


def look(name: str) -> SweepReport:
    """The sweep as it is now; it is driven on if nobody does."""
    home = Home()
    sweep = find_sweep(home, name, place=chosen_engine())
    problem = ensure_driven(home, sweep)
    if problem is not None:
        note(problem)
    state = sweep.state()
    return report_of(sweep.record(), state)


@click.command("ls", short_help="List sweeps.")
@output_option()
@engine_options
def list_command(output: str) -> None:
    """List sweeps, the newest first: those begun from here, or with --on, --namespace all of that cluster."""
    home = Home()
    reports: list[SweepReport] = []
    problems: list[str] = []
    for sweep in all_sweeps(home, chosen_engine(), problems):
        try:
            state = sweep.state()
            if not state.is_final:
                ensure_driven(home, sweep)
            reports.append(report_of(sweep.record(), state))
        except (NotFound, EngineError) as error:
            problems.append(error.message)
    for problem in problems:
        note(problem)
    if not reports and output in ("table", "wide"):
        say("no sweeps: longboat sweep job.yaml --param lr=0.1,0.01")
        return
    show(reports, output, record=lambda report: plain(report), tables=lambda wide: print_sweeps(reports))


def print_sweeps(reports: Sequence[SweepReport]) -> None:
    head = ("NAME", "PHASE", "TRIALS", "FAILED", "METHOD", "METRIC", "BEST", "RUN")
    rows = []
    for report in reports:
        ended = sum(1 for trial in report.trials if trial.phase in FINAL)
        failed = sum(1 for trial in report.trials if trial.phase == "failed")
        metric = None if report.metric is None else report.metric.name
        best = (show_number(report.best.metric), report.best.run) if report.best else (None, None)
        rows.append((report.name, report.phase, f"{ended}/{report.planned}", failed, report.method, metric, *best))
    print_table(head, rows)


@click.command("status", short_help="Show a sweep and its trials.")
@sweep_argument
@output_option("table", "json", "yaml")
@engine_options
def status_command(name: str, output: str) -> None:
    """Show a sweep: its trials, the best one, which parameters mattered. Without NAME: the latest."""
    report = look(name)
    if output == "table":
        print_board(report)
    else:
        write(plain(report), output)


@click.command("best", short_help="Show the best trial.")
@sweep_argument
@output_option("table", "json", "yaml")
@engine_options
def best_command(name: str, output: str) -> None:
    """Show the best trial and the command that runs it again. Without NAME: the latest sweep."""
    report = look(name)
    if report.best is None:
        raise NotFound(
            f"{report.name}: {no_best(report)}",
            hint=f"longboat sweep status {report.name}; trainers report metrics with longboat.step(n, loss=...)",
        )
    if output == "table":
        print_best(report)
    else:
        write({**plain(report.best), "command": report.command}, output)


@click.command("stop", short_help="Stop sweeps.")
@sweeps_argument
@click.option("--wait/--no-wait", default=True, help="Return when the trials have ended (default), or at once.")
@engine_options
def stop_command(names: Sequence[str], wait: bool) -> None:
    """Stop sweeps: no trial starts any more, those under way get their grace. Prints the names."""
    home = Home()
    place = chosen_engine()
    wanted = [find_sweep(home, name, place=place, is_whole=True) for name in names]
    for sweep in {sweep.name: sweep for sweep in wanted}.values():
        phase = sweep.state().phase
        if phase != "running":
            say(f"{sweep.name} has ended already: {phase}")
            continue
        stop_sweep(sweep)
        if wait:
            wait_sweep(home, sweep, note)
        print(sweep.name)


@click.command("rm", short_help="Remove sweeps and runs.")
@sweeps_argument
@click.option("--purge", is_flag=True, help="Remove the checkpoints of the trials too.")
@click.option(
    "-f", "--force", is_flag=True, help="Also sweeps that have not ended (they are stopped first) or are damaged."
)
@engine_options
def remove_command(names: Sequence[str], purge: bool, force: bool) -> None:
    """Remove sweeps with the runs of their trials; checkpoints stay. Prints the names."""
    home = Home()
    wanted = [opened(home, name, force=force) for name in dict.fromkeys(names)]
    sweeps = {sweep.name if isinstance(sweep, OpenSweep) else sweep: sweep for sweep in wanted}.values()
    alive = [sweep.name for sweep in sweeps if isinstance(sweep, OpenSweep) and not sweep.state().is_final]
    if alive and not force:
        raise UsageError(
            f"{', '.join(alive)} {'has' if len(alive) == 1 else 'have'} not ended",
            hint=f"longboat sweep stop {' '.join(alive)}, or longboat sweep rm --force",
        )
    for sweep in sweeps:
        if isinstance(sweep, OpenSweep):
            stop_sweep(sweep)
            wait_sweep(home, sweep, note)
            remove_sweep(home, sweep, purge=purge)
            print(sweep.name)
        else:
            print(sweep)


def opened(home: Home, name: str, *, force: bool) -> OpenSweep | str:
    """The sweep; with `force`, of one that cannot be read what is there of it is removed: its name."""
    try:
        sweep = find_sweep(home, name, place=chosen_engine(), is_whole=True)
        sweep.state()
        return sweep
    except NotFound as error:
        if not force or not SweepFolder(home, name).exists() or chosen_engine() is not None:
            raise
        problem = error.message
    except EngineError as error:
        if not force:
            raise
        problem = error.message
    runs = remove_damaged(home, name, chosen_engine())
    left = f"longboat rm {' '.join(runs)}" if runs else f"longboat ps -a -l sweep={name}"
    note(f"{problem}: its record is removed, its runs are left; {left}")
    return name
