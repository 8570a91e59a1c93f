"""`longboat explain`: the post-mortem."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from longboat.cli.input.arguments import output_option, run_argument
from longboat.cli.input.engine_option import engine_options, open_engine, placed
from longboat.cli.output.formats import plain, write
from longboat.cli.output.terminal import CONTROLS, paint
from longboat.core.errors import NotFound
from longboat.core.runs import Explanation, RunStatus
from longboat.sdk.names import find_run

if TYPE_CHECKING:
    from longboat.engines.engine import Engine

KEEP_TABS = {code: shown for code, shown in CONTROLS.items() if code != 9}


@click.command("explain", short_help="Say why a run failed, or what it waits for.")
@run_argument
@output_option("text", "json", "yaml")
@engine_options
def command(run: str, output: str) -> None:
    """Explain a run: the first rank that failed, the cause, the lines that show it, what to do next.

    For a run that waits or is silent: what it waits for. Without RUN: the latest. A service can be named too.
    """
    place = open_engine()
    explained = explained_name(place, run)
    explanation = msgspec.structs.replace(explained, next_steps=tuple(map(placed, explained.next_steps)))
    if output == "text":
        print_explanation(explanation)
    else:
        write(plain(explanation), output)


def explained_name(place: Engine, name: str) -> Explanation:
    """A run, with the service of its name; else a service. Raises NotFound."""
    from longboat.sdk.services import explain_service

    try:
        status = find_run(place, name, is_whole=True)
    except NotFound:  # before a run that only begins like this: replicas of a service do
        of_service = explain_service(place, name)
        if of_service is not None:
            return of_service
        status = find_run(place, name)
    explained = with_sweep(place.explain(status.name), status)
    of_service = explain_service(place, status.name)
    if of_service is None:
        return explained
    return msgspec.structs.replace(
        explained,
        facts=(*explained.facts, of_service.headline, *of_service.facts),
        next_steps=(*explained.next_steps, *of_service.next_steps),
    )


def with_sweep(explanation: Explanation, run: RunStatus) -> Explanation:
    """Who stopped a trial early."""
    if "sweep" not in run.labels:
        return explanation
    from longboat.engines.shared.home import Home
    from longboat.sdk.sweeps import pruned_words

    words = pruned_words(Home(), run)
    return explanation if words is None else msgspec.structs.replace(explanation, headline=f"it was {words}")


def print_explanation(explanation: Explanation) -> None:
    print(paint(shown(explanation.headline), "bold", sys.stdout))
    for fact in explanation.facts:
        print_item("  ", fact)
    if explanation.lines:
        print()
        for line in explanation.lines:
            print(f"  | {shown(line.rstrip())}")
    if explanation.next_steps:
        print("\nnext:")
        for step in explanation.next_steps:
            print_item("  - ", step)


def print_item(bullet: str, text: str) -> None:
    for number, line in enumerate(text.splitlines()):
        print(f"{bullet if number == 0 else ' ' * (len(bullet) + 2)}{shown(line)}")


def shown(text: str) -> str:
    return text.translate(KEEP_TABS)
