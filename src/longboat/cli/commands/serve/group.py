"""`longboat serve`: a group whose first word may also be a run or a job file, which starts a service."""

from __future__ import annotations

import click

from longboat.cli.commands.serve.following import follow_command
from longboat.cli.commands.serve.forward import forward_command
from longboat.cli.commands.serve.manage import list_command, logs_command, promote_command, scale_command, stop_command
from longboat.cli.commands.serve.start import start_command


class ServeGroup(click.Group):
    """Takes what is none of its commands as `start`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["start", *args]
        return super().parse_args(ctx, args or ["--help"])


@click.group("serve", cls=ServeGroup, short_help="Serve a checkpoint over HTTP.")
def command() -> None:
    """Serve a run's checkpoint over HTTP, with its code and environment; update it without a lost request.

    \b
    longboat serve RUN[:STEP] [OPTIONS] -- COMMAND    start a service, or give it a new version
    longboat serve job.yaml                           the newest run of this job, as its `serve` says
    longboat serve start --help                       all options
    """


for each in (
    start_command,
    list_command,
    logs_command,
    stop_command,
    scale_command,
    promote_command,
    forward_command,
    follow_command,
):
    command.add_command(each)
