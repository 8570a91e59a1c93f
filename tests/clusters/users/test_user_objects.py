"""What a user of a cluster is given, as objects."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.users.user_objects import (
    ACCOUNTS,
    check_namespace,
    check_user,
    kubeconfig_of,
    namespace_object,
    right_objects,
)
from longboat.core.errors import UsageError
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS, role_for
from longboat.kubeapi.kubeconfig import ClusterAccess


def access(**cluster: Any) -> ClusterAccess:
    secret = {"token": "the administrator's", "client-key-data": "his"}
    return ClusterAccess("lab", "default", "https://10.0.0.5:6443", {"server": "10.0.0.5", **cluster}, secret)


def test_the_role_is_that_of_the_docs_and_the_account_is_elsewhere() -> None:
    role, binding = right_objects("anna", "vision")
    assert role["rules"] == role_for(PERMISSIONS, namespace="vision")["rules"]
    assert binding["metadata"]["namespace"] == role["metadata"]["namespace"] == "vision"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "anna", "namespace": ACCOUNTS}]
    assert binding["roleRef"]["kind"] == "Role"


def test_new_namespaces_are_confined() -> None:
    level = "pod-security.kubernetes.io/enforce"
    assert namespace_object("vision")["metadata"]["labels"][level] == "baseline"
    assert namespace_object(ACCOUNTS)["metadata"]["labels"][level] == "restricted"


def test_the_kubeconfig_has_nothing_of_the_administrator_s(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("authority")
    made = kubeconfig_of("anna", "vision", "hers", access(**{"certificate-authority": str(tmp_path / "ca.crt")}))
    (cluster,), (user,), (context,) = made["clusters"], made["users"], made["contexts"]
    assert cluster["cluster"] == {
        "server": "https://10.0.0.5:6443",
        "certificate-authority-data": base64.b64encode(b"authority").decode(),
    }
    assert user == {"name": "anna", "user": {"token": "hers"}}
    assert context == {"name": "lab", "context": {"cluster": "lab", "user": "anna", "namespace": "vision"}}
    assert made["current-context"] == "lab"
    kept = kubeconfig_of("anna", "vision", "hers", access(**{"tls-server-name": "k8s", "extensions": [1]}))
    assert kept["clusters"][0]["cluster"] == {"server": "https://10.0.0.5:6443", "tls-server-name": "k8s"}


@pytest.mark.parametrize("name", ["", "Anna", "a" * 41, "-a", "a-", "1a", "a.b", "a/b", "a b"])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_user(name)


@pytest.mark.parametrize("namespace", ["kube-system", "longboat-system", ACCOUNTS, "A", "a/b", ""])
def test_namespaces_that_are_refused(namespace: str) -> None:
    with pytest.raises(UsageError):
        check_namespace(namespace)
