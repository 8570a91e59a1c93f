"""`longboat shell`: a terminal on a node with GPUs."""

from __future__ import annotations

import os
from typing import Any

import click

from longboat.cli.commands.workbench.opening import (
    bench_submission,
    bring_back_now,
    edits_here,
    open_bench,
    stop_quietly,
)
from longboat.cli.input.arguments import PATH, seconds
from longboat.cli.input.engine_option import open_engine, placed
from longboat.cli.input.options import TargetCommand, job_options
from longboat.cli.input.targets import is_job_file
from longboat.cli.output.terminal import say
from longboat.core.errors import NotFound, UsageError


class ShellCommand(TargetCommand):
    """Parser that takes what follows `--` as the command to run there."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        head, tail = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        rest = click.Command.parse_args(self, ctx, head)
        ctx.params["command"] = tuple(tail)
        return rest


@click.command("shell", cls=ShellCommand, short_help="Open a terminal on a node with GPUs.")
@click.argument("words", nargs=-1, type=PATH, metavar="[FILE.yaml]... [-- COMMAND...]")
@job_options
@click.option(
    "--idle", default="1h", callback=seconds, metavar="TIME", help="End when nobody is in it for this long (1h)."
)
@click.option("--keep", is_flag=True, help="Keep it when the shell ends: longboat shell opens it again.")
@click.option("-d", "--detach", is_flag=True, help="Only start it, and print the run's name; for ssh-config.")
def command(words: tuple[str, ...], command: tuple[str, ...], **options: Any) -> int:
    """Open a shell, or run a COMMAND, where a training would run: with its GPUs, image, code, volumes and secrets.

    It waits for its GPUs as all runs do. When the shell ends the run does; called a second time while one is open,
    it opens another terminal on the same node. Returns the exit code of the shell.
    """
    if options["detach"] and command:
        raise UsageError("--detach with a command", hint="longboat run -d runs a command without a terminal")
    if words and not is_job_file(words[0]) and not os.path.exists(words[0]):
        hint = f"a shell in a run that goes on: longboat exec {words[0]} -- bash"
        raise NotFound(f"no job file {words[0]}", hint=hint)
    place = open_engine()
    submission = bench_submission(words, options, place, "hold")
    from longboat.workbench.sessions import wait_ready

    run, is_new = open_bench(place, submission, "shell")
    is_ours = is_new and not options["keep"]  # one that waits for its GPUs may be that of another terminal
    edits = edits_here(place, run.name)
    try:
        run, session = wait_ready(place, run, say)
    except KeyboardInterrupt:
        if is_ours:
            place.stop(run.name)
        raise
    if options["detach"]:
        print(run.name)
        return 0
    inside = [*session.launcher, "--workbench", "enter", session.folder, *(("--", *command) if command else ())]
    try:
        return place.exec(run.name, inside, rank=0)
    finally:
        bring_back_now(place, run.name, session, edits)
        if is_ours:
            stop_quietly(place, run.name)
        else:
            say(f"longboat: {run.name} goes on; {placed(f'longboat stop {run.name}')} ends it")
