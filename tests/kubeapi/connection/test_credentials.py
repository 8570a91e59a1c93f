"""Who we are: from the kubeconfig, from files that change, and on the real server."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from longboat.kubeapi import kubeconfig
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection import credentials
from longboat.kubeapi.errors import Forbidden, KubeconfigError, Unreachable
from longboat.kubeapi.kinds import CONFIG_MAP, SERVICE_ACCOUNT
from longboat.kubeapi.kubeconfig import ClusterAccess
from testbed.clusters import Cluster


def held(**user: Any) -> credentials.Credentials:
    return credentials.Credentials(ClusterAccess("some", "default", "https://x", {"server": "https://x"}, user), {})


def test_tokens_and_passwords() -> None:
    assert held().identity() == (None, None)
    assert held(token="t").identity().authorization == "Bearer t"
    both = base64.b64decode(str(held(username="u", password="p:w").identity().authorization).split()[1])
    assert both == b"u:p:w"


def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    found = held(tokenFile=str(file), token="ignored")
    assert found.identity().authorization == "Bearer one"
    file.write_text("two\n")
    assert found.identity().authorization == "Bearer one"
    later = time.time() + credentials.REREAD_S
    monkeypatch.setattr(time, "time", lambda: later)
    assert found.identity().authorization == "Bearer two"
    file.write_text("three\n")
    assert found.renew(found.identity())
    assert found.identity().authorization == "Bearer three"
    file.write_text("")
    with pytest.raises(KubeconfigError, match="no token"):
        found.renew(found.identity())


def test_a_token_that_is_none_is_not_shown() -> None:
    for token in ("canary\nX-Other: header", "canary\u00fc"):
        with pytest.raises(KubeconfigError) as caught:
            held(token=token).identity()
        assert "canary" not in caught.value.message


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    (tmp_path / "crt").write_text("CERT")
    with pytest.raises(KubeconfigError, match="without its key"):
        held(**{"client-certificate": str(tmp_path / "crt")}).identity()


def test_the_legacy_auth_provider_is_refused() -> None:
    with pytest.raises(KubeconfigError, match="legacy auth-provider 'gcp'") as caught:
        held(**{"auth-provider": {"name": "gcp", "config": {"access-token": "secret"}}})
    assert "exec plugin" in str(caught.value.hint)


def token_of(client: Client) -> str:
    """A real token of the namespace's service account."""
    path = client.path(SERVICE_ACCOUNT, None, "default", "token")
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(json.loads(client.request("POST", path, body=asked))["status"]["token"])


def who(client: Client) -> str:
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    return str(json.loads(client.request("POST", path, body=asked))["status"]["userInfo"]["username"])


def with_user(cluster: Cluster, folder: Path, **user: Any) -> dict[str, str]:
    """An environment whose kubeconfig leads to the cluster as this user."""
    content = json.loads(cluster.kubeconfig.read_text())
    content["users"][0]["user"] = user
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content))
    return {**os.environ, "KUBECONFIG": str(file)}


@pytest.mark.cluster
def test_a_client_certificate_is_known_to_the_server(client: Client) -> None:
    assert who(client) == "longboat-testbed-admin"


@pytest.mark.cluster
def test_a_token_file_and_a_plugin_are_known_to_the_server(client: Client, cluster: Cluster, tmp_path: Path) -> None:
    account = f"system:serviceaccount:{client.namespace}:default"
    file = tmp_path / "token"
    file.write_text(token_of(client))
    environment = with_user(cluster, tmp_path, tokenFile="token")
    with Client.open(environment=environment) as other:
        assert who(other) == account
        with pytest.raises(Forbidden, match="cannot list resource"):
            other.list(CONFIG_MAP, namespace=client.namespace)

    version = "client.authentication.k8s.io/v1"
    program = tmp_path / "login"
    # First a token that nobody knows, then the good one: what a plugin with a stale cache does.
    program.write_text(
        f"#!{sys.executable}\nimport json, pathlib\nhere = pathlib.Path({str(tmp_path)!r})\n"
        "token = (here / 'token').read_text() if (here / 'called').exists() else 'stale'\n"
        "(here / 'called').touch()\n"
        f"print(json.dumps(dict(apiVersion={version!r}, kind='ExecCredential', status=dict(token=token))))\n"
    )
    program.chmod(0o755)
    plugin = {"apiVersion": version, "command": "./login", "interactiveMode": "Never"}
    with Client.open(environment=with_user(cluster, tmp_path, exec=plugin)) as other:
        assert who(other) == account
        assert other.requests == 2


@pytest.mark.cluster
def test_an_unknown_token_is_told_as_such(cluster: Cluster, tmp_path: Path) -> None:
    with Client.open(environment=with_user(cluster, tmp_path, token="nobody-knows-me")) as other:
        with pytest.raises(Unreachable, match="does not know who we are") as caught:
            who(other)
    assert "log in again" in str(caught.value.hint)
    assert "nobody-knows-me" not in caught.value.message


@pytest.mark.cluster
def test_the_service_account_of_a_pod_is_known_to_the_server(
    client: Client, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(token_of(client))
    (tmp_path / "ca.crt").write_bytes((cluster.pki / "ca.crt").read_bytes())
    (tmp_path / "namespace").write_text(client.namespace)
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    variables = {
        "HOME": str(tmp_path),
        "KUBERNETES_SERVICE_HOST": cluster.address,
        "KUBERNETES_SERVICE_PORT": str(cluster.ports["apiserver"]),
    }
    with Client.open(environment=variables) as other:
        assert (other.context, other.namespace) == ("in-cluster", client.namespace)
        assert who(other) == f"system:serviceaccount:{client.namespace}:default"
