"""`longboat cluster token`: the credential plugin of kubeconfigs of clusters on AWS."""

from __future__ import annotations

import re
import time

import click
import msgspec

from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud import rules
from longboat.clusters.cloud.aws.token import exec_credential, make_token
from longboat.core.errors import UsageError


@click.command("token", short_help="Print a token for a cluster on AWS, as kubectl asks for it.")
@click.argument("name", metavar="NAME")
@click.option("--region", required=True, metavar="REGION", help="Region of the cluster.")
def command(name: str, region: str) -> None:
    """Print an ExecCredential with a token of a few minutes for the cluster NAME on AWS.

    The kubeconfig entry that longboat cluster up writes calls it. The credentials are those of the environment:
    AWS_PROFILE, SSO, keys.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", name):
        raise UsageError(f"{name[:60]}: not the name of an EKS cluster")
    if not re.fullmatch(rules.REGION, region):
        raise UsageError(f"{region[:60]}: not a region", hint="--region us-east-1")
    credential = exec_credential(make_token(AwsSession(region), name), time.time())
    print(msgspec.json.encode(credential).decode())
