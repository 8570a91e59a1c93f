"""A bundle is made by the real apt from a signed repository of small packages; nothing of this machine changes."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from longboat.clusters.offline.collect import kubeadm_images, make_bundle, this_machine
from longboat.clusters.offline.manifest import wanted_images
from longboat.clusters.offline.software_bundle import open_bundle
from longboat.clusters.spec import ClusterSpec, PackageRepository, SoftwareSource
from longboat.core.errors import EngineError, Refused
from testbed import apt_repository
from tests.clusters.offline.bundles import write_images
from tests.clusters.worlds import cluster

PACKAGES = {"kubelet": "kubernetes-cni, mount", "kubeadm": "", "kubectl": "", "kubernetes-cni": "", "containerd": ""}


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[tuple[str, bytes]]:
    """URL and key of a repository; `mount` is not in it: every host has that."""
    lacks = apt_repository.missing() or (None if shutil.which("apt-get") else "there is no apt here")
    if lacks:
        pytest.skip(lacks)
    folder = tmp_path / "v1.36"
    folder.mkdir()
    rows = [_package(folder, name, depends) for name, depends in PACKAGES.items()]
    (folder / "Packages").write_text("\n".join(rows))
    architecture = this_machine().architecture
    (folder / "Release").write_text(apt_repository.release_text((folder / "Packages").read_bytes(), architecture))
    with apt_repository.signing_key() as home:
        apt_repository.sign(home, folder / "Release")
        key = apt_repository.gpg(home, "--armor", "--export")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{{minor}}/", key
    server.shutdown()
    server.server_close()


def _package(folder: Path, name: str, depends: str) -> str:
    version = "1:2.4.2-1" if name == "containerd" else "1.36.4-1.1"
    architecture = this_machine().architecture
    root = folder / f"{name}.d"
    (root / "DEBIAN").mkdir(parents=True)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: T <t@longboat.test>\n"
    control += (f"Depends: {depends}\n" if depends else "") + "Description: small\n"
    (root / "DEBIAN" / "control").write_text(control)
    file = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--build", str(root), str(file)], check=True, capture_output=True)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f"{control}Filename: {file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n"


def wanted(tmp_path: Path, url: str, **fields: object) -> ClusterSpec:
    images = tmp_path / "images.tar"
    write_images(images, wanted_images(cluster()))
    source = SoftwareSource(repositories=(PackageRepository(url=url, key="key"),), images=str(images))
    return cluster(source=msgspec.structs.replace(source, **fields))


def test_packages_with_all_they_need_and_images(tmp_path: Path, repository: tuple[str, bytes]) -> None:
    url, key = repository
    lists = sorted(os.listdir("/var/lib/apt/lists"))
    spec = wanted(tmp_path, url)
    manifest = make_bundle(spec, tmp_path / "lab.tar", tmp_path, {"key": key}, print)
    assert [file.name for file in manifest.packages] == [
        "Packages",
        *(
            f"{name}_{version}_{manifest.architecture}.deb"
            for name, version in (
                ("containerd", "1-2.4.2-1"), ("kubeadm", "1.36.4-1.1"), ("kubectl", "1.36.4-1.1"),
                ("kubelet", "1.36.4-1.1"), ("kubernetes-cni", "1.36.4-1.1"),
            )
        ),
    ]  # fmt: skip
    assert open_bundle(str(tmp_path / "lab.tar"), tmp_path).manifest == manifest
    assert sorted(os.listdir("/var/lib/apt/lists")) == lists
    assert not list(tmp_path.glob(".*"))  # no scratch folder

    # A bundle of a bundle is the same file.
    from_folder = cluster(source=SoftwareSource(kind="files", location=str(tmp_path / "lab.tar")))
    make_bundle(from_folder, tmp_path / "again.tar", tmp_path, {}, print)
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "lab.tar").read_bytes()


def test_a_repository_that_somebody_else_signed_is_refused(tmp_path: Path, repository: tuple[str, bytes]) -> None:
    with apt_repository.signing_key() as home:
        other = apt_repository.gpg(home, "--armor", "--export")
    with pytest.raises(EngineError, match="apt cannot get the packages"):
        make_bundle(wanted(tmp_path, repository[0]), tmp_path / "lab.tar", tmp_path, {"key": other}, print)
    assert not (tmp_path / "lab.tar").exists()


def test_images_that_are_missing_are_named(tmp_path: Path, repository: tuple[str, bytes]) -> None:
    url, key = repository
    spec = wanted(tmp_path, url)
    write_images(tmp_path / "images.tar", wanted_images(spec)[1:])
    with pytest.raises(Refused, match=r"it has no image registry\.k8s\.io/pause:3\.10\.2"):
        make_bundle(spec, tmp_path / "lab.tar", tmp_path, {"key": key}, print)


def test_kubeadm_out_of_its_package_tells_its_images(tmp_path: Path, repository: tuple[str, bytes]) -> None:
    root = tmp_path / "v1.36" / "kubeadm.d"
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin" / "kubeadm").write_text('#!/bin/sh\necho "example.org/a:1"\necho "$4"\n')
    (root / "usr" / "bin" / "kubeadm").chmod(0o755)
    subprocess.run(["dpkg-deb", "--build", str(root), str(tmp_path / "new.deb")], check=True, capture_output=True)
    assert kubeadm_images(tmp_path / "new.deb", "1.36.4") == ["example.org/a:1", "--kubernetes-version=v1.36.4"]
    with pytest.raises(EngineError, match="does not tell its images"):
        kubeadm_images(tmp_path / "v1.36" / "kubectl.deb", "1.36.4")
