"""Root of a control plane writes the kubeconfig that this machine takes: no more of it than certificates."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from longboat.clusters.admin_kubeconfig import with_certificates_alone
from longboat.core.errors import EngineError


def written(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **more: Any) -> str:
    """As kubeadm writes it, with changes."""
    clusters = {"certificate-authority-data": "Q0E=", "server": "https://10.0.0.5:6443", **(cluster or {})}
    users = {"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ", **(user or {})}
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": clusters}],
        "users": [{"name": "kubernetes-admin", "user": users}],
        "contexts": [{"name": "admin@lab", "context": {"cluster": "lab", "user": "kubernetes-admin"}}],
        "current-context": "admin@lab",
        "preferences": {},
        **more,
    }
    return yaml.safe_dump(body)


def test_what_kubeadm_writes_is_taken() -> None:
    content = yaml.safe_load(with_certificates_alone("cp", written()))
    (cluster,), (user,) = content["clusters"], content["users"]
    assert cluster["cluster"] == {"certificate-authority-data": "Q0E=", "server": "https://10.0.0.5:6443"}
    assert user["user"] == {"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"}
    assert content["current-context"] == content["contexts"][0]["name"]


@pytest.mark.parametrize(
    "text",
    [
        written(
            user={"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", "id"]}}
        ),
        written(user={"tokenFile": "/root/.ssh/id_ed25519"}),
        written(user={"client-key": "/root/.ssh/id_ed25519"}),
        written(user={"auth-provider": {"name": "gcp"}}),
        written(cluster={"proxy-url": "http://evil.test"}),
        written(cluster={"insecure-skip-tls-verify": True}),
        written(cluster={"server": "http://10.0.0.5:6443"}),
        written(cluster={"server": "https://10.0.0.5:6443/?x=\n"}),
        written(cluster={"server": ["https://10.0.0.5:6443"]}),
        written(cluster={"certificate-authority-data": "no base64!"}),
        written(users=[]),
        written(contexts=[{"name": "admin@lab"}]),
        written(clusters={"name": "lab"}),
        "",
        "- a list",
        "{",
        "!!python/object/apply:os.system [id]",
        "[" * 5000,
    ],
)
def test_anything_else_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(EngineError, match="cp: /etc/kubernetes/admin.conf is not what kubeadm writes") as raised:
        with_certificates_alone("cp", text)
    assert "evil" not in raised.value.message
