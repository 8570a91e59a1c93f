"""The archive for a bug report holds no secret, wherever one was planted."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from longboat.core.errors import EngineError
from longboat.doctor.bundle import GONE, Redactor, contents, write_bundle
from longboat.doctor.examine import Diagnosis
from longboat.doctor.facts import CLAIMS, NODES, PODS, Seen
from longboat.doctor.findings import Finding
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.broken import apply, pod

PEM = "-----BEGIN PRIVATE KEY-----\nMIIBVgIBADANBg\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"


def read(path: Path) -> str:
    with tarfile.open(path) as archive:
        files = [archive.extractfile(name) for name in archive.getnames()]
        return "\n".join(file.read().decode() for file in files if file)


@pytest.mark.parametrize(
    "text",
    [
        PEM,
        PEM[:60],
        f"token {TOKEN} was refused",
        "GET https://anna:hunter2secret@registry.example/v2",
        "Authorization: Bearer abc.def-123",
        'password: "correct-horse"',
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENG",
        "key AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghij0123456789 and hf_abcdefghijklmnop",
        base64.b64encode(bytes(range(100, 148))).decode(),
        "proxy http://anna:with/slash-secret@proxy.example:3128 refused",
        "http://anna:with@sign-and-a-long-secret@proxy.example:3128",
        "wandb: 0123456789abcdef0123456789abcdef01234567",
        "key=AB_0123456789ABCDEF0123456789ABCDEF",
    ],
)
def test_what_looks_like_a_secret(text: str) -> None:
    redacted = Redactor([]).text(text)
    assert GONE in redacted
    for word in text.replace('"', " ").replace("=", " ").replace("@", ":").replace("//", ":").split(":"):
        for part in word.split():
            assert len(part) < 16 or part not in redacted or part.startswith(("registry", "AWS_SECRET"))


def test_what_is_none_stays() -> None:
    texts = [
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        f"sha256:{'ab' * 32}",
        f"docker-pullable://registry.example:5000/team/image@sha256:{'ab' * 32}",
        "https://lab:6443",
        "10.0.0.1",
    ]
    assert [Redactor(["", "1", "true"]).text(text) for text in texts] == texts
    assert Redactor(["my-own-value"]).value({"my-own-value": ["a my-own-value b"]}) == {GONE: [f"a {GONE} b"]}


def test_known_values_that_overlap_are_gone_whole() -> None:
    redactor = Redactor(["first-half", "half-and-second", "half-and"])
    assert redactor.text("a first-half-and-second b") == f"a {GONE} b"
    assert redactor.text("half-and, first-half") == f"{GONE}, {GONE}"
    assert redactor.text("first-hal") == "first-hal"


def test_a_namespace_with_many_pods() -> None:
    values = [f"https://store/{at:05}" for at in range(20_000)]
    redactor = Redactor(values)
    assert {redactor.text(f"pod {at} reads {value}") for at, value in enumerate(values)} == {
        f"pod {at} reads {GONE}" for at in range(len(values))
    }


def test_only_named_fields_of_objects(tmp_path: Path) -> None:
    secret = "s3cr3t-value"
    body = pod("p", ["train", "--key", secret], env=[{"name": "KEY", "value": secret}])
    body["metadata"]["annotations"] = {"last-applied": secret}
    ended = {"exitCode": 1, "reason": "Error", "message": f"died with {secret}"}
    body["status"] = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
    node = {
        "metadata": {
            "name": "n",
            "annotations": {"x": secret},
            "labels": {"team": secret, "nvidia.com/gpu.count": "8"},
        },
        "status": {"nodeInfo": {"machineID": secret, "kubeletVersion": "v1.36.0"}},
    }
    claim = {"metadata": {"name": "c", "annotations": {"x": secret}}, "status": {"phase": "Bound"}}
    seen = Seen({PODS: [body], NODES: [node], CLAIMS: [claim]})
    finding = Finding(name="x", layer="api", status="broken", detail=f"the server said {secret}")
    environment = {"LONGBOAT_HOME": str(tmp_path), "MY_TOKEN": "another-secret"}
    files = contents(None, Diagnosis(findings=(finding,), seen=seen), environment)
    text = json.dumps(files)
    assert secret not in text and "another-secret" not in text
    assert '"KEY"' in text and "v1.36.0" in text and "nvidia.com/gpu.count" in text and "the server said" in text


def test_an_archive_for_its_owner_alone(tmp_path: Path) -> None:
    write_bundle(tmp_path / "a.tar.gz", {"findings.json": []})
    assert (tmp_path / "a.tar.gz").stat().st_mode & 0o777 == 0o600 and os.listdir(tmp_path) == ["a.tar.gz"]
    with pytest.raises(EngineError, match="nowhere"):
        write_bundle(tmp_path / "nowhere" / "a.tar.gz", {})


@pytest.mark.cluster
def test_secrets_planted_everywhere(cluster: Cluster, namespace: str, kubectl: Kubectl, tmp_path: Path) -> None:
    planted = {name: f"planted-{name}-{os.urandom(6).hex()}" for name in ("env", "object", "store", "shell", "overlay")}
    body = pod("p", env=[{"name": "KEY", "value": planted["env"]}])
    body["metadata"]["annotations"] = {"note": planted["object"]}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": planted["object"]}}
    event: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace},
        "reason": "Test",
        "message": f"{planted['env']} {TOKEN} and {PEM}",
    }
    apply(kubectl, body, secret, event)
    home = tmp_path / "home"
    (home / "secrets").mkdir(parents=True)
    (home / "secrets" / "STORED").write_text(planted["store"])
    entry = {"name": "main", "env": [{"name": "X", "value": planted["overlay"]}]}
    (home / "config.yaml").write_text(json.dumps({"kubernetes": {"pod": {"spec": {"containers": [entry]}}}}))
    environment = {**os.environ, "LONGBOAT_HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig)}
    environment |= {"MY_API_KEY": planted["shell"]}
    command = [sys.executable, "-m", "longboat", "doctor", "--engine", "kubernetes", "--namespace", namespace]
    done = subprocess.run(
        [*command, "--no-pods", "--bundle", "b.tar.gz"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode in (0, 205), done.stderr
    text = read(tmp_path / "b.tar.gz")
    users = [user["user"] for user in yaml.safe_load(Path(cluster.kubeconfig).read_text())["users"]]
    certificates = [value for user in users for value in user.values() if isinstance(value, str)]
    for value in (*planted.values(), TOKEN, "kqhkiG9w0BAQEF", "BEGIN ", *certificates):
        assert value not in text, value
    assert '"KEY"' in text and '"reason": "Test"' in text and '"name": "api health"' in text
