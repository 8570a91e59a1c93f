"""Job flags shared by `run` and `check`, and which words belong to Longboat or to the command."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from longboat.cli.input.engine_option import engine_options
from longboat.cli.input.targets import is_job_file
from longboat.core.errors import UsageError
from longboat.core.words import nearest

F = TypeVar("F", bound=Callable[..., Any])

JOB_OPTIONS = (
    click.option("-n", "--name", metavar="NAME", help="Name of the job; runs are NAME, NAME-2, ..."),
    click.option("--nodes", "--num-nodes", "nodes", metavar="N|MIN-MAX", help="Number of nodes, or a range of them."),
    click.option("--spares", metavar="N", help="Spare nodes, which take a lost one's place at once."),
    click.option("--procs", metavar="N", help="Processes per node; auto: one per GPU."),
    click.option("--gpus", metavar="GPUS", help="GPUs per node: 2, H100:8."),
    click.option("--cpus", metavar="N", help="CPUs per node."),
    click.option("--memory", metavar="SIZE", help="Memory per node: 16Gi."),
    click.option("--env", multiple=True, metavar="K[=V]", help="A variable; a bare K copies the shell's. Repeatable."),
    click.option("--env-file", multiple=True, metavar="FILE", help="Variables from a file of K=V lines. Repeatable."),
    click.option("--secret", multiple=True, metavar="NAME", help="A secret, by name. Repeatable."),
    click.option("--workdir", metavar="DIR", help="The folder with the code."),
    click.option(
        "--include", multiple=True, metavar="PATTERN", help="Ignored files to include in the code. Repeatable."
    ),
    click.option("--setup", metavar="COMMAND", help="Run on every node before the ranks: pip install -r x.txt."),
    click.option(
        "--volume", multiple=True, metavar="TARGET=SOURCE", help="data=./d, /d=claim:NAME, ...[:ro]. Repeatable."
    ),
    click.option("--image", metavar="IMAGE", help="Container image."),
    click.option("--framework", metavar="NAME", help="torch, tensorflow, jax, mpi or none; guessed if not given."),
    click.option("--retries", metavar="N", help="How often a failed run is started again."),
    click.option("--timeout", metavar="TIME", help="End the run this long after its ranks started: 90s, 2h."),
    click.option("--grace", metavar="TIME", help="Time the ranks have to end after SIGTERM."),
    click.option("--stall", metavar="TIME", help="End the run when a rank is silent for this long: 15m."),
    click.option(
        "--checkpoints", metavar="DIR", help="Where checkpoints go: a folder, or s3://..., gs://..., az://..."
    ),
    click.option(
        "--resume", metavar="RUN[:STEP]", help="Start from this, or the newest, checkpoint of a run or folder."
    ),
    click.option("--artifact", multiple=True, metavar="PATTERN", help="Files to keep after the end. Repeatable."),
    click.option("--label", multiple=True, metavar="K=V", help="A label. Repeatable."),
    click.option("--priority", metavar="N", help="Runs with a higher priority start first."),
    click.option("--after", multiple=True, metavar="RUN", help="Start when this run has succeeded. Repeatable."),
    click.option("--queue", metavar="NAME", help="The queue to wait in."),
    click.option(
        "--in-place", is_flag=True, help="Run in the folder itself, without a copy of the code; on this machine."
    ),
    click.option("--set", multiple=True, metavar="A.B=C", help="Change any field of the job. Repeatable."),
)


def job_options(function: F) -> F:
    function = engine_options(function)
    for option in reversed(JOB_OPTIONS):
        function = option(function)
    return function


class TargetCommand(click.Command):
    """Parser that leaves options after a script to the script, and takes those after a job file as Longboat's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        probe = self.make_parser(ctx)
        probe.allow_interspersed_args = False
        given = probe.parse_args(args=list(args))[0].get("words")
        words = list(given) if isinstance(given, (list, tuple)) else []
        start = len(args) - len(words)
        command: list[str] = []
        ctx.allow_interspersed_args = False
        if args[start - 1 : start] == ["--"]:
            args, command = args[: start - 1], words
        elif words and is_job_file(words[0]):
            ctx.allow_interspersed_args = True
            if "--" in args:
                args, command = args[: args.index("--")], args[args.index("--") + 1 :]
        try:
            rest = super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            if not (ctx.allow_interspersed_args and words) or nearest(error.option_name, self._flags()):
                raise
            theirs = shlex.join(args[args.index(error.option_name) :]) if error.option_name in args else "..."
            raise UsageError(
                f"no such option: {error.option_name}",
                hint=f"what is for the job's command comes after --: longboat {self.name} {words[0]} -- {theirs}",
            ) from None
        ctx.params["command"] = tuple(command)
        return rest

    def _flags(self) -> list[str]:
        return [name for param in self.params for name in param.opts if name.startswith("--")]
