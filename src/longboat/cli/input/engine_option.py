"""The options that choose the engine (`--on`, `--engine`, `--namespace`), and opening it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from longboat.cli.output.terminal import note
from longboat.core.errors import UsageError
from longboat.engines.engine import Engine
from longboat.sdk.engines import ENGINES, default_engine, engine

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from longboat.multicluster.ask import NamedEngine

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_CHOSEN = "longboat.place"
_TAKE_SEVERAL = ("run", "ps", "gpus", "cost")


def stored_in(key: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    """Callback of options that are stored in the context, where the command's own code reads them."""

    def store(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if param.name == "context":
            named_context(ctx, param, value)
        ctx.meta.setdefault(key, {})[param.name] = value

    return store


def named_context(_ctx: click.Context, _param: click.Parameter, value: T) -> T:
    """Callback of `--on`: an empty name, as of a variable that is not set, is not the default cluster."""
    if "" in (value if isinstance(value, tuple) else (value,)):
        raise UsageError("--on: no name is given", hint="name a context: --on lab")
    return value


def _option(*names: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*names, expose_value=False, callback=stored_in(_CHOSEN), **attributes)


def complete_contexts(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete contexts of the kubeconfig. Raises nothing: a shell cannot show an error."""
    from click.shell_completion import CompletionItem

    try:
        from longboat.kubeapi import kubeconfig

        contexts = kubeconfig.read(kubeconfig.files_of(os.environ)).contexts
    except Exception:
        return []
    return [CompletionItem(name) for name in sorted(contexts) if name.startswith(incomplete)]


class ContextOption(click.Option):
    """`--on`, whose help says where several clusters may be named."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        takes_several = record is not None and ctx.command.name in _TAKE_SEVERAL
        return (record[0], f"{record[1]} Several: lab,aws,local or all.") if record and takes_several else record


def engine_options(function: F) -> F:
    """`--engine`, `--on`, `--namespace`: the engine and cluster of the runs."""
    options = (
        _option("--engine", type=click.Choice(ENGINES), help="Where runs are: this machine, or a cluster."),
        _option(
            "--on",
            "context",
            metavar="CONTEXT",
            shell_complete=complete_contexts,
            cls=ContextOption,
            help="The cluster of this kubeconfig context.",
        ),
        _option("--namespace", metavar="NAME", help="The namespace in the cluster."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _teller(quiet: bool) -> Callable[[str], None] | None:
    """Prints each notice once."""
    shown: set[str] = set()

    def tell(text: str) -> None:
        if text not in shown:
            shown.add(text)
            note(text)

    return None if quiet else tell


def open_engine(*, quiet: bool = False) -> Engine:
    """Open the engine that this command's options name; each of its notices is printed once."""
    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    names = several_names()
    if names is not None and len(names) > 1:
        raise UsageError(
            f"--on {chosen['context']} names several places, and this command takes one",
            hint=f"name one of them: --on {names[0]}",
        )
    if names is not None:
        return open_places(quiet=quiet)[0].engine
    return engine(
        chosen.get("engine"),
        context=chosen.get("context"),
        namespace=chosen.get("namespace"),
        on_notice=_teller(quiet),
    )


def several_names() -> tuple[str, ...] | None:
    """The places of `--on a,b`, of a group, `all` or `local`; None: one context, or none is named."""
    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    text = chosen.get("context")
    if text is None:
        return None
    from longboat.sdk.places import place_names

    names = place_names(text)
    if names is not None and chosen.get("engine") is not None:
        raise UsageError(f"--engine with --on {text}", hint="leave --engine out: `local` in the list is this machine")
    return names


def open_places(names: Sequence[str] | None = None, *, quiet: bool = False) -> list[NamedEngine]:
    """The places with these names, or those that this command's options name, each opened."""
    from longboat.sdk.places import open_place

    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    tell = _teller(quiet)
    return [open_place(name, chosen.get("namespace"), tell) for name in names or several_names() or ()]


def chosen_places(*, is_default_one: bool = False) -> list[NamedEngine]:
    """Where none is named: this machine and all contexts, or with `is_default_one` the one that other commands mean."""
    from longboat.multicluster.ask import NamedEngine
    from longboat.sdk.places import LOCAL, everywhere

    names = several_names()
    if names is not None:
        return open_places(names)
    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    if is_default_one or chosen.get("context") or chosen.get("engine") or chosen.get("namespace"):
        opened = open_engine()
        context = chosen.get("context") or getattr(getattr(opened, "client", None), "context", None)
        return [NamedEngine(LOCAL if opened.name == "local" else context or "cluster", opened)]
    return open_places(everywhere())


def narrow_to(name: str) -> None:
    """One of several places was chosen: what is suggested from now on names it."""
    click.get_current_context().meta[_CHOSEN]["context"] = name


def chosen_engine() -> Engine | None:
    """The engine that this command's options name; None: they name none."""
    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    return open_engine() if any(chosen.values()) else None


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
