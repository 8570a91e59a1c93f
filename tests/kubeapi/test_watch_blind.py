"""A reflector whose thread met what nobody foresaw: noted, told as blind, tried again, and mended by itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.engines.kubernetes.reconcile.controller import Controller
from longboat.kubeapi import watch
from longboat.kubeapi.client import Client
from longboat.kubeapi.connection import credentials
from longboat.kubeapi.watch import Change
from testbed.clusters import Cluster
from testbed.proxy import ApiProxy
from tests.kubeapi.objects import ConfigMapStruct
from tests.kubeapi.test_watch import config, data, eventually, reflecting, until

pytestmark = pytest.mark.cluster


@pytest.fixture
def token(client: Client) -> str:
    """Of a service account that may see the namespace's ConfigMaps."""
    namespace = client.namespace
    client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "looker"}})
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
    meta = {"name": "looker", "namespace": namespace}
    version = "rbac.authorization.k8s.io/v1"
    client.create({"apiVersion": version, "kind": "Role", "metadata": meta, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": "looker", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looker"}
    client.create(
        {"apiVersion": version, "kind": "RoleBinding", "metadata": meta, "subjects": [subject], "roleRef": role}
    )
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/looker/token"
    return str(json.loads(client.request("POST", path, body=wanted))["status"]["token"])


def kubeconfig_of(cluster: Cluster, api_proxy: ApiProxy, namespace: str, user: dict[str, Any], folder: Path) -> Path:
    """Through the proxy, as this user."""
    authority = {"server": api_proxy.server, "certificate-authority": str(cluster.pki / "ca.crt")}
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": authority}],
        "users": [{"name": "x", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": namespace}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(text))
    return file


class Source:
    """Where a client gets its token from: a file, or a program. It can be taken away and given back."""

    def __init__(self, kind: str, token: str, folder: Path) -> None:
        self.file = folder / ("token" if kind == "file" else "plugin")
        if kind == "file":
            self.text, self.user = token, {"tokenFile": str(self.file)}
        else:
            answer = {
                "apiVersion": "client.authentication.k8s.io/v1",
                "kind": "ExecCredential",
                "status": {"token": token, "expirationTimestamp": "2001-01-01T00:00:00Z"},
            }
            self.text = f"#!{sys.executable}\nprint({json.dumps(json.dumps(answer))})\n"
            exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(self.file)}
            self.user = {"exec": {**exec_, "interactiveMode": "Never"}}
        self.give()

    def give(self) -> None:
        self.file.write_text(self.text)
        self.file.chmod(0o700)

    def take(self) -> None:
        self.file.unlink()


@pytest.fixture(params=["file", "plugin"])
def source(
    request: pytest.FixtureRequest, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Source]:
    monkeypatch.setattr(credentials, "REREAD_S", 0.0)  # what a minute would do
    yield Source(request.param, token, tmp_path)


def test_credentials_that_are_gone_are_told_and_tried_again(
    client: Client, cluster: Cluster, api_proxy: ApiProxy, source: Source, tmp_path: Path
) -> None:
    file = kubeconfig_of(cluster, api_proxy, client.namespace, source.user, tmp_path)
    client.create(config("one"))
    with Client.open(environment={"KUBECONFIG": str(file)}) as other, reflecting(other) as found:
        found.sync()
        eventually(lambda: api_proxy.open_watches == 1)
        assert found.is_fresh and not found.why_stale()
        source.take()

        def is_told() -> bool:
            api_proxy.drop_watches()  # what a program gave is used for a second at least
            return source.file.name in found.why_stale()

        eventually(is_told)
        assert found.is_synced, "once it was"
        client.create(config("two"))
        source.give()
        until(found, lambda: set(data(found)) == {"one", "two"})
        eventually(lambda: found.is_fresh and not found.why_stale())


class Broken:
    """A handler with a fault: it fails the first times."""

    def __init__(self, times: int) -> None:
        self.left, self.told = times, [""]

    def __call__(self, change: Change[ConfigMapStruct]) -> None:
        if self.left:
            self.left -= 1
            raise KeyError("a fault of ours")
        self.told.append(f"{change.type} {change.object.metadata.name}")


def test_a_handler_that_fails_is_noted_and_told_again(client: Client) -> None:
    handler = Broken(2)
    with reflecting(client, on_change=handler) as found:
        found.sync()
        client.create(config("one"))
        eventually(lambda: "a fault of ours" in found.handler_trouble)
        client.create(config("two"))
        client.create(config("three"))
        until(found, lambda: len(found.items) == 3)
        eventually(lambda: len(handler.told) == 4)
        assert sorted(handler.told) == ["", "ADDED one", "ADDED three", "ADDED two"]
        assert found.is_fresh


def test_what_nobody_foresaw_in_the_thread_does_not_end_it(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [MemoryError("no more"), RuntimeError("can't start new thread"), UnicodeDecodeError("u", b"", 0, 1, "x")]
    real = watch.Watch.__iter__

    def iterate(self: Any) -> Any:
        if failing:
            raise failing.pop()
        return real(self)

    monkeypatch.setattr(watch.Watch, "__iter__", iterate)
    with reflecting(client) as found:
        found.sync()
        client.create(config("one"))
        until(found, lambda: not failing and set(data(found)) == {"one"})
        eventually(lambda: found.is_fresh and found.trouble is None)


def test_silence_makes_it_old(proxied: Client, api_proxy: ApiProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    with reflecting(proxied) as found:
        found.sync()
        eventually(lambda: api_proxy.open_watches == 1)
        api_proxy.freeze()
        monkeypatch.setattr(watch, "BLIND_S", 0.5)
        eventually(lambda: not found.is_fresh)
        assert found.trouble is None, "the connection is there, and nothing comes"
        assert "nothing was heard of configmaps for" in found.why_stale()
        assert not found.why_long_stale()
        monkeypatch.setattr(watch, "UNHEALTHY_S", 0.5)
        assert "configmaps" in found.why_long_stale()
        monkeypatch.undo()
        api_proxy.restore()


def test_a_dead_thread_is_blindness(client: Client) -> None:
    with reflecting(client) as found:
        found.sync()
        eventually(lambda: found._watch is not None)
        found._stop.set()
        assert found._watch is not None
        found._watch.close()
        found._thread.join(10.0)
        assert found.is_synced and not found.is_fresh
        assert "has ended" in found.why_stale() and found.why_long_stale()


def test_the_controller_says_which_watch_is_blind(
    proxied: Client, api_proxy: ApiProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(proxied, namespaces=[proxied.namespace], say=lambda text: None)
    controller.start()
    try:
        # Whether JobSets are served at all may be known a moment later than that all others are seen.
        eventually(lambda: controller.is_ready and not controller.blind_spots())
        assert not controller.why_unhealthy()
        api_proxy.freeze()
        monkeypatch.setattr(watch, "BLIND_S", 0.5)
        monkeypatch.setattr(watch, "UNHEALTHY_S", 1.0)
        eventually(lambda: not controller.is_ready)
        for plural in ("pods", "nodes"):
            eventually(lambda plural=plural: any(plural in text for text in controller.blind_spots()))
        eventually(lambda: "configmaps" in controller.why_unhealthy())
        monkeypatch.undo()
        api_proxy.restore()
        eventually(lambda: controller.is_ready and not controller.why_unhealthy())
    finally:
        api_proxy.restore()
        controller.close()
    assert "has ended" in controller.why_unhealthy()
