"""The kubeconfig of a cluster on Azure: its endpoint, and a plugin that asks AKS for credentials. It has no secret."""

from __future__ import annotations

import base64
import binascii
import shutil
import sys
import time
from typing import Any

from longboat.clouds.azure.session import AzureSession
from longboat.clusters.cloud.azure.resource_group import SUBSCRIPTION_VARIABLE, ClusterGroup, find_subscription
from longboat.core.errors import EngineError

EXEC_VERSION = "client.authentication.k8s.io/v1beta1"
_LIFE_S = 900.0  # so long a client uses what it got before it asks again
Body = dict[str, Any]


def open_group(name: str) -> ClusterGroup:
    session = AzureSession(is_patient=True)
    return ClusterGroup(session, find_subscription(session), name)


def kubeconfig_of(name: str, group: ClusterGroup) -> str:
    import yaml

    # By its name where PATH has it, so that the kubeconfig outlives an environment; else this very one.
    program = ["longboat"] if shutil.which("longboat") else [sys.executable, "-m", "longboat"]
    words = [*program, "cluster", "token", name, "--cloud", "azure"]
    entry = _parsed(group.user_kubeconfig())["clusters"][0]["cluster"]
    server = {key: entry[key] for key in ("server", "certificate-authority-data")}
    user: Body = {"apiVersion": EXEC_VERSION, "command": words[0], "args": words[1:], "interactiveMode": "Never"}
    user["env"] = [{"name": SUBSCRIPTION_VARIABLE, "value": group.subscription}]
    user |= {"installHint": "pip install 'longboat[azure]'", "provideClusterInfo": False}
    body = {
        "users": [{"name": name, "user": {"exec": user}}],
        "clusters": [{"name": name, "cluster": server}],
        "contexts": [{"name": name, "context": {"user": name, "cluster": name}}],
    }
    return yaml.safe_dump({"kind": "Config", "apiVersion": "v1", "current-context": name, **body}, sort_keys=False)


def exec_credential(group: ClusterGroup, now: float) -> Body:
    """The answer of a credential plugin: what AKS gives this user."""
    user = _parsed(group.user_kubeconfig())["users"][0]["user"]
    if "exec" in user:
        raise EngineError(
            f"{group.cluster} lets people in by Entra ID", hint="az aks get-credentials, with kubelogin, for that"
        )
    status = {"expirationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + _LIFE_S))}
    if user.get("token"):
        status["token"] = user["token"]
    else:
        pairs = {"clientCertificateData": "client-certificate-data", "clientKeyData": "client-key-data"}
        status |= {name: base64.b64decode(user[key]).decode() for name, key in pairs.items()}
    return {"apiVersion": EXEC_VERSION, "kind": "ExecCredential", "status": status}


def _parsed(text: str) -> Body:
    import yaml

    try:
        body = yaml.safe_load(base64.b64decode(text))
        if body["users"][0]["user"] and body["clusters"][0]["cluster"]:
            return dict(body)
    except (binascii.Error, yaml.YAMLError, KeyError, IndexError, TypeError):
        pass
    raise EngineError("AKS gave credentials that are not understood")  # not shown: they are secret
