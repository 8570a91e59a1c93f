"""The options that choose the engine (`--on`, `--engine`, `--namespace`), and opening it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from longboat.cli.output.terminal import note
from longboat.engines.engine import Engine
from longboat.sdk.engines import ENGINES, default_engine, engine

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

_CHOSEN = "longboat.place"


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Store the option in the context, where `open_engine` reads it; commands take no parameter for it."""
    ctx.meta.setdefault(_CHOSEN, {})[param.name] = value


def _option(*names: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*names, expose_value=False, callback=_keep, **attributes)


def complete_contexts(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete contexts of the kubeconfig. Raises nothing: a shell cannot show an error."""
    from click.shell_completion import CompletionItem

    try:
        from longboat.kubeapi import kubeconfig

        contexts = kubeconfig.read(kubeconfig.files_of(os.environ)).contexts
    except Exception:
        return []
    return [CompletionItem(name) for name in sorted(contexts) if name.startswith(incomplete)]


def engine_options(function: F) -> F:
    """`--engine`, `--on`, `--namespace`: the engine and cluster of the runs."""
    options = (
        _option("--engine", type=click.Choice(ENGINES), help="Where runs are: this machine, or a cluster."),
        _option(
            "--on",
            "context",
            metavar="CONTEXT",
            shell_complete=complete_contexts,
            help="The cluster of this kubeconfig context.",
        ),
        _option("--namespace", metavar="NAME", help="The namespace in the cluster."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def open_engine(*, quiet: bool = False) -> Engine:
    """Open the engine that this command's options name; each of its notices is printed once."""
    shown: set[str] = set()

    def tell(text: str) -> None:
        if text not in shown:
            shown.add(text)
            note(text)

    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    return engine(
        chosen.get("engine"),
        context=chosen.get("context"),
        namespace=chosen.get("namespace"),
        on_notice=None if quiet else tell,
    )


def same_place() -> str:
    """The options by which another command reaches the same engine; empty where the defaults do."""
    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    options = []
    if chosen.get("engine") and chosen["engine"] != default_engine(is_cluster=False) and not chosen.get("context"):
        options += ["--engine", chosen["engine"]]
    if chosen.get("context"):
        options += ["--on", chosen["context"]]
    if chosen.get("namespace"):
        options += ["--namespace", chosen["namespace"]]
    return f" {shlex.join(options)}" if options else ""


def placed(step: str) -> str:
    """Add to a suggested `longboat` command the options by which it reaches the same engine."""
    return re.sub(r"^longboat [^:]*", lambda match: match[0] + same_place(), step)
