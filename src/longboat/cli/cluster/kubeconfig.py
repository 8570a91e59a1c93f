"""`longboat cluster kubeconfig`: a cluster's context in the user's kubeconfig."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from longboat.cli.output.terminal import say
from longboat.core.errors import NotFound, UsageError


@click.command("kubeconfig", short_help="Put a cluster into your kubeconfig.")
@click.argument("name")
@click.option("--from", "source", metavar="KUBECONFIG", help="The file that has it (-: stdin).")
@click.option("--use", is_flag=True, help="Make it the current context too.")
@click.option("--remove", is_flag=True, help="Take the cluster's context out again.")
def command(name: str, source: str | None, use: bool, remove: bool) -> None:
    """Put the context of a cluster into your kubeconfig: ~/.kube/config, or the first file of KUBECONFIG.

    The rest of the file stays as it is; what it was before is in a backup beside it.
    """
    from longboat.clusters.kubeconfig_file import backup_of, drop_context, put_context

    check_name(name)
    if remove == (source is not None):
        raise UsageError("--from or --remove: one of them", hint=f"longboat cluster kubeconfig {name} --from FILE")
    if source is None:
        dropped = drop_context(name, os.environ)
        say(f"longboat: {name} is gone from {dropped}" if dropped else f"longboat: there is no context {name}")
        return
    changed = put_context(read_text(source), name, os.environ, is_current=use)
    if changed is None:
        say(f"longboat: the context {name} is there already")
        return
    kept = f"; before: {backup_of(changed)}" if backup_of(changed).exists() else ""
    say(f"longboat: {changed} has the context {name}{kept}; next: longboat doctor --on {name}")


def check_name(name: str) -> None:
    from longboat.specs.fields.rules import NAME, NAME_EXPECTED

    if not re.fullmatch(NAME, name):
        raise UsageError(f"{name!r} is not the name of a cluster", hint=NAME_EXPECTED)


def read_text(source: str) -> str:
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{source}: not a kubeconfig") from None
    except OSError as error:
        raise NotFound(f"{source}: {error.strerror}") from None
