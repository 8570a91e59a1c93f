"""`longboat rerun`: the same job once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from longboat.cli.commands.jobs.run import submit
from longboat.cli.input.arguments import run_argument
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.terminal import note
from longboat.core.errors import NotFound, UsageError

if TYPE_CHECKING:
    from longboat.core.jobs import Job
    from longboat.engines.engine import Engine


@click.command("rerun", short_help="Run the job of a run once more.")
@run_argument
@click.option("--fresh-code", is_flag=True, help="Take the code from its folder again.")
@click.option("--resume", is_flag=True, help="Start from the newest checkpoint of that run.")
@click.option(
    "--after", multiple=True, metavar="RUN", help="Start after this run, not after the original's. Repeatable."
)
@click.option("--no-after", is_flag=True, help="Start at once, without waiting for other runs.")
@click.option("-d", "--detach/--follow", help="Return at once and print the run's name; or stay with it (default).")
@click.option("--id", "run_id", metavar="NAME", help="Name of the new run.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@click.option("-q", "--quiet", is_flag=True, help="No messages but errors.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml", "name"]), help="Format, with --detach or --dry-run.")
@engine_options
def command(run: str, fresh_code: bool, resume: bool, run_id: str | None, **options: Any) -> int:
    """Run the job of a run once more, with the code of that run, as a new run.

    Secrets are read again by name; possible differences from the first run are printed. Without RUN: the latest.
    """
    if options["output"] and not (options["detach"] or options["dry_run"]):
        raise UsageError("-o goes with --detach or --dry-run", hint="an attached run leaves stdout to the trainer")
    import msgspec

    from longboat.engines.lifecycle.resubmission import again
    from longboat.sdk.names import find_training
    from longboat.sdk.rerun import notices_of

    place = open_engine(quiet=options["quiet"])
    name = find_training(place, run).name
    after = predecessors(place, options)
    submission = again(place.resubmission(name), resume=name if resume else None, fresh_code=fresh_code, after=after)
    check_predecessors(place, name, submission.job)
    submission = msgspec.structs.replace(submission, run_id=run_id)
    notices = notices_of(place, name, submission)
    if options["dry_run"]:
        from longboat.cli.output.plan_text import show_plan

        return show_plan(place.plan(submission), notices, options["output"])
    if not options["quiet"]:
        for notice in notices:
            note(notice)
    return submit(place, submission, options)


def predecessors(place: Engine, options: dict[str, Any]) -> tuple[str, ...] | None:
    """Runs that the new run starts after; None: the same as before."""
    from longboat.sdk.names import find_run

    if options["no_after"] and options["after"]:
        raise UsageError("--after and --no-after together", hint="one of them")
    if options["no_after"]:
        return ()
    return tuple(find_run(place, run).name for run in options["after"]) or None


def check_predecessors(place: Engine, run: str, job: Job) -> None:
    """Refuse to start after a run that was removed."""
    for name in job.after:
        try:
            place.status(name)
        except NotFound:
            raise NotFound(
                f"{run} started after {name}, which was removed",
                hint="--after RUN names another run, --no-after none",
            ) from None
