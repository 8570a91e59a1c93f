"""The bundle that a cluster file names, opened and compared with what the file asks for."""

from __future__ import annotations

from pathlib import Path

from longboat.clusters.offline.addon_files import addon_images
from longboat.clusters.offline.manifest import check_manifest
from longboat.clusters.offline.software_bundle import SoftwareBundle, open_bundle
from longboat.clusters.spec import ClusterSpec
from longboat.engines.shared.home import Home


def load_software(spec: ClusterSpec, home: Home) -> SoftwareBundle | None:
    """Open the bundle that the spec names; None: software comes from packages."""
    if spec.source.kind != "files":
        return None
    bundle = open_bundle(spec.source.location or "", cache_folder(home), sha256=spec.source.sha256 or "")
    check_manifest(bundle.manifest, spec, bundle.place, addon_images(spec))
    return bundle


def cache_folder(home: Home) -> Path:
    """The cache of downloaded bundle files, by checksum."""
    return home.folder("clusters") / "software"
