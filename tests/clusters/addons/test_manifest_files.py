"""Where manifests of other projects are read from, and what is refused in them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from longboat.clusters.addons.manifest_files import load_manifest, parse_manifest
from longboat.clusters.addons.released import JOBSET
from longboat.core.errors import EngineError
from tests.clusters.worlds import cluster

TEXT = """\
apiVersion: v1
kind: Namespace
metadata: {name: jobset-system}
---
# nothing here
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: jobset-controller-manager, namespace: jobset-system}
spec: {template: {spec: {containers: [{name: m, image: "registry.k8s.io/jobset/jobset:v0.12.0"}]}}}
"""


def test_the_project_gives_the_pinned_version_and_the_user_what_he_likes(tmp_path: Path) -> None:
    file = tmp_path / "published.yaml"
    release = msgspec.structs.replace(JOBSET, url=str(file))
    file.write_text(TEXT)
    assert [body["kind"] for body in load_manifest(cluster(), release)] == ["Namespace", "Deployment"]
    file.write_text(TEXT.replace("v0.12.0", "v0.11.0"))
    with pytest.raises(EngineError, match="not the manifest of jobset 0.12.0: no image registry"):
        load_manifest(cluster(), release)
    own = cluster(manifests=(("jobset", str(file)),))
    assert len(load_manifest(own, JOBSET)) == 2  # what a user names is his business


def test_a_checksum_is_held_to(tmp_path: Path) -> None:
    file = tmp_path / "jobset.yaml"
    file.write_text(TEXT)
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    assert len(load_manifest(cluster(manifests=(("jobset", f"{file}#sha256={digest}"),)), JOBSET)) == 2
    file.write_text(TEXT + "# changed on the way\n")
    with pytest.raises(EngineError, match=f"has another content than sha256={digest} says"):
        load_manifest(cluster(manifests=(("jobset", f"{file}#sha256={digest}"),)), JOBSET)


def test_a_list_is_taken_apart() -> None:
    content = b'{"kind": "List", "items": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}]}'
    assert [body["kind"] for body in parse_manifest(content, "x")] == ["Secret"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "x: there are no objects in it"),
        ("a: [", "x: not YAML"),
        ("\xff", "x: "),
        ("just text", "a document is no object"),
        ("kind: Secret", "a document is no object"),
        ("{kind: Pod, apiVersion: v1, metadata: {name: a}}", "Pod a: down could not remove this kind"),
    ],
)
def test_what_is_no_manifest_is_told(text: str, reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        parse_manifest(text.encode("latin-1"), "x")


def test_an_authority_that_the_controller_fills_in_is_not_applied() -> None:
    hook = "{kind: MutatingWebhookConfiguration, metadata: {name: a}, webhooks: [{clientConfig: {caBundle: %s}}]}"
    (body,) = parse_manifest((hook % "Cg==").encode(), "x")
    assert body["webhooks"] == [{"clientConfig": {}}]
    (body,) = parse_manifest((hook % "QUJD").encode(), "x")
    assert body["webhooks"] == [{"clientConfig": {"caBundle": "QUJD"}}]
