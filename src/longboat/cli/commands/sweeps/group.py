"""`longboat sweep`: a job file begins a sweep; ls, status, best, stop and rm are for those that are there."""

from __future__ import annotations

import os
from typing import Any

import click

from longboat.cli.commands.sweeps.start import command as start_command
from longboat.cli.commands.sweeps.stored import best_command, list_command, remove_command, status_command, stop_command
from longboat.core.errors import NotFound
from longboat.core.words import nearest

START = "start"
MEANT = {"list": "ls", "show": "status", "get": "status", "delete": "rm", "remove": "rm", "cancel": "stop"}
"""Words of other tools for what is done with a sweep."""


class SweepGroup(click.Group):
    """A click group whose first word may also be a job file: then all words are those of `start`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        self.check_word(args)
        is_named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_named else [START, *args] if args else ["--help"])

    def check_word(self, args: list[str]) -> None:
        """Raises NotFound for a bare word that is no file and looks like a subcommand."""
        word = args[0] if args else ""
        if not word.isalpha() or word in self.commands or os.path.exists(word):
            return
        known = [name for name in self.commands if name != START]
        meant = MEANT.get(word) or next(iter(nearest(word, known, 1)), None)
        if meant is not None:
            raise NotFound(f"no subcommand and no file {word!r}", hint=f"longboat sweep {meant}")

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        name = ctx.command_path
        formatter.write_usage(name, "FILE.yaml [--param NAME=VALUES]... [OPTION]...")
        formatter.write_usage(name, "ls | status | best | stop | rm [NAME]...", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str()) for name, each in self.commands.items() if name != START]
            )
        start_command.format_options(click.Context(start_command, info_name=START, parent=ctx), formatter)


@click.group("sweep", cls=SweepGroup, short_help="Try a job with many parameters.")
def command(**_options: Any) -> None:
    """Run a job with many parameters: a grid, random points, or points chosen by what others have shown.

    The job reads them as ${sweep.NAME} in its command, as LONGBOAT_PARAM_NAME, or by longboat.params(). The sweep is
    followed to its end; 0 is returned if all trials ended as planned. Ctrl-C once stops it; -d detaches.
    """


command.add_command(start_command, START)
for each in (list_command, status_command, best_command, stop_command, remove_command):
    command.add_command(each)
