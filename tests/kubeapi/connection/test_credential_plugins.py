"""Exec credential plugins: real programs that print credentials, or fail to."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import EngineError
from longboat.kubeapi.connection import credential_plugins
from longboat.kubeapi.connection.credentials import Credentials
from longboat.kubeapi.errors import KubeconfigError, Unreachable
from longboat.kubeapi.kubeconfig import ClusterAccess

V1 = "client.authentication.k8s.io/v1"
COUNTING = """#!{python}
import json, os, pathlib, sys
folder = pathlib.Path(__file__).parent
count = len(list(folder.glob("call-*")))
(folder / f"call-{{count}}").write_text(json.dumps({{
    "info": json.loads(os.environ["KUBERNETES_EXEC_INFO"]), "args": sys.argv[1:], "extra": os.environ.get("EXTRA"),
    "stdin": sys.stdin.read()}}))
status = json.loads((folder / "status").read_text().replace("COUNT", str(count)))
print(json.dumps({{"apiVersion": "{version}", "kind": "ExecCredential", "status": status}}))
"""


class Plugin:
    """A program that counts its calls."""

    def __init__(self, folder: Path, version: str = V1) -> None:
        self.folder = folder
        self.program = folder / "login"
        self.program.write_text(COUNTING.format(python=sys.executable, version=version))
        self.program.chmod(0o755)

    def gives(self, **status: str) -> None:
        (self.folder / "status").write_text(json.dumps(status))

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted(self.folder.glob("call-*"))]

    def access(self, **more: Any) -> ClusterAccess:
        user = {"exec": {"apiVersion": V1, "command": str(self.program), "interactiveMode": "Never", **more}}
        cluster = {"server": "https://x", "certificate-authority-data": "Y2E=", "tls-server-name": "name"}
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "us"}}
        return ClusterAccess("some", "default", "https://x", {**cluster, "extensions": [extension]}, user)


def credentials(access: ClusterAccess) -> Credentials:
    return Credentials(access, dict(os.environ))


def in_future(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.123456789Z")


def test_a_token_is_asked_for_once_and_kept(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.gives(token="COUNT", expirationTimestamp=in_future(3600))
    env = [{"name": "EXTRA", "value": "more"}]
    held = credentials(plugin.access(args=["get-token", "-x"], env=env))
    assert held.identity().authorization == held.identity().authorization == "Bearer 0"
    (call,) = plugin.calls
    assert call["args"] == ["get-token", "-x"]
    assert call["extra"] == "more"
    assert call["stdin"] == ""
    assert call["info"] == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}


def test_one_that_expires_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = Plugin(tmp_path)
    plugin.gives(token="COUNT", expirationTimestamp=in_future(3600))
    held = credentials(plugin.access())
    first = held.identity()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    assert first.authorization == "Bearer 0"
    assert held.identity().authorization == "Bearer 1"


def test_a_refused_one_is_asked_for_again(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.gives(token="COUNT")
    held = credentials(plugin.access())
    refused = held.identity()
    assert held.renew(refused)
    assert held.identity().authorization == "Bearer 1"
    # Another thread's refusal of the same token does not cost a second call.
    assert held.renew(refused)
    assert len(plugin.calls) == 2
    plugin.gives(token="1")
    assert not held.renew(held.identity())


def test_the_cluster_is_told_where_it_is_wanted(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.gives(token="t")
    credentials(plugin.access(provideClusterInfo=True)).identity()
    assert plugin.calls[0]["info"]["spec"]["cluster"] == {
        "server": "https://x",
        "tls-server-name": "name",
        "certificate-authority-data": "Y2E=",
        "config": {"audience": "us"},
    }


def test_certificates_come_from_plugins_too(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.gives(clientCertificateData="CERT", clientKeyData="KEY")
    assert credentials(plugin.access()).identity() == (None, b"CERT\nKEY")


def test_v1beta1_is_spoken_and_others_are_not(tmp_path: Path) -> None:
    older = "client.authentication.k8s.io/v1beta1"
    plugin = Plugin(tmp_path, version=older)
    plugin.gives(token="t")
    assert credentials(plugin.access(apiVersion=older)).identity().authorization == "Bearer t"
    with pytest.raises(Unreachable, match=f"printed {older}"):
        credentials(plugin.access()).identity()
    with pytest.raises(KubeconfigError, match="v1alpha1"):
        credentials(plugin.access(apiVersion="client.authentication.k8s.io/v1alpha1")).identity()


def test_a_missing_program_is_told_with_how_to_install_it(tmp_path: Path) -> None:
    access = Plugin(tmp_path).access(command="no-such-login", installHint="pip install login\n")
    with pytest.raises(
        KubeconfigError, match="'no-such-login', which gives the credentials of context 'some'"
    ) as caught:
        credentials(access).identity()
    assert caught.value.hint == "pip install login"


@pytest.mark.parametrize("wrong", [{"env": [{"name": "A"}]}, {"env": 3}, {"args": "x"}, {"interactiveMode": "Maybe"}])
def test_a_plugin_written_wrongly_is_told(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(KubeconfigError, match="exec plugin of context 'some'"):
        credentials(Plugin(tmp_path).access(**wrong)).identity()


def test_a_program_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.program.write_text("#!/bin/sh\necho you are logged out >&2\nexit 3\n")
    with pytest.raises(Unreachable, match="exit code 3: you are logged out") as caught:
        credentials(plugin.access()).identity()
    assert "log in" in str(caught.value.hint)


def test_a_terminal_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(KubeconfigError, match="wants a terminal"):
            credentials(Plugin(tmp_path).access(interactiveMode="Always")).identity()


SECRET = "canary-7f3a"


@pytest.mark.parametrize(
    "said",
    [
        b"not json " + SECRET.encode(),
        b"[]",
        json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {}}).encode(),
        json.dumps({"apiVersion": V1, "kind": "Other", "status": {"token": SECRET}}).encode(),
        json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"clientKeyData": SECRET}}).encode(),
        json.dumps(
            {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": SECRET, "expirationTimestamp": "soon"}}
        ).encode(),
    ],
)
def test_what_is_no_credential_is_refused_without_showing_it(said: bytes) -> None:
    with pytest.raises(EngineError) as caught:
        credential_plugins.read_answer("login", V1, said)
    assert "login" in caught.value.message
    assert SECRET not in caught.value.message
