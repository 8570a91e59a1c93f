"""`longboat sweep FILE`: begin a sweep and follow it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from longboat.cli.input.arguments import PATH
from longboat.cli.input.options import TargetCommand, job_options
from longboat.cli.output.terminal import note, say
from longboat.core.errors import JobError, Problem, UsageError
from longboat.core.jobs import METHODS, SAMPLERS, Sweep
from longboat.core.words import counted

if TYPE_CHECKING:
    from longboat.sweeps.record import SweepRecord

RANGE = ".."
FIELDS = {name: f"sweep.{name}" for name in ("method", "sampler", "trials", "parallel")}
FIELDS |= {"metric": "sweep.metric.name", "goal": "sweep.metric.goal"}
"""The field of a job that each option of a sweep stands for."""


@click.command("start", cls=TargetCommand, hidden=True)
@click.argument("words", nargs=-1, type=PATH, metavar="FILE.yaml... [-- ARG...] | SCRIPT [ARG]... | -- COMMAND...")
@click.option(
    "-p", "--param", multiple=True, metavar="NAME=VALUES", help="lr=0.1,0.01 or lr=1e-4..1e-1:log. Repeatable."
)
@click.option("--method", type=click.Choice(METHODS), help="How the space is searched.")
@click.option("--sampler", type=click.Choice(SAMPLERS), help="Of method optuna: which sampler chooses the points.")
@click.option("--trials", metavar="N", help="How many trials; a grid has all of its points.")
@click.option("--parallel", metavar="N", help="Trials at once (default 4).")
@click.option("--metric", metavar="NAME", help="What trials are compared by: longboat.step(n, NAME=...).")
@click.option("--goal", type=click.Choice(["min", "max"]), help="Which metric is better (default min).")
@job_options
@click.option("-d", "--detach/--follow", help="Return at once and print the sweep's name; or stay with it (default).")
@click.option("--dry-run", is_flag=True, help="List the trials and stop.")
@click.option("-q", "--quiet", is_flag=True, help="No messages but errors.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml", "name"]), help="Format, with --detach or --dry-run.")
def command(words: tuple[str, ...], command: tuple[str, ...], **options: Any) -> int:
    """Begin a sweep; see `longboat sweep --help`."""
    if options["output"] and not (options["detach"] or options["dry_run"]):
        raise UsageError("-o goes with --detach or --dry-run", hint="longboat sweep status NAME -o json")
    from longboat.cli.input.engine_option import open_engine
    from longboat.cli.input.loading import load, submission_of
    from longboat.engines.shared.home import Home
    from longboat.sweeps.submit import create_sweep, existing, place_of, plan_sweep, record_of

    place = open_engine(quiet=options["quiet"])
    try:
        loaded = load(words, command, {**options, "set": (*options["set"], *overrides(options))}, place)
    except JobError as error:
        raise JobError([as_typed(problem, options) for problem in error.problems], hint=error.hint) from None
    if loaded.job.sweep is None:
        check_order((*words, *command))
        raise UsageError("nothing to sweep: the job has no `sweep`", hint="--param lr=0.1,0.01 names values to try")
    home = Home()
    submission = submission_of(loaded, None, in_place=options["in_place"])
    record = existing(home, place, options["name"], submission) if options["name"] else None
    if record is not None and not options["dry_run"]:
        return go_on(home, record, options, is_new=False)
    record = record_of(home, place, submission, options["name"], place_of(place))
    plan = plan_sweep(place, record)
    if not options["quiet"]:
        for notice in (*loaded.notices, *plan.notices, *all_points_notice(loaded.job.sweep)):
            note(notice)
    if options["dry_run"]:
        return show_trials(record, options["output"])
    return go_on(home, create_sweep(home, place, record), options, is_new=True)


def all_points_notice(sweep: Sweep) -> list[str]:
    """More trials than points: no point is tried twice."""
    from longboat.sweeps.report import planned_trials

    planned = planned_trials(sweep)
    if sweep.method == "grid" or sweep.trials is None or planned >= sweep.trials:
        return []
    return [f"the space has {counted(planned, 'point')}, fewer than trials: {sweep.trials}; each is tried once"]


def as_typed(problem: Problem, options: dict[str, Any]) -> Problem:
    """A mistake in an option of the sweep by the option's name, not by that of the field it stands for."""
    typed = {f"--set {field}": f"--{name}" for name, field in FIELDS.items() if options[name] is not None}
    typed |= {f'--set sweep."{name}"': f"--param {name}" for name in names_of(options["param"])}
    option = typed.get(problem.file)
    return problem if option is None else Problem(problem.message, file=option, hint=problem.hint)


