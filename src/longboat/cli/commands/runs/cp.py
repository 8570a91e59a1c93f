"""`longboat cp`: files into and out of a run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click

from longboat.cli.commands.runs.exec import node_name
from longboat.cli.input.arguments import PATH
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.core.errors import NotFound, UsageError
from longboat.sdk.copying import target_here, target_in_run
from longboat.sdk.names import find_run

STDOUT = ("-", "/dev/stdout")


class CopyEnd(NamedTuple):
    run: str | None  # None: on this machine
    node: str | None
    path: str


@click.command("cp", context_settings={"ignore_unknown_options": True}, short_help="Copy files into or out of a run.")
@click.argument("source", metavar="SOURCE", type=PATH)
@click.argument("destination", metavar="DESTINATION", type=PATH)
@engine_options
def command(source: str, destination: str) -> None:
    """Copy a file or folder out of a run (RUN:PATH, RUN/NODE:PATH) or into it; the other side is a path here.

    PATH is relative to the node's working copy; artifacts/... and checkpoints/... name the run's own. As DESTINATION,
    folder/ is made if it is not there, and - prints a file to stdout.
    """
    come, go = parse_place(source), parse_place(destination)
    if (come.run is None) == (go.run is None):
        raise UsageError("exactly one side must be RUN:PATH", hint="longboat cp digits:artifacts/plot.png .")
    place = open_engine()
    if come.run is not None:
        status = find_run(place, come.run)
        copy = partial(place.copy_from, status.name, come.path, node=node_name(status, come.node))
        if go.path in STDOUT:
            print_file(source, copy)
        else:
            copy(target_here(come.path, go.path))
    else:
        if not Path(come.path).exists():
            raise NotFound(f"no such file: {come.path}")
        status = find_run(place, go.run or "")
        target = target_in_run(Path(come.path), go.path)
        place.copy_to(status.name, Path(come.path), target, node=node_name(status, go.node))


def print_file(source: str, copy: Callable[[Path], None]) -> None:
    """Print a file to stdout through a temporary copy: an incomplete transfer prints nothing."""
    with TemporaryDirectory(prefix="longboat-") as folder:
        path = Path(folder, "file")
        copy(path)
        if path.is_dir():
            raise UsageError(f"{source} is a folder, and only a file can be printed", hint=f"longboat cp {source} .")
        sys.stdout.flush()
        with open(path, "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


def parse_place(text: str) -> CopyEnd:
    """Parse `RUN:PATH` or `RUN/NODE:PATH`; a local path with a colon is written ./a:b."""
    head, colon, path = text.partition(":")
    run, _, node = head.partition("/")
    if not colon or not run or run.startswith((".", "~")):
        return CopyEnd(None, None, text)
    return CopyEnd(run, node or None, path or ".")
