"""The kubeconfig of a cluster on AWS: its endpoint, and a plugin that makes tokens. It holds no secret."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from longboat.clouds.aws.session import AwsSession
from longboat.clusters.cloud.aws.decide import ClusterView
from longboat.clusters.cloud.aws.observe import see_cluster
from longboat.core.errors import NotFound

_PROFILE = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")


def kubeconfig_of(name: str, region: str, cluster: ClusterView) -> str:
    command, *arguments = _program()
    plugin: dict[str, Any] = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": command,
        "args": [*arguments, "cluster", "token", name, "--region", region],
        "interactiveMode": "Never",
        # As whoever made it: another profile of the shell may be of another account.
        "env": [{"name": name, "value": os.environ[name]} for name in _PROFILE if os.environ.get(name)],
        "provideClusterInfo": False,
        "installHint": "pip install 'longboat[aws]'",
    }
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {"name": name, "cluster": {"server": cluster.endpoint, "certificate-authority-data": cluster.authority}}
        ],
        "users": [{"name": name, "user": {"exec": plugin}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    import yaml

    return yaml.safe_dump(body, sort_keys=False)


def read_kubeconfig(name: str, session: AwsSession) -> str:
    """The kubeconfig of a cluster that EKS has. Raises NotFound."""
    cluster = see_cluster(session, name)
    if cluster is None:
        raise NotFound(f"EKS has no cluster {name} in {session.region}", hint="longboat cluster up makes it")
    return kubeconfig_of(name, session.region, cluster)


def _program() -> list[str]:
    """Longboat by its name where PATH has it, so that the kubeconfig outlives an environment; else this very one."""
    return ["longboat"] if shutil.which("longboat") else [sys.executable, "-m", "longboat"]
