"""`longboat exec`: a command in a node of a run."""

from __future__ import annotations

import click

from longboat.cli.input.arguments import run_names
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.core.errors import NotFound, UsageError
from longboat.core.runs import RunStatus
from longboat.sdk.names import find_run


class ExecCommand(click.Command):
    """Parser that takes everything after `--`, else everything after RUN, as the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        dashes = "--" in args
        ctx.allow_interspersed_args = dashes
        head, tail = (args[: args.index("--")], args[args.index("--") + 1 :]) if dashes else (args, [])
        rest = super().parse_args(ctx, head)
        ctx.params["words"] = (*(ctx.params.get("words") or ()), *tail)
        return rest


@click.command("exec", cls=ExecCommand, short_help="Run a command in a node of a run.")
@click.argument("run", shell_complete=run_names)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND...")
@click.option("--node", metavar="NODE", help="On this node: worker-1, or its number.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="With the environment of this rank.")
@engine_options
def command(run: str, words: tuple[str, ...], node: str | None, rank: int | None) -> int:
    """Run a command in the working copy and with the environment of a run. Returns the command's exit code."""
    if not words:
        raise UsageError("no command to run", hint=f"longboat exec {run} -- nvidia-smi")
    if node is not None and rank is not None:
        raise UsageError("--node and --rank together", hint="a rank is on one node: --rank is enough")
    place = open_engine()
    status = find_run(place, run)
    return place.exec(status.name, list(words), node=node_name(status, node), rank=rank)


def node_name(run: RunStatus, text: str | None) -> str | None:
    """Resolve a node by its name or by its number within the run."""
    if text is None:
        return None
    names = node_names(run)
    name = names[int(text)] if text.isdecimal() and int(text) < len(names) else text
    if names and name not in names:
        raise NotFound(f"{run.name} has no node {text!r}", hint=f"its nodes: {', '.join(names)}")
    return name


def node_names(run: RunStatus) -> list[str]:
    if run.spec is None:
        return list(dict.fromkeys(rank.node for rank in run.ranks))
    nodes = [f"{role.name}-{index}" for role in run.spec.roles for index in range(role.nodes)]
    return nodes + [f"{role.name}-{index}" for role in run.spec.roles for index in range(role.nodes, role.pods)]
