"""`longboat config`: what is set once, for every command."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from longboat.cli.input.arguments import output_option
from longboat.cli.output.formats import write
from longboat.cli.output.terminal import say
from longboat.core.errors import NotFound


@click.group("config", short_help="Set the default engine, cluster, image and storage.")
def command() -> None:
    """Keep settings: `engine`, for clusters `kubernetes.KEY` or, for one of them, `contexts.CONTEXT.KEY`.

    On this machine `local.claims.NAME` and `local.mounts.PATH` name folders that stand for volumes of a cluster.
    """


@command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
def set_command(key: str, value: str) -> None:
    """Set one key to a value, written as in YAML.

    For example: longboat config set kubernetes.storage.claim training
    """
    from longboat.engines.kubernetes.settings import path_of, write_setting

    write_setting(os.environ, key, value)
    say(f"longboat: {key} is set in {path_of(os.environ)}")


@command.command("unset")
@click.argument("key")
def unset_command(key: str) -> None:
    """Remove one key."""
    from longboat.engines.kubernetes.settings import path_of, write_setting

    known = value_of(key) is not None
    write_setting(os.environ, key, None)
    say(f"longboat: {key} {'is not set any more' if known else 'was not set'} in {path_of(os.environ)}")


def value_of(key: str) -> Any:
    """What is set there; None: nothing."""
    from longboat.engines.kubernetes.settings import set_values

    value: Any = set_values(os.environ)
    for part in filter(None, key.split(".")):
        value = value.get(part) if isinstance(value, dict) else None
    return value


@command.command("show")
@click.argument("key", required=False)
@output_option("yaml", "json")
def show_command(key: str | None, output: str) -> None:
    """Print the settings, or one of them."""
    value = value_of(key or "")
    if value is None:
        raise NotFound(f"{key} is not set", hint="`longboat config show` prints what is set")
    if isinstance(value, (dict, list)):
        write(value, output)
    else:
        shown = value if isinstance(value, str) and output != "json" else json.dumps(value)
        sys.stdout.write(f"{shown}\n")
