"""`longboat cluster permissions`: the least rights for clusters in a cloud, as that cloud's own document."""

from __future__ import annotations

import os
from typing import Any

import click

from longboat.cli.cluster.cloud.plan import cloud_of
from longboat.cli.cluster.target import named_cluster
from longboat.cli.output.formats import to_json
from longboat.clusters.cloud.spec import CloudSpec
from longboat.core.errors import UsageError

CLOUDS = ("aws", "azure", "gcp")


@click.command("permissions", short_help="Print the rights that a cluster in a cloud needs.")
@click.argument("file", required=False, metavar="[FILE|NAME]")
@click.option("--cloud", type=click.Choice(CLOUDS), help="Without a cluster file: the cloud (default: aws).")
@click.option("--autoscaler", is_flag=True, help="Print the rights of the autoscaler's provider instead.")
def command(file: str | None, cloud: str | None, autoscaler: bool) -> None:
    """Print the rights with which longboat cluster up, status and down work: none more than they need.

    An IAM policy for AWS, a custom role for Azure (az role definition create) and Google Cloud (gcloud iam roles
    create). With a cluster file for that cluster; without one for all that Longboat makes.
    """
    if file is None:
        print(to_json(document(cloud or "aws", autoscaler=autoscaler)))
        return
    spec = named_cluster(file)
    settings = cloud_of(spec)
    if cloud not in (None, spec.kind):
        raise UsageError(f"--cloud {cloud}: {spec.name} is on {spec.kind}", hint="leave --cloud out")
    if spec.kind == "azure":
        print(to_json(azure_document(spec.name, settings, autoscaler=autoscaler)))
        return
    shown = document(spec.kind, spec.name, settings.region, autoscaler=autoscaler, with_autoscaler=settings.autoscaler)
    print(to_json(shown))


def document(cloud: str, cluster: str = "", region: str = "", *, autoscaler: bool, with_autoscaler: bool = True) -> Any:
    """`cluster` empty: for all. `with_autoscaler`: whether `up` gives rights to one."""
    if cloud == "azure":
        return azure_document(cluster, None, autoscaler=autoscaler)
    if cloud == "gcp":
        from longboat.clusters.cloud.gcp.permissions import autoscaler_role, cluster_role

        role = autoscaler_role(cluster) if autoscaler else cluster_role(cluster, autoscaler=with_autoscaler)
        return role.document()
    from longboat.clusters.cloud.aws.permissions import autoscaler_policy, policy

    return (autoscaler_policy if autoscaler else policy)(cluster or "*", region or "*")


def azure_document(cluster: str, settings: CloudSpec | None, *, autoscaler: bool) -> Any:
    """The autoscaler has two roles, which are assigned in different places. `settings`: of the cluster file."""
    from longboat.clusters.cloud.azure.permissions import ANY_SUBSCRIPTION, autoscaler_roles, cluster_role
    from longboat.clusters.cloud.azure.resource_group import SUBSCRIPTION_VARIABLE

    subscription = os.environ.get(SUBSCRIPTION_VARIABLE) or ANY_SUBSCRIPTION
    if autoscaler:
        return [role.definition(subscription) for role in autoscaler_roles(cluster)]
    if settings is None:
        return cluster_role(cluster).definition(subscription)
    parts = bool(settings.network.subnet) or any(pool.placement_group or pool.reservation for pool in settings.pools)
    return cluster_role(cluster, autoscaler=settings.autoscaler, parts=parts).definition(subscription)
