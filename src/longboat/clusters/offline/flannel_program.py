"""The program flanneld, where no bundle brings it: a file here, or downloaded from the project's release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from longboat.clusters.hosts.connection import FilePart
from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import NotFound
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


def _file(spec: ClusterSpec, architecture: str, folder: Path) -> Path:
    version = spec.versions.flannel
    location = spec.source.flanneld or RELEASE.format(version=version, architecture=architecture)
    if "://" not in location:
        return Path(location)
    target = make_folder(folder) / f"flanneld-{version}-{architecture}"
    fetch(location, str(target))
    return target


def _part(path: Path) -> FilePart:
    if not path.is_file():
        raise NotFound(f"{path}: no such file", hint="source.flanneld of the cluster file names the program flanneld")
    return FilePart(path=path, offset=0, size=path.stat().st_size)
