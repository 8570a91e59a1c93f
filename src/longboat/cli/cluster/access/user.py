"""`longboat cluster user`: people who may run in a namespace of a cluster, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from longboat.cli.input.arguments import output_option
from longboat.cli.input.engine_option import complete_contexts, named_context
from longboat.cli.output.formats import plain, show, to_yaml
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import note, say
from longboat.cli.output.times import show_moment
from longboat.core.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def on_option(function: F) -> F:
    return click.option(
        "--on",
        "context",
        metavar="CONTEXT",
        callback=named_context,
        shell_complete=complete_contexts,
        help="The cluster of this kubeconfig context, as its administrator.",
    )(function)


@click.group("user", short_help="Give people access to a namespace.")
def command() -> None:
    """Give people access to a namespace of a cluster, and revoke it. You need administrator rights."""


@command.command("add")
@click.argument("name")
@click.option("--namespace", required=True, metavar="NAMESPACE", help="Where the user may run; created if missing.")
@click.option("--days", default=30, show_default=True, type=click.IntRange(1, 3650), help="Lifetime of the token.")
@click.option(
    "-o", "--output", metavar="FILE", help="The kubeconfig for the user (-: stdout); default: NAME.kubeconfig."
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
@on_option
def add_command(name: str, namespace: str, days: int, output: str | None, force: bool, context: str | None) -> None:
    """Make a kubeconfig for a user who may run in one namespace.

    The permissions are those of docs/kubernetes.md, in that namespace only. Again for the same user: a new token.
    """
    from longboat.clusters.users.access import add_user
    from longboat.clusters.users.user_objects import LEVEL, check_user
    from longboat.engines.shared.files import write_bytes
    from longboat.kubeapi.client import Client

    check_user(name)
    file = output or f"{name}.kubeconfig"
    if file != "-" and os.path.lexists(file) and not force:
        raise UsageError(f"{file} exists already", hint="--force overwrites it, -o names another file")
    with Client.open(context=context) as client:
        grant = add_user(client, name, namespace, days=days)
    text = to_yaml(grant.kubeconfig) + "\n"
    if file == "-":
        print(text, end="")
    else:
        write_bytes(Path(file), text.encode())
    if grant.made_namespace:
        note(f"made the namespace {namespace}")
    if grant.is_unconfined:
        hint = f"kubectl label namespace {namespace} pod-security.kubernetes.io/enforce={LEVEL}"
        note(f"pods in {namespace} may be privileged, so that {name} can be root on the nodes; against it: {hint}")
    if grant.is_shorter:
        note(f"the cluster allows no token for {days} days")
    where = "" if file == "-" else f"{file}: "
    until = f" until {show_moment(grant.expires)}" if grant.expires else ""
    say(f"longboat: {where}{name} may run in namespace {namespace}{until}")


@command.command("ls")
@output_option()
@on_option
def list_command(output: str, context: str | None) -> None:
    """List users, their namespaces, and when their tokens expire."""
    from longboat.clusters.users.access import UserView, list_users
    from longboat.kubeapi.client import Client

    with Client.open(context=context) as client:
        users = list_users(client)
    if not users and output in ("table", "wide"):
        say("no users: longboat cluster user add NAME --namespace TEAM")
        return

    def record(user: UserView) -> Any:
        return {**plain(user), "expires": show_moment(user.expires)}

    def tables(_wide: bool) -> None:
        rows = [
            (user.name, ", ".join(user.namespaces), show_moment(user.created), show_moment(user.expires))
            for user in users
        ]
        print_table(("NAME", "NAMESPACES", "SINCE", "TOKEN ENDS"), rows)

    show(users, output, record=record, tables=tables)


@command.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--namespace", metavar="NAMESPACE", help="Revoke access to this namespace only.")
@on_option
def remove_command(names: Sequence[str], namespace: str | None, context: str | None) -> None:
    """Revoke users' access: their tokens are refused from now on. Their runs stay. Prints their names."""
    from longboat.clusters.users.access import remove_user
    from longboat.kubeapi.client import Client

    with Client.open(context=context) as client:
        for name in dict.fromkeys(names):
            remove_user(client, name, namespace)
            sys.stdout.write(f"{name}\n")
