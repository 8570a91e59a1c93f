"""`longboat cluster permissions`: the policy that makes and removes clusters on AWS."""

from __future__ import annotations

import click

from longboat.cli.cluster.cloud.plan import deployable
from longboat.cli.cluster.target import named_cluster
from longboat.cli.output.formats import to_json
from longboat.clusters.cloud.aws.permissions import autoscaler_policy, policy


@click.command("permissions", short_help="Print the rights that a cluster on AWS needs.")
@click.argument("file", required=False, metavar="[FILE|NAME]")
@click.option("--autoscaler", is_flag=True, help="Print the rights of the autoscaler's provider aws instead.")
def command(file: str | None, autoscaler: bool) -> None:
    """Print the IAM policy with which longboat cluster up, status and down work: no right more than they need.

    With a cluster file only for that cluster in its region; without one for all that Longboat makes.
    """
    rights = autoscaler_policy if autoscaler else policy
    if file is None:
        print(to_json(rights()))
        return
    spec = named_cluster(file)
    print(to_json(rights(spec.name, deployable(spec).region)))