def names_of(params: Sequence[str]) -> list[str]:
    return [text.partition("=")[0].strip() for text in params]


def check_order(words: Sequence[str]) -> None:
    """What follows a script is the script's own. Raises UsageError where that was not meant."""
    behind = next((word for word in words[1:] if word.partition("=")[0] in ("-p", "--param")), None)
    if behind is not None:
        hint = f"options stand before it: longboat sweep --param lr=0.1,0.01 {words[0]}"
        raise UsageError(f"{behind} stands behind {words[0]}, so it is an argument of {words[0]}", hint=hint)


def overrides(options: dict[str, Any]) -> list[str]:
    """Options of the sweep as fields of the job, `--set` by `--set`."""
    given = names_of(options["param"])
    twice = next((name for name in given if given.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--param {twice} is given twice", hint=f"its values in one: --param {twice}=0.1,0.01")
    fields = [f"{field}={options[name]}" for name, field in FIELDS.items() if options[name] is not None]
    return [*fields, *map(param_override, options["param"])]


def param_override(text: str) -> str:
    """`lr=0.1,0.01` and `lr=1e-4..1e-1:log` as YAML; what is in brackets is YAML already."""
    name, equals, values = text.partition("=")
    name, values = name.strip(), values.strip()
    if not (name and equals and values) or '"' in name:
        raise UsageError(f"--param {text}: expected NAME=VALUES", hint="lr=0.1,0.01, or lr=1e-4..1e-1:log")
    if values[0] not in "[{":
        low, dots, rest = values.partition(RANGE)
        values = range_text(low, rest) if dots else f"[{values}]"
    return f'sweep."{name}"={values}'


def range_text(low: str, rest: str) -> str:
    """`1e-4..1e-1:log`, `0..1:0.1`: a range, on a logarithmic scale or with a step."""
    high, colon, how = rest.partition(":")
    more = "" if not colon else ", log: true" if how == "log" else f", step: {how}"
    return f"{{min: {low}, max: {high}{more}}}"


def show_trials(record: SweepRecord, output: str | None) -> int:
    """Print the points that are known before anything has run."""
    from longboat.cli.commands.sweeps.board import show_value
    from longboat.cli.output.formats import write
    from longboat.cli.output.tables import print_table
    from longboat.sweeps.report import known_points, planned_trials

    sweep = record.job.sweep
    assert sweep is not None  # checked by the caller
    points = known_points(sweep, record.name)
    runs = [record.run_name(number) for number in range(1, len(points) + 1)]
    if output in ("json", "yaml"):
        write(
            [
                {"trial": number, "run": run, "params": point}
                for number, (run, point) in enumerate(zip(runs, points), 1)
            ],
            output,
        )
    elif output == "name":
        print("\n".join(runs))
    elif points:
        head = ("TRIAL", "RUN", *(name.upper() for name in sweep.space))
        print_table(
            head,
            [
                (number, run, *map(show_value, point.values()))
                for number, (run, point) in enumerate(zip(runs, points), 1)
            ],
        )
    later = planned_trials(sweep) - len(points)
    if later:
        say(f"longboat: {later} {'more ' if points else ''}are chosen by what {'these' if points else 'others'} show")
    return 0


def go_on(home: Any, record: SweepRecord, options: dict[str, Any], *, is_new: bool) -> int:
    """See to it that the sweep is driven, then follow it unless detached."""
    from longboat.cli.commands.sweeps.board import follow
    from longboat.sdk.sweeps import ensure_driven, open_sweep

    sweep = open_sweep(home, record.name)
    state = sweep.state()
    if not is_new and not options["quiet"]:
        how = "is running" if not state.is_final else state.phase
        note(f"sweep {record.name} exists already and {how}: nothing new is started")
    problem = ensure_driven(home, sweep)
    if problem is not None:
        note(problem)
    if not options["detach"]:
        return follow(home, sweep, quiet=options["quiet"])
    if options["output"] in ("json", "yaml"):
        from longboat.cli.output.formats import plain, write
        from longboat.sweeps.report import report_of

        write(plain(report_of(record, sweep.state())), options["output"])
    else:
        print(record.name)
    return 0
