"""Kubeconfig files as kubectl reads them: merged, relative to their files, told plainly when they cannot be used."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from longboat.kubeapi import kubeconfig
from longboat.kubeapi.errors import KubeconfigError


def written(file: Path, **more: Any) -> Path:
    """A kubeconfig with one context, named after its file, and what else is given."""
    name = file.stem
    content = {
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example:6443"}}],
        "users": [{"name": name, "user": {"token": f"token of {name}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        **more,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    return file


def environment(*files: Path, **more: str) -> dict[str, str]:
    return {"KUBECONFIG": ":".join(map(str, files)), **more}


def test_current_context_and_its_namespace(tmp_path: Path) -> None:
    file = written(tmp_path / "one.yaml", **{"current-context": "one"})
    found = kubeconfig.find(None, None, environment(file))
    assert (found.context, found.namespace, found.server) == ("one", "default", "https://one.example:6443")
    assert found.user == {"token": "token of one"}
    contexts = [{"name": "one", "context": {"cluster": "one", "user": "one", "namespace": "team"}}]
    file = written(tmp_path / "one.yaml", contexts=contexts, **{"current-context": "one"})
    assert kubeconfig.find(None, None, environment(file)).namespace == "team"
    assert kubeconfig.find(None, "mine", environment(file)).namespace == "mine"


def test_in_a_list_the_first_that_names_something_wins(tmp_path: Path) -> None:
    first = written(tmp_path / "first.yaml")
    other = {"name": "first", "cluster": {"server": "https://elsewhere"}}
    more = {"name": "second", "cluster": {"server": "https://second"}}
    contexts = [{"name": "second", "context": {"cluster": "second", "user": "first"}}]
    second = written(
        tmp_path / "second.yaml", clusters=[other, more], contexts=contexts, **{"current-context": "second"}
    )
    missing = tmp_path / "missing.yaml"
    files = environment(missing, first, second)
    found = kubeconfig.find(None, None, files)
    # The user comes from another file than the context: as one file.
    assert (found.context, found.server, found.user) == ("second", "https://second", {"token": "token of first"})
    assert kubeconfig.find("first", None, files).server == "https://first.example:6443"


def test_without_the_variable_the_file_in_the_home_is_read(tmp_path: Path) -> None:
    written(tmp_path / ".kube" / "config", **{"current-context": "config"})
    assert kubeconfig.find(None, None, {"HOME": str(tmp_path)}).context == "config"


def test_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    (folder / "pki").mkdir(parents=True)
    (folder / "pki" / "ca.crt").write_text("an authority")
    cluster = {"server": "https://x/", "certificate-authority": "pki/ca.crt"}
    plugin = {"command": "./bin/login", "apiVersion": "client.authentication.k8s.io/v1"}
    user = {"tokenFile": "token", "client-key": "/absolute/key", "exec": plugin}
    file = written(
        folder / "one.yaml",
        clusters=[{"name": "one", "cluster": cluster}],
        users=[{"name": "one", "user": user}],
        **{"current-context": "one"},
    )
    found = kubeconfig.find(None, None, environment(file))
    assert found.server == "https://x"
    assert kubeconfig.pem(found.cluster, "certificate-authority") == b"an authority"
    assert found.user["tokenFile"] == str(folder / "token")
    assert found.user["client-key"] == "/absolute/key"
    assert Path(found.user["exec"]["command"]) == folder / "bin" / "login"


def test_data_counts_before_a_file(tmp_path: Path) -> None:
    entry = {"client-key": str(tmp_path / "nowhere"), "client-key-data": base64.b64encode(b"secret").decode()}
    assert kubeconfig.pem(entry, "client-key") == b"secret"
    assert kubeconfig.pem({}, "client-key") is None
    with pytest.raises(KubeconfigError, match="nowhere: cannot be read"):
        kubeconfig.pem({"client-key": str(tmp_path / "nowhere")}, "client-key")


def test_an_unknown_context_is_told_with_the_nearest(tmp_path: Path) -> None:
    file = written(tmp_path / "production.yaml")
    with pytest.raises(KubeconfigError, match=r"no context 'producton' in .*production\.yaml") as caught:
        kubeconfig.find("producton", None, environment(file))
    assert caught.value.hint == "did you mean 'production'?"
    with pytest.raises(KubeconfigError) as caught:
        kubeconfig.find("zzz", None, environment(file))
    assert caught.value.hint == "contexts: production"
    with pytest.raises(KubeconfigError, match="no context is chosen") as caught:
        kubeconfig.find(None, None, environment(file))
    assert "production" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("kind: [", r"bad\.yaml:\d: not YAML"),
        ("just words", "not a kubeconfig"),
        ("kind: Pod", "not a kubeconfig"),
        ("kind: Config\nclusters: {}\ncontexts: 3", "contexts: not a list"),
        ("kind: Config\nusers: [3]", "users: an entry"),
        ("current-context: a\ncontexts: [{name: a, context: {cluster: b}}]", "names the cluster 'b', which is not in"),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: b, user: u}}]\n"
            "clusters: [{name: b, cluster: {server: x}}]",
            "names the user 'u', which is not in",
        ),
        ("current-context: a\ncontexts: [{name: a, context: {cluster: b}}]\nclusters: [{name: b}]", "has no server"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(content)
    with pytest.raises(KubeconfigError, match=told):
        kubeconfig.find(None, None, environment(file))


def test_no_file_at_all_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"no kubeconfig: .*nowhere is not there") as caught:
        kubeconfig.find(None, None, environment(tmp_path / "nowhere"))
    assert "KUBECONFIG" in str(caught.value.hint)
    with pytest.raises(KubeconfigError, match="are not there"):
        kubeconfig.find("some", None, environment(tmp_path / "a", tmp_path / "b"))


def test_in_a_pod_without_a_kubeconfig_the_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "account"
    account.mkdir()
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", account)
    variables = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(KubeconfigError, match="no kubeconfig"):
        kubeconfig.find(None, None, variables)
    (account / "token").write_text("t")
    (account / "namespace").write_text("team\n")
    found = kubeconfig.find(None, None, variables)
    assert (found.context, found.namespace, found.server) == ("in-cluster", "team", "https://[fd00::1]:443")
    assert found.user == {"tokenFile": str(account / "token")}
    # A kubeconfig counts first, unless the pod's own account is asked for by name.
    file = written(tmp_path / "one.yaml", **{"current-context": "one"})
    both = {**variables, **environment(file)}
    assert kubeconfig.find(None, None, both).context == "one"
    assert kubeconfig.find("in-cluster", None, both).context == "in-cluster"


@pytest.mark.parametrize("name", ["Bad NS", "team.a", "-a", "a" * 64])
def test_what_cannot_be_a_namespace_is_told_at_once(tmp_path: Path, name: str) -> None:
    file = written(tmp_path / "production.yaml")
    with pytest.raises(KubeconfigError, match="is not the name of a namespace") as caught:
        kubeconfig.find("production", name, environment(file))
    assert "kubectl create" not in str(caught.value.hint)
