"""Names of images in archives of every tool."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from longboat.clusters.offline.image_archive import references
from longboat.core.errors import BundleError


def write(target: Path, **texts: Any) -> Path:
    with tarfile.open(target, "w:gz") as tar:
        for name, value in texts.items():
            data = json.dumps(value).encode()
            entry = tarfile.TarInfo(f"./{name}.json")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return target


def test_names_of_containerd_skopeo_and_docker(tmp_path: Path) -> None:
    index = {
        "manifests": [
            {"annotations": {"io.containerd.image.name": "registry.k8s.io/pause:3.10"}},
            {"annotations": {"org.opencontainers.image.ref.name": "latest"}},
            {"digest": "sha256:0"},
        ]
    }
    docker = [{"RepoTags": ["busybox:1", "team/app:2", "example.org/x:3", "localhost/y:4"]}, {"RepoTags": None}]
    assert references(write(tmp_path / "a", index=index, manifest=docker)) == (
        "docker.io/library/busybox:1", "docker.io/team/app:2", "example.org/x:3", "localhost/y:4",
        "registry.k8s.io/pause:3.10",
    )  # fmt: skip


@pytest.mark.parametrize("texts", [{}, {"index": {"manifests": []}}, {"index": {"manifests": 3}}, {"manifest": [[]]}])
def test_an_archive_of_something_else(tmp_path: Path, texts: dict[str, Any]) -> None:
    with pytest.raises(BundleError):
        references(write(tmp_path / "a", **texts))


def test_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"no archive")
    with pytest.raises(BundleError, match="damaged or no archive of images"):
        references(tmp_path / "a")
