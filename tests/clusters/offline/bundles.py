"""Small software bundles as tests write them: real files, no programs in them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from longboat.clusters.hosts.connection import FilePart
from longboat.clusters.offline.manifest import FORMAT, SoftwareFile, SoftwareManifest, encode_manifest, wanted_images
from longboat.clusters.offline.write import write_bundle
from longboat.clusters.spec import ClusterSpec
from tests.clusters.worlds import cluster

CONTENTS = {"images.tar": b"images" * 2000, "packages/Packages": b"index", "packages/kubelet_1.deb": b"deb" * 999}


def write_folder(folder: Path, spec: ClusterSpec | None = None, **fields: object) -> SoftwareManifest:
    """A bundle as a folder."""
    for path, content in CONTENTS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    files = tuple(
        SoftwareFile(path=path, sha256=hashlib.sha256(content).hexdigest(), size=len(content))
        for path, content in CONTENTS.items()
    )
    spec = spec or cluster()
    known = {
        "format": FORMAT, "kubernetes": spec.versions.kubernetes, "system": "debian 12", "architecture": "amd64",
        "images": wanted_images(spec), "files": files,
    }  # fmt: skip
    manifest = SoftwareManifest(**{**known, **fields})  # type: ignore[arg-type]
    (folder / "bundle.json").write_bytes(encode_manifest(manifest))
    return manifest


def write_archive(target: Path, **fields: object) -> SoftwareManifest:
    """A bundle as one file."""
    folder = target.with_suffix(".d")
    manifest = write_folder(folder, **fields)  # type: ignore[arg-type]
    parts = {
        file.path: FilePart(path=folder / file.path, offset=0, size=(folder / file.path).stat().st_size)
        for file in manifest.files
    }
    write_bundle(manifest, parts, target)
    return manifest


def write_images(target: Path, names: tuple[str, ...]) -> None:
    """An archive that says that it has these images."""
    manifests = [{"annotations": {"io.containerd.image.name": name}} for name in names]
    text = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    with tarfile.open(target, "w") as tar:
        entry = tarfile.TarInfo("index.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
