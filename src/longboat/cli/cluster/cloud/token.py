"""`longboat cluster token`: the credential plugin of kubeconfigs of clusters in clouds."""

from __future__ import annotations

import re
import time

import click
import msgspec

from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud import rules
from longboat.clusters.cloud.aws.token import exec_credential, make_token
from longboat.core.errors import UsageError


@click.command("token", short_help="Print a token for a cluster in a cloud, as kubectl asks for it.")
@click.argument("name", metavar="NAME")
@click.option(
    "--cloud", type=click.Choice(["aws", "azure", "gcp"]), default="aws", help="Whose cluster it is (default: aws)."
)
@click.option("--region", metavar="REGION", help="Region of a cluster on AWS.")
def command(name: str, cloud: str, region: str | None) -> None:
    """Print an ExecCredential with a token of a few minutes for the cluster NAME in a cloud.

    The kubeconfig entry that longboat cluster up writes calls it. The credentials are those of the environment:
    AWS_PROFILE, SSO, keys; those of az login; application default credentials of Google.
    """
    if cloud == "azure":
        from longboat.clusters.cloud.azure.credentials import exec_credential as azure_credential
        from longboat.clusters.cloud.azure.credentials import open_group

        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name):
            raise UsageError(f"{name[:60]}: not the name of a cluster")
        print(msgspec.json.encode(azure_credential(open_group(name), time.time())).decode())
        return
    if cloud == "gcp":
        print(msgspec.json.encode(google_credential()).decode())
        return
    if region is None:
        raise UsageError("--region is missing", hint="--region us-east-1")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", name):
        raise UsageError(f"{name[:60]}: not the name of an EKS cluster")
    if not re.fullmatch(rules.REGION, region):
        raise UsageError(f"{region[:60]}: not a region", hint="--region us-east-1")
    credential = exec_credential(make_token(AwsSession(region), name), time.time())
    print(msgspec.json.encode(credential).decode())


def google_credential() -> dict[str, object]:
    from longboat.clouds.gcp.errors import answer_error
    from longboat.clouds.gcp.session import GoogleSession
    from longboat.clouds.rest import RestFault
    from longboat.clusters.cloud.gcp.credentials import exec_credential as answer

    try:
        return answer(*GoogleSession().token())
    except RestFault as fault:
        raise answer_error(fault, "get a token") from None
