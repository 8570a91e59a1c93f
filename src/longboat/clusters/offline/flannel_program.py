"""The program flanneld, where no bundle brings it: a file here, or downloaded from the project's release.

A checksum after its location is compared before anything is sent to a host. The project publishes none of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from longboat.bundles.disk import errors_explained
from longboat.clusters.addons.manifest_files import CHECKSUM
from longboat.clusters.hosts.connection import FilePart
from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.offline.software_bundle import digest_of
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import BundleError, NotFound
from longboat.engines.shared.files import make_folder
from longboat.storage.download import fetch

RELEASE = "https://github.com/flannel-io/flannel/releases/download/v{version}/flanneld-{architecture}"


def flanneld_of(spec: ClusterSpec, facts: Mapping[str, HostFacts], cache: Path) -> dict[str, FilePart]:
    """By architecture, for hosts that have not this version yet. Empty: a bundle brings it, or nobody needs it."""
    version = spec.versions.flannel
    if spec.source.kind == "files":
        return {}
    return flanneld_files(
        spec, {host.architecture for host in facts.values() if host.program("flanneld") != version}, cache
    )


def flanneld_files(spec: ClusterSpec, architectures: Iterable[str], folder: Path) -> dict[str, FilePart]:
    """By architecture. A file of the user's is the same for all of them; hosts refuse what they cannot run."""
    if spec.network.kind != "flannel":
        return {}
    return {name: _part(_file(spec, name, folder)) for name in sorted(architectures)}


def unpinned(spec: ClusterSpec, programs: Mapping[str, FilePart]) -> list[str]:
    """What to say of downloads that no checksum was compared with."""
    location = spec.source.flanneld or RELEASE
    if "://" not in location or CHECKSUM in location:
        return []
    return [
        f"flanneld {spec.versions.flannel} for {name} has the checksum {digest_of(part)}; "
        f"source.flanneld: URL{CHECKSUM}... takes no other"
        for name, part in programs.items()
    ]


def _file(spec: ClusterSpec, architecture: str, folder: Path) -> Path:
    version = spec.versions.flannel
    location = spec.source.flanneld or RELEASE.format(version=version, architecture=architecture)
    location, _, checksum = location.partition(CHECKSUM)
    if "://" not in location:
        _verify(Path(location), checksum, location)
        return Path(location)
    target = make_folder(folder) / f"flanneld-{version}-{architecture}{checksum and '-'}{checksum[:16]}"
    if checksum and target.is_file() and digest_of(_part(target)) == checksum:
        return target
    partial = target.with_name(f"{target.name}.part")  # the next attempt goes on with it
    fetch(location, str(partial))
    try:
        _verify(partial, checksum, location)
    except BundleError:
        partial.unlink()
        raise
    with errors_explained(str(target)):
        os.replace(partial, target)
    return target


def _verify(path: Path, checksum: str, location: str) -> None:
    if checksum and (digest := digest_of(_part(path))) != checksum:
        raise BundleError(
            f"{location} is not the flanneld that source.flanneld names: its checksum is {digest}",
            hint=f"{CHECKSUM}SUM of the cluster file is what sha256sum prints of the right one",
        )


def _part(path: Path) -> FilePart:
    if not path.is_file():
        raise NotFound(f"{path}: no such file", hint="source.flanneld of the cluster file names the program flanneld")
    return FilePart(path=path, offset=0, size=path.stat().st_size)
