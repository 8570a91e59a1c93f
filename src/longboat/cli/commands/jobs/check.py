"""`longboat check`: validate, and show what would run."""

from __future__ import annotations

from typing import Any

import click

from longboat.cli.input.arguments import PATH
from longboat.cli.input.engine_option import open_engine
from longboat.cli.input.loading import load, submission_of
from longboat.cli.input.options import TargetCommand, job_options
from longboat.cli.output.plan_text import show_plan
from longboat.core.errors import Refused
from longboat.core.plans import Plan

SWEEP_NOTICE = "the job has a `sweep`, and this is one run of it: longboat sweep FILE --dry-run lists its trials"


@click.command("check", cls=TargetCommand, short_help="Validate job files and show what would run.")
@click.argument("words", nargs=-1, type=PATH, metavar="FILE.yaml... | SCRIPT [ARG]... | -- COMMAND...")
@job_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "name"]),
    default="table",
    show_default=True,
    help="Output format; wide adds the environment of every rank.",
)
def command(words: tuple[str, ...], command: tuple[str, ...], output: str, **options: Any) -> int:
    """Validate job files (merged left to right) and show the job, its layout and the plan.

    All mistakes are reported at once, each with its place. Nothing is started. A valid job that this machine can never
    run is shown with the reason; `run` refuses it.
    """
    place = open_engine()
    loaded = load(words, command, options, place)
    try:
        plan = place.plan(submission_of(loaded, None, in_place=options["in_place"]))
    except Refused as refusal:  # the job is right all the same: another machine may run it
        hints = "".join(f"\n  hint: {line}" for line in (refusal.hint or "").splitlines())
        plan = Plan(job=loaded.job, notices=(f"{refusal.message}{hints}",))
    notices = loaded.notices
    if loaded.job.sweep is not None:
        notices = (*notices, SWEEP_NOTICE)
    return show_plan(plan, notices, output, env=output == "wide")
