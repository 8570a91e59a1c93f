"""`longboat run`: a script, job files or a command, attached unless told otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from longboat.cli.input.arguments import PATH, duration_option
from longboat.cli.input.options import TargetCommand, job_options
from longboat.cli.output.terminal import note, note_once
from longboat.core.errors import UsageError

if TYPE_CHECKING:
    from longboat.core.runs import RunStatus
    from longboat.engines.engine import Engine, Submission

OURS = ("--on", "--engine", "--namespace", "--nodes", "--procs", "--gpus", "--cpus", "--image", "--detach", "--dry-run")
"""What people add at the end of the line, and few scripts have."""


@click.command("run", cls=TargetCommand, short_help="Run a script, a job file or a command.")
@click.argument("words", nargs=-1, type=PATH, metavar="SCRIPT [ARG]... | FILE.yaml... [-- ARG...] | -- COMMAND...")
@job_options
@click.option("-d", "--detach/--follow", help="Return at once and print the run's name; or stay with it (default).")
@click.option("--id", "run_id", metavar="NAME", help="Name of the run; one that exists is not started again.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@duration_option("--failover", "With --on A,B: move a run that waits longer than this to another of them.")
@click.option("-q", "--quiet", is_flag=True, help="No messages but errors.")
@click.option("-y", "--yes", is_flag=True, help="Accepted for scripts: run asks nothing.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml", "name"]), help="Format, with --detach or --dry-run.")
def command(words: tuple[str, ...], command: tuple[str, ...], **options: Any) -> int:
    """Run a training: a script with its arguments, job files (merged left to right; -: stdin), or a command after --.

    After a job file, what follows -- is added to the job's command.

    The log is shown and the trainer's exit code returned. Ctrl-C once asks the run to stop; -d detaches.
    """
    if options["output"] and not (options["detach"] or options["dry_run"]):
        raise UsageError("-o goes with --detach or --dry-run", hint="an attached run leaves stdout to the trainer")
    from longboat.cli.input.engine_option import open_engine, several_names
    from longboat.cli.input.loading import load, submission_of
    from longboat.sdk.submit import check_single

    if len(several_names() or ()) > 1:
        from longboat.cli.commands.jobs.run_several import run_several

        return run_several(words, command, options)
    if options["failover"] is not None:
        raise UsageError("--failover needs several clusters", hint="name them: --on lab,aws --failover 30m")
    place = open_engine(quiet=options["quiet"])
    loaded = load(words, command, options, place)
    check_single(loaded.job)
    submission = submission_of(loaded, options["run_id"], in_place=options["in_place"])
    if options["dry_run"]:
        from longboat.cli.output.plan_text import show_manifests, show_plan

        if options["output"] == "yaml" and place.name == "kubernetes":
            return show_manifests(place, submission, loaded.notices)
        return show_plan(place.plan(submission), loaded.notices, options["output"])
    if not options["quiet"]:
        for notice in (*loaded.notices, *misplaced(words), *budgets_of(place, submission)):
            note(notice)
    return submit(place, submission, options)


def budgets_of(place: Engine, submission: Submission) -> list[str]:
    """Warnings about budgets that its GPU-hours count to."""
    from longboat.sdk.engines import has_settings

    if not submission.job.gpus or not (place.name == "kubernetes" or has_settings()):
        return []
    from longboat.sdk.places import budget_notices

    return budget_notices(place, submission.job.labels)


def misplaced(words: tuple[str, ...]) -> list[str]:
    """Warnings about options of ours that come after the script and so are passed to it."""
    options = [word for word in words[1:] if word.partition("=")[0] in OURS]
    return [f"{options[0]} is given to {words[0]}: options of longboat come before it"] if options else []


def submit(place: Engine, submission: Submission, options: dict[str, Any]) -> int:
    """Submit the run, then follow it unless detached."""
    if not options["detach"]:
        return follow(place, submission, quiet=options["quiet"])
    run = place.submit(submission)
    if options["output"] in ("json", "yaml"):
        from longboat.cli.output.formats import plain, write

        write(plain(run), options["output"])
    else:
        print(run.name)
    if submission.run_id is not None and not options["quiet"]:
        tell_replay(run)
    if place.name == "kubernetes" and not options["quiet"]:
        warn_unattended(place, run)
    return 0


def tell_replay(run: RunStatus) -> None:
    from longboat.cli.attach import is_replay, replay_words

    if is_replay(run):
        note(f"run {run.name}{replay_words(run)}")


def follow(place: Engine, submission: Submission, *, quiet: bool) -> int:
    """Submit the run and print its log until it has ended."""
    # Imported first: once the run is there, Ctrl-C is for it.
    import msgspec

    from longboat.cli.attach import attach, exit_code
    from longboat.cli.input.rank_input import rank_input

    ranks = submission.job.ranks
    with rank_input(ranks) as stdin:
        run = place.submit(msgspec.structs.replace(submission, stdin=stdin))
    ended = attach(place, run, ranks=ranks, quiet=quiet)
    if ended.phase == "failed" and not quiet:
        for text in missed_files(place, ended):
            note_once(text)
    return exit_code(ended)


def missed_files(place: Engine, run: RunStatus) -> list[str]:
    """Files that a failed run lacked because they were not part of the code snapshot, with what to do."""
    from longboat.engines.shared.code_snapshot import STAYS_BEHIND, is_about_missing

    failures = [attempt.failure for attempt in run.attempts if attempt.failure is not None]
    if not failures or not is_about_missing(failures[-1]):
        return []
    explanation = place.explain(run.name)
    facts = [fact for fact in explanation.facts if STAYS_BEHIND in fact]
    return [f"{fact}; {step}" for fact, step in zip(facts, explanation.next_steps, strict=False)]


def warn_unattended(place: Engine, run: RunStatus) -> None:
    """Warn that a detached run stays pending where no controller is installed and nobody runs a command."""
    from longboat.cli.errors import show_hint
    from longboat.cli.input.engine_option import placed
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.engines.kubernetes.install.install import without_controller

    assert isinstance(place, KubernetesEngine)
    warning = without_controller(place.client, run.name)
    if warning is not None:
        note(warning[0])
        show_hint(f"{placed(f'longboat wait {run.name}')} looks after it; {warning[1]}")
