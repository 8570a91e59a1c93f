"""`longboat drill`: kill parts of a run on purpose, and check that it recovers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from longboat.cli.input.arguments import output_option, run_names
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.input.targets import is_job_file
from longboat.cli.output.formats import plain, write
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import clean, note, say
from longboat.cli.output.times import show_duration
from longboat.core.errors import DrillFailed, UsageError

if TYPE_CHECKING:
    from longboat.engines.engine import Engine, Submission
    from longboat.sdk.drill.judge import DrillResult

TOLERANCE = 0.01
"""Of the metric, relative: sums in another order differ by far less, a training that began elsewhere by far more."""


@click.command("drill", short_help="Kill parts of a run, and check that it recovers.")
@click.argument("target", metavar="RUN|FILE.yaml", shell_complete=run_names)
@click.option(
    "--kill", "kills", multiple=True, metavar="WHAT[@step=N]", help="rank=1, node or launcher[=NODE]. Repeatable."
)
@click.option("--metric", metavar="NAME", help="What is compared at equal steps.  [default: loss]")
@click.option("--tolerance", type=float, default=TOLERANCE, show_default=True, help="Relative difference allowed.")
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Change any field of the job. Repeatable.")
@output_option("table", "json", "yaml")
@engine_options
def command(
    target: str, kills: Sequence[str], metric: str | None, tolerance: float, overrides: Sequence[str], output: str
) -> None:
    """Run a job undisturbed and once with kills (or take the finished RUN as the undisturbed one), and check that it
    resumes, that its steps continue and that the loss at equal steps agrees. Exit code 0 only if all of it held.

    Without --kill: rank 0, between two checkpoints. The result is written on the run, and shown by `longboat status`.
    """
    if not 0 <= tolerance < float("inf"):
        raise UsageError(f"--tolerance {tolerance}: expected a number from 0 on", hint="0.01 allows one percent")
    from longboat.sdk.drill.conduct import Drill
    from longboat.sdk.drill.kills import parse_kills

    place = open_engine()
    submission, reference = target_of(place, target, overrides)
    parsed = parse_kills(kills, submission.job)
    drill = Drill(place, parsed, metric=metric, tolerance=tolerance, tell=lambda text: say(f"longboat: {clean(text)}"))
    result = drill.run(submission, reference)
    if output == "table":
        print_result(result)
    else:
        write(plain(result), output)
    if not result.ok:
        raise DrillFailed(
            f"the drill of {result.run} failed: {result.failures[0].detail}", hint=f"longboat status {result.run}"
        )


def target_of(place: Engine, target: str, overrides: Sequence[str]) -> tuple[Submission, str | None]:
    """What is submitted, and the run that is compared with, if there is one."""
    if is_job_file(target):
        from longboat.cli.input.loading import submission_of
        from longboat.sdk.submit import check_single
        from longboat.specs.read import read_job

        loaded = read_job([Path(target)], overrides=overrides, environment=dict(os.environ), cwd=Path.cwd())
        check_single(loaded.job)
        for notice in loaded.notices:
            note(notice)
        return submission_of(loaded, None), None
    if "." in target and os.path.isfile(target):  # no run is called like that
        hint = f"write one: longboat init {target}"
        raise UsageError(f"{target} is no job file, and a drill takes a run or a job file", hint=hint)
    if overrides:
        raise UsageError("--set changes a job file, and a run is drilled as it was", hint="longboat drill FILE.yaml")
    from longboat.engines.lifecycle.resubmission import again
    from longboat.sdk.names import find_training

    name = find_training(place, target).name
    return again(place.resubmission(name), resume=None, fresh_code=False), name


def print_result(result: DrillResult) -> None:
    rows = [
        (
            recovery.kill,
            recovery.last_step,
            show_duration(recovery.noticed_s),
            show_duration(recovery.restarted_s),
            show_duration(recovery.first_step_s),
            recovery.lost_steps,
        )
        for recovery in result.recoveries
    ]
    print_table(("KILLED", "LAST STEP", "NOTICED", "RESTARTED", "FIRST STEP", "STEPS LOST"), rows)
    print()
    for check in result.checks:
        print(f"{'ok    ' if check.ok else 'FAILED'} {clean(f'{check.name}: {check.detail}')}")
    if result.ok:
        print(f"\nresume verified: {result.run}, compared with {result.reference}")
