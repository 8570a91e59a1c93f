"""Options and arguments that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from longboat.cli.output.times import parse_duration
from longboat.core.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "wide", "json", "yaml", "name")
LATEST = "-"
PATH = click.Path(readable=False)
"""A path, completed as one. click would refuse what may not be read: an argument of the training's, a file to write."""


def seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Callback of an option that takes a duration: `90s`, `10m`, `1h30m`."""
    return None if value is None else parse_duration(value)


def duration_option(name: str, help: str) -> Callable[[F], F]:
    return click.option(name, metavar="TIME", callback=seconds, help=help)


def run_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete names of runs. Raises nothing: a shell cannot show an error."""
    try:
        from click.shell_completion import CompletionItem

        from longboat.sdk.engines import engine

        return [CompletionItem(run.name, help=run.phase) for run in engine().list() if run.name.startswith(incomplete)]
    except Exception:
        return []


def namespaces_of(words: Sequence[str]) -> tuple[str, ...]:
    """Namespaces of a repeatable option with comma-separated values, sorted and without duplicates."""
    from longboat.kubeapi.kubeconfig import NAMESPACE

    names = sorted({name.strip() for word in words for name in word.split(",")})
    for name in names:
        if not re.fullmatch(NAMESPACE, name):
            raise UsageError(f"{name!r} is not the name of a namespace", hint="--only team-a,team-b")
    return tuple(names)


def shown_namespaces(names: Sequence[str]) -> str:
    return f"namespace {names[0]}" if len(names) == 1 else f"namespaces {', '.join(names)}"


def run_argument(function: F) -> F:
    """One RUN; by default the latest."""
    return click.argument("run", default=LATEST, shell_complete=run_names)(function)


def runs_argument(function: F) -> F:
    """Any number of RUNs."""
    return click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=run_names)(function)


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o`: the output format."""
    allowed = formats or FORMATS
    return click.option(
        "-o", "--output", type=click.Choice(allowed), default=allowed[0], show_default=True, help="Output format."
    )
