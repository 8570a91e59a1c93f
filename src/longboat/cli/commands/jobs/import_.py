"""`longboat import`: job files and cluster files of other tools."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from longboat.cli.commands.jobs.init import write_file
from longboat.cli.input.arguments import PATH
from longboat.cli.output.terminal import note, say
from longboat.core.errors import NotFound, UsageError
from longboat.specs.importers.registry import import_text


@click.command("import", short_help="Translate job files and cluster files of other tools.")
@click.argument("file", type=PATH)
@click.option("-o", "--output", default="-", type=PATH, help="Where to write it (default: stdout).")
@click.option("--task", metavar="NAME", help="Which task of a pipeline: its name, or its number.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def command(file: str, output: str, task: str | None, force: bool) -> None:
    """Translate a SkyPilot or dstack task file (-: stdin) to a job file, or a Juju bundle or an acs-engine file to a
    cluster file.

    Fields that could not be translated are listed on stderr with the reason.
    """
    if output != "-" and os.path.lexists(output) and not force:
        raise UsageError(f"{output} exists already", hint="--force overwrites it")
    text = read(file)
    from longboat.clusters.cloud.import_file import import_cluster

    cluster = import_cluster(text, file=file)
    imported = cluster or import_text(text, file=file, task=task)
    if output == "-":
        print(imported.text, end="")
    else:
        write_file(Path(output), imported.text)
    for line in imported.untranslated:
        note(f"not translated: {line}")
    lost = len(imported.untranslated)
    source = cluster.source if cluster else f"a {imported.source} file"
    say(f"longboat: read as {source}, {lost} field{'s' * (lost != 1)} not translated")


def read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise NotFound(f"cannot read {file}: {error.strerror}") from None
