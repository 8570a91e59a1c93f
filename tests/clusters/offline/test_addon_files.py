"""Add-ons out of a bundle: their manifests travel with it, and their images are asked for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from longboat.clusters.addons.manifest_files import load_manifest
from longboat.clusters.addons.released import JOBSET
from longboat.clusters.hosts.connection import FilePart
from longboat.clusters.offline.addon_files import addon_images, collect_manifests, with_manifests
from longboat.clusters.offline.manifest import SoftwareFile, check_manifest
from longboat.clusters.offline.software_bundle import SoftwareBundle, digest_of, open_bundle
from longboat.clusters.spec import Network, SoftwareSource
from longboat.core.errors import EngineError, Refused
from tests.clusters.offline.bundles import write_folder
from tests.clusters.worlds import cluster

MANIFEST = f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: jobset, namespace: jobset-system}}
spec:
  template:
    spec: {{containers: [{{name: m, image: "{JOBSET.images[0]}"}}, {{name: p, image: "example.org/p:1"}}]}}
"""


def test_a_manifest_travels_and_is_the_one_that_is_installed(tmp_path: Path) -> None:
    (tmp_path / "jobset.yaml").write_text(MANIFEST)
    connected = cluster(addons=("jobset",), manifests=(("jobset", str(tmp_path / "jobset.yaml")),))
    files, images = collect_manifests(connected, tmp_path / "collected")
    assert images == ["example.org/p:1", JOBSET.images[0]]
    path = files[JOBSET.file_name]
    part = FilePart(path=path, offset=0, size=path.stat().st_size)
    file = SoftwareFile(path=JOBSET.file_name, sha256=digest_of(part), size=part.size)
    plain = write_folder(tmp_path / "bundle")
    bundle = SoftwareBundle("lab.tar", msgspec.structs.replace(plain, files=(file,)), {file.path: part})

    offline = cluster(addons=("jobset",), source=SoftwareSource(kind="files", location="lab.tar"))
    spec = with_manifests(offline, bundle, tmp_path / "cache")
    assert [body["kind"] for body in load_manifest(spec, JOBSET)] == ["Deployment"]


def test_images_of_a_network_of_ones_own_are_collected(tmp_path: Path) -> None:
    (tmp_path / "network.yaml").write_text(f"---\n{MANIFEST}---\n# nothing\n")
    spec = cluster(addons=(), network=Network(kind="manifest", manifest=str(tmp_path / "network.yaml")))
    assert collect_manifests(spec, tmp_path / "m") == ({}, ["example.org/p:1", JOBSET.images[0]])
    (tmp_path / "network.yaml").write_text("a: [")
    with pytest.raises(EngineError, match="not YAML"):
        collect_manifests(spec, tmp_path / "m")


def test_what_an_add_on_needs_and_a_bundle_has_not_is_told(tmp_path: Path) -> None:
    spec = cluster(addons=("jobset", "metrics"))
    write_folder(tmp_path / "bundle")
    bundle = open_bundle(str(tmp_path / "bundle"), tmp_path)
    with pytest.raises(Refused, match=r"jobset/jobset:v0\.12\.0, registry\.k8s\.io/metrics-server"):
        check_manifest(bundle.manifest, spec, "lab.tar", addon_images(spec))
    with pytest.raises(Refused, match=r"it has no manifest of jobset 0\.12\.0"):
        with_manifests(spec, bundle, tmp_path)
