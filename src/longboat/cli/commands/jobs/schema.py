"""`longboat schema`: the JSON schema of a job file or a cluster file."""

from __future__ import annotations

import click

from longboat.cli.output.formats import to_json


@click.command("schema", short_help="Print the JSON schema of a job file.")
@click.argument("kind", type=click.Choice(["job", "cluster"]), default="job")
def command(kind: str) -> None:
    """Print the JSON schema of a job file, or of a cluster file. Editors complete and check them with it."""
    if kind == "cluster":
        from longboat.clusters.fields.cluster_fields import cluster_schema

        print(to_json(cluster_schema()))
    else:
        from longboat.specs.schema import job_schema

        print(to_json(job_schema()))
