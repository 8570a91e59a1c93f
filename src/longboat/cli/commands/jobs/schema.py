"""`longboat schema`: the JSON schema of a job file."""

from __future__ import annotations

import click

from longboat.cli.output.formats import to_json
from longboat.specs.schema import job_schema


@click.command("schema", short_help="Print the JSON schema of a job file.")
def command() -> None:
    """Print the JSON schema of a job file. Editors complete and check job files with it."""
    print(to_json(job_schema()))
