"""The kubeconfig of a cluster in GKE: its endpoint, and a plugin that gives tokens of Google. It holds no secret."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Any

from longboat.clusters.cloud.gcp.cluster_view import GkeView
from longboat.clusters.cloud.gcp.gke import GkeCluster
from longboat.core.errors import NotFound

EXEC_VERSION = "client.authentication.k8s.io/v1beta1"
_KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


def kubeconfig_of(name: str, cluster: GkeView) -> str:
    import yaml

    # By its name where PATH has it, so that the kubeconfig outlives an environment; else this very one.
    program = ["longboat"] if shutil.which("longboat") else [sys.executable, "-m", "longboat"]
    words = [*program, "cluster", "token", name, "--cloud", "gcp"]
    key = os.environ.get(_KEY_FILE)
    plugin: dict[str, Any] = {"apiVersion": EXEC_VERSION, "command": words[0], "args": words[1:]}
    plugin |= {"interactiveMode": "Never", "provideClusterInfo": False, "installHint": "pip install 'longboat[gcp]'"}
    plugin["env"] = [{"name": _KEY_FILE, "value": os.path.abspath(key)}] if key else []
    server = {"server": f"https://{cluster.endpoint}", "certificate-authority-data": cluster.authority}
    body = {
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": name, "user": {"exec": plugin}}],
    }
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": name, **body}, sort_keys=False)


def read_kubeconfig(cluster: GkeCluster) -> str:
    """Of a cluster that GKE has. Raises NotFound."""
    view = cluster.look()
    if view is None:
        message = f"GKE has no cluster {cluster.name} in {cluster.region}"
        raise NotFound(message, hint="longboat cluster up makes it")
    return kubeconfig_of(cluster.name, view)


def exec_credential(token: str, until: float) -> dict[str, object]:
    """The answer of a credential plugin."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until))
    return {
        "apiVersion": EXEC_VERSION,
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": moment},
    }
