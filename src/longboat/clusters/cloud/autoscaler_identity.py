"""Who Longboat's autoscaler is for a cloud: the service account with the rights, what its pod needs for it. Pure."""

from __future__ import annotations

from longboat.core.jobs import Value
from longboat.engines.kubernetes.install.autoscaler_manifests import AUTOSCALER
from longboat.engines.kubernetes.install.controller_manifests import HOME

NAMESPACE, ACCOUNT = HOME, AUTOSCALER
SUBJECT = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"


class AutoscalerInstall(Value, frozen=True):
    """What the add-on autoscaler needs to know of its cloud, once the cluster is there."""

    provider: dict[str, str]
    """Settings of its provider in the pools file."""
    annotations: dict[str, str] = {}
    """Of its service account."""
    labels: dict[str, str] = {}
    """Of its pod."""


def azure_install(cluster: str, subscription: str, client: str) -> AutoscalerInstall:
    """`client`: the client id of its managed identity."""
    return AutoscalerInstall(
        provider={"cluster": cluster, "resource_group": f"longboat-{cluster}", "subscription": subscription},
        annotations={"azure.workload.identity/client-id": client},
        labels={"azure.workload.identity/use": "true"},
    )


def google_install(cluster: str, region: str, project: str) -> AutoscalerInstall:
    """Google knows the service account itself: nothing is written on it."""
    return AutoscalerInstall(provider={"cluster": cluster, "region": region, "project": project})


def aws_install(cluster: str, region: str) -> AutoscalerInstall:
    """The association of the role with the service account is in the stack."""
    return AutoscalerInstall(provider={"cluster": cluster, "region": region})
