"""Collects a software bundle for a cluster: packages through apt, images from an archive or their registries.

For hosts with the system and architecture of this machine. A cluster file that names a bundle already gets it packed
anew, so that a folder or a URL becomes one file.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from longboat.clusters.hosts.connection import FilePart
from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.observe.parse import ARCHITECTURES
from longboat.clusters.offline.addon_files import addon_images, collect_manifests
from longboat.clusters.offline.apt_download import PrivateApt, control_fields
from longboat.clusters.offline.flannel_program import flanneld_files
from longboat.clusters.offline.image_archive import references
from longboat.clusters.offline.manifest import (
    FLANNELD,
    FORMAT,
    IMAGES,
    PACKAGES,
    SoftwareFile,
    SoftwareManifest,
    check_manifest,
    missing_images,
    system_name,
    wanted_images,
)
from longboat.clusters.offline.registry_pull import pull_images
from longboat.clusters.offline.software_bundle import check_digest, digest_of, open_bundle
from longboat.clusters.offline.write import write_bundle
from longboat.clusters.plan.packages import KUBERNETES_PACKAGES, nfs_client, repositories
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import EngineError, Refused
from longboat.engines.shared.files import disk
from longboat.storage.download import fetch

Say = Callable[[str], None]
INDEX = f"{PACKAGES}Packages"
OS_RELEASE = Path("/etc/os-release")


def make_bundle(spec: ClusterSpec, target: Path, cache: Path, keys: Mapping[str, bytes], say: Say) -> SoftwareManifest:
    """Write it to `target`. `keys`: those that sign the repositories of `this_machine`."""
    if spec.source.kind == "files":
        bundle = open_bundle(spec.source.location or "", cache, sha256=spec.source.sha256 or "")
        check_manifest(bundle.manifest, spec, bundle.place, addon_images(spec))
        write_bundle(bundle.manifest, bundle.parts, target)
        return bundle.manifest
    with tempfile.TemporaryDirectory(prefix=".longboat-bundle-", dir=target.absolute().parent) as folder:
        manifest, parts = _collect(spec, Path(folder), keys, say)
        write_bundle(manifest, parts, target)
    return manifest


def this_machine() -> HostFacts:
    """Its system, as the packages of a host depend on it."""
    with disk(f"read {OS_RELEASE}"):
        lines = OS_RELEASE.read_text(errors="replace").splitlines()
    system = {name: value.strip("\"'") for name, _, value in (line.partition("=") for line in lines)}
    machine = platform.machine()
    return HostFacts(
        name="this machine",
        os_id=system.get("ID", "").lower(),
        os_version=system.get("VERSION_ID", ""),
        os_codename=system.get("VERSION_CODENAME", ""),
        architecture=ARCHITECTURES.get(machine, machine),
        package_manager="apt",
    )


def _collect(
    spec: ClusterSpec, folder: Path, keys: Mapping[str, bytes], say: Say
) -> tuple[SoftwareManifest, dict[str, FilePart]]:
    machine = this_machine()
    manifests, more = collect_manifests(spec, folder / "manifests")
    say("longboat: packages, with all that they need")
    apt = PrivateApt(folder / "apt", repositories(spec, machine), keys)
    wanted = [f"{name}={spec.versions.kubernetes}-*" for name in KUBERNETES_PACKAGES]
    packages = apt.download([*wanted, "containerd.io|containerd", *nfs_client(spec, machine)])
    kubeadm = next(file for file in packages if file.name.startswith("kubeadm_"))
    archive = _image_archive(spec, folder, kubeadm, more, say)
    images = references(archive)
    if missing := missing_images(images, spec, more):
        raise Refused(
            f"{spec.source.images}: it has no image {', '.join(missing)}",
            hint="`kubeadm config images list` prints what this version needs; without source.images they are pulled",
        )
    index = folder / "Packages"
    with disk(f"write {index}"):
        index.write_text(_index(packages))
    programs = flanneld_files(spec, {machine.architecture}, folder)
    files = {INDEX: index, IMAGES: archive, **manifests}
    if programs:
        files[FLANNELD] = programs[machine.architecture].path
    files |= {f"{PACKAGES}{_plain(file)}": file for file in packages}
    parts = {path: FilePart(path=file, offset=0, size=file.stat().st_size) for path, file in files.items()}
    listed = [SoftwareFile(path=path, sha256=digest_of(part), size=part.size) for path, part in parts.items()]
    manifest = SoftwareManifest(
        format=FORMAT,
        kubernetes=spec.versions.kubernetes,
        system=system_name(machine.os_id, machine.os_version or machine.os_codename),
        architecture=machine.architecture,
        images=images,
        flannel=spec.versions.flannel if programs else "",
        files=tuple(sorted(listed, key=lambda file: file.path)),
    )
    return manifest, parts


def _image_archive(spec: ClusterSpec, folder: Path, kubeadm: Path, more: Sequence[str], say: Say) -> Path:
    """The one that the cluster file names; else all that kubeadm and add-ons ask for, pulled from their registries."""
    (source, checksum), target = spec.source.image_archive, folder / IMAGES
    if not source:
        names = {*kubeadm_images(kubeadm, spec.versions.kubernetes), *wanted_images(spec), *more}
        pull_images(sorted(names), this_machine().architecture, target, say)
        return target
    if "://" in source:
        say(f"longboat: images from {source}")
        fetch(source, str(target))
    archive = target if "://" in source else Path(source)
    check_digest(archive, checksum, "source.images")
    return archive


def kubeadm_images(package: Path, version: str) -> list[str]:
    """What this version of kubeadm, out of its package, says that it needs."""
    with tempfile.TemporaryDirectory(prefix="longboat-kubeadm-") as folder:
        unpack = subprocess.run(["dpkg-deb", "-x", str(package), folder], capture_output=True, text=True, check=False)
        if unpack.returncode != 0:
            raise EngineError(f"{package.name} cannot be unpacked: {unpack.stderr.strip()}")
        command = [f"{folder}/usr/bin/kubeadm", "config", "images", "list", f"--kubernetes-version=v{version}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # starts in seconds
        except (OSError, subprocess.SubprocessError) as error:
            raise EngineError(f"kubeadm of {package.name} does not tell its images: {error}") from None
    return done.stdout.split()


def _plain(package: Path) -> str:
    """Without the epoch's %3a, which apt takes for a quoted colon."""
    return package.name.replace("%3a", "-")


def _index(packages: Sequence[Path]) -> str:
    """Of a flat repository, as apt reads it."""
    entries = []
    for file in packages:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        size = file.stat().st_size
        entries.append(f"{control_fields(file)}Filename: ./{_plain(file)}\nSize: {size}\nSHA256: {digest}\n")
    return "\n".join(entries)
