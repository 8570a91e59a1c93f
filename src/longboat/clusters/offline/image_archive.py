"""References of the images in an archive, as `ctr images export`, `docker save` or skopeo write it.

The archive itself is not changed: hosts get it as it is.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from longboat.bundles.disk import errors_explained
from longboat.bundles.extraction import DAMAGED
from longboat.core.errors import BundleError

MOST_INDEX = 16 << 20  # some KiB for each image
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


def references(archive: Path) -> tuple[str, ...]:
    """Full image names in an archive, sorted. Raises BundleError if it is no archive of images."""
    texts: dict[str, Any] = {}
    try:
        with errors_explained(str(archive)), tarfile.open(archive, "r:*") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in ("index.json", "manifest.json") and member.isreg() and member.size <= MOST_INDEX:
                    file = tar.extractfile(member)
                    texts[name] = json.loads(file.read()) if file else None
    except DAMAGED as error:
        raise BundleError(f"{archive}: it is damaged or no archive of images: {error}") from None
    try:
        names = _of_layout(texts.get("index.json") or {}) | _of_docker(texts.get("manifest.json") or [])
    except (AttributeError, KeyError, TypeError) as error:
        raise BundleError(f"{archive}: the list of its images is not understood: {error}") from None
    if not names:
        hint = "an archive of images, as `ctr -n k8s.io images export FILE NAME...` makes it"
        raise BundleError(f"{archive}: no image with a name is in it", hint=hint)
    return tuple(sorted(names))


def _of_layout(index: dict[str, Any]) -> set[str]:
    annotations = [manifest.get("annotations") or {} for manifest in index.get("manifests", [])]
    return {str(entry[name]) for entry in annotations for name in _NAMES if ":" in str(entry.get(name, ""))}


def _of_docker(manifests: list[dict[str, Any]]) -> set[str]:
    """Add Docker's registry to names without one, as containerd does."""
    return {_full(name) for manifest in manifests for name in manifest.get("RepoTags") or ()}


def _full(name: str) -> str:
    first, slash, _ = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"
