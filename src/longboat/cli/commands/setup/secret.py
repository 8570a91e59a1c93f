"""`longboat secret`: the engine's own store of secrets. Values come from stdin or a prompt, never from argv."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from longboat.cli.input.arguments import output_option
from longboat.cli.output.formats import write
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import is_terminal, say
from longboat.core.errors import UsageError
from longboat.engines.shared.home import Home
from longboat.engines.shared.secrets import list_secrets, remove_secret, set_secret


@click.group("secret", short_help="Keep secrets for runs.")
def command() -> None:
    """Keep secrets for runs: a job names them (`secrets: [TOKEN]`), and its ranks see them as variables."""


@command.command("set", short_help="Store a secret, from stdin or the terminal.")
@click.argument("name")
def set_command(name: str) -> None:
    """Store a secret: its value is read from stdin, or asked for on a terminal."""
    if is_terminal(sys.stdin):
        value = click.prompt(f"Value of {name}", hide_input=True, err=True)
    else:
        value = sys.stdin.read().removesuffix("\n")
    if not value:
        raise UsageError("an empty value", hint=f"longboat secret set {name} < FILE, or type it when asked")
    set_secret(Home(), name, value)
    say(f"longboat: stored {name}")


@command.command("ls")
@output_option()
def list_command(output: str) -> None:
    """List the names of the secrets; never their values."""
    names = list(list_secrets(Home()))
    if output in ("json", "yaml"):
        write([{"name": name} for name in names], output)
    elif output == "name":
        sys.stdout.writelines(f"{name}\n" for name in names)
    elif names:
        print_table(("NAME",), [(name,) for name in names])
    else:
        say("no secrets: store one with longboat secret set NAME")


@command.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def remove_command(names: Sequence[str]) -> None:
    """Remove secrets."""
    for name in names:
        remove_secret(Home(), name)
        print(name)
