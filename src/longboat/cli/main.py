"""The command `longboat`: the table of commands, and the one place where every error is caught.

The table is all that `--help` needs; the module of a command is imported when the command is called.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from longboat import __version__

if TYPE_CHECKING:
    from click import Context, HelpFormatter

MORE = "More"
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Train": {
        "run": ("commands.jobs.run", "Run a script, a job file or a command."),
        "sweep": ("commands.sweeps.group", "Try a job with many parameters; find the best."),
        "rerun": ("commands.jobs.rerun", "Run the job of a run once more, with its code."),
        "check": ("commands.jobs.check", "Validate job files and show what would run."),
        "init": ("commands.jobs.init", "Write a job file, from a script or a few questions."),
    },
    "Look": {
        "ps": ("commands.runs.ps", "List runs: the unfinished and the recent."),
        "status": ("commands.runs.status", "Show runs in full: ranks, attempts, folders."),
        "logs": ("commands.runs.logs", "Print the log of a run."),
        "top": ("commands.metrics.top", "Watch all runs and GPUs, and who uses them."),
        "metrics": ("commands.metrics.metrics", "Show curves of a run: loss, GPUs, memory."),
        "compare": ("commands.metrics.compare", "Put runs side by side: parameters, metrics, code."),
        "explain": ("commands.runs.explain", "Say why a run failed, or what it waits for."),
        "board": ("commands.workbench.board", "Show curves of runs in TensorBoard."),
    },
    "Act": {
        "stop": ("commands.runs.stop", "Stop runs."),
        "rm": ("commands.runs.rm", "Remove runs; checkpoints stay."),
        "exec": ("commands.runs.exec", "Run a command in a node of a run."),
        "serve": ("commands.serve.group", "Serve a checkpoint over HTTP; update it without a lost request."),
        "cp": ("commands.runs.cp", "Copy files into or out of a run."),
        "checkpoint": ("commands.checkpoints.checkpoint", "List, fetch, keep and verify checkpoints."),
        "notebook": ("commands.workbench.notebook", "Open JupyterLab with GPUs."),
    },
    "Set up": {
        "cluster": ("cluster.group", "Make a cluster of machines, and take it down again."),
        "doctor": ("commands.setup.doctor", "Check this machine, or a cluster; say what mends it."),
        "config": ("commands.setup.config", "Set the default engine, cluster, image and storage."),
        "secret": ("commands.setup.secret", "Keep secrets for runs."),
    },
    MORE: {
        "wait": ("commands.runs.wait", "Wait until runs have ended."),
        "prune": ("commands.runs.prune", "Remove runs that ended long ago."),
        "priority": ("commands.runs.priority", "Change the priority of a waiting run."),
        "cost": ("commands.clusters.cost", "Add up GPU-hours and money, by run, user, label or pool."),
        "gpus": ("commands.clusters.gpus", "List GPUs of all clusters: what is free, what it costs."),
        "shell": ("commands.workbench.shell", "Open a terminal on a node with GPUs."),
        "ssh-config": ("commands.workbench.ssh_config", "Print the ssh configuration of an open shell or notebook."),
        "drill": ("commands.checkpoints.drill", "Kill parts of a run, and check that it recovers."),
        "volume": ("commands.setup.volume", "List, make, remove and measure volumes of a cluster."),
        "data": ("commands.setup.data", "List, import, verify and remove data on a shared volume."),
        "import": ("commands.jobs.import_", "Translate job files and cluster files of other tools."),
        "schema": ("commands.jobs.schema", "Print the JSON schema of a job file."),
        "autoscaler": ("admin.autoscaler", "Grow and shrink pools of machines; say why."),
        "install": ("admin.install", "Put the controller into a cluster, or take it out."),
        "controller": ("admin.controller", "Admit waiting runs and restart failed ones."),
        "ui": ("commands.workbench.ui", "Show runs, GPUs and sweeps in a browser."),
        "completion": ("commands.setup.completion", "Print the completion script of a shell."),
    },
}
"""Section of the help -> command -> (module of longboat.cli, one line of help). Of the section MORE the help shows only
the names, so that it stays one screen."""

COMPLETE_VAR = "_LONGBOAT_COMPLETE"


class LazyCommands(click.Group):
    """A click group that imports a command's module when the command is called. `sections`: see SECTIONS."""

    def __init__(self, *args: Any, sections: dict[str, dict[str, tuple[str, str]]] = SECTIONS, **attributes: Any):
        super().__init__(*args, **attributes)
        self.sections = sections
        self.table = {name: entry for commands in sections.values() for name, entry in commands.items()}

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def list_commands(self, ctx: Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        from importlib import import_module

        command: click.Command = import_module(f"longboat.cli.{self.table[cmd_name][0]}").command
        return command

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in self.table:
            from longboat.cli.errors import unknown_command

            raise unknown_command(args[0], list(self.table), ctx.command_path)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        width = max(map(len, self.table))
        for title, commands in self.sections.items():
            with formatter.section(title):
                if title == MORE:
                    formatter.write_text(", ".join(commands))
                    continue
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])

    def shell_complete(self, ctx: Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        items = [
            CompletionItem(name, help=text) for name, (_, text) in self.table.items() if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


def print_version(ctx: Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"longboat {__version__}")
        ctx.exit()


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Show the version."
)
def cli() -> None:
    """Run a training on this machine and, unchanged, on a GPU cluster.

    longboat run train.py starts it, shows its log and returns its exit code.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit at once with its code, without the interpreter's clean-up, which takes time."""
    try:
        code = enter(args)
    except KeyboardInterrupt:  # pressed again while the first was being told
        code = 130
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def keep_own_rights() -> None:
    """Take the owner's own rights out of the umask: what a home has of files that not even their owner may read would
    be in the way of every later command."""
    mask = os.umask(0o077)
    os.umask(mask & 0o077)


def enter(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. Every exception ends here."""
    open_closed_streams()
    keep_own_rights()
    try:
        code = call(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()
        return code
    except (SystemExit, click.exceptions.Exit) as leaving:
        wanted = leaving.exit_code if isinstance(leaving, click.exceptions.Exit) else leaving.code
        return wanted if isinstance(wanted, int) else 0
    except BaseException as error:
        from longboat.cli.errors import report

        return report(error)


def open_closed_streams() -> None:
    """Open /dev/null for standard streams that the caller closed (`>&-`): the next opened file would become one.

    Stdout is opened read-only, so that lost output is an error; nobody could read an error on stderr.
    """
    for number, name, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))


def call(args: list[str]) -> int:
    """Click's `main` without its error handling."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_unbuffered = stream.write_through  # PYTHONUNBUFFERED would write a line and its end apart
            by_lines = stream.line_buffering or is_unbuffered
            # A name in another encoding is shown, not a crash.
            stream.reconfigure(errors="backslashreplace", line_buffering=by_lines, write_through=False)
    if COMPLETE_VAR in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "longboat", COMPLETE_VAR, os.environ[COMPLETE_VAR])
    with cli.make_context("longboat", args) as ctx:
        code = cli.invoke(ctx)
        return code if isinstance(code, int) else 0
