"""The images that kubeadm asks for, under their official names, in one archive for hosts that cannot pull any.

All Kubernetes images are one layer: the program that is all its commands, and nft, which kube-proxy calls. Not here:
putting them on a host (`kubeadm`).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed import binaries, images, rootfs
from testbed.binaries import KUBE_VIP_VERSION, KUBERNETES_VERSION, PLUGIN_VERSION, PREVIOUS, PREVIOUS_VERSION, Binaries
from testbed.errors import TestbedError

TARGETS = ("tools", "kubernetes", "etcd", "containerd", "runc", "cni", "coredns")
PROGRAMS = {KUBERNETES_VERSION: "kubernetes", PREVIOUS_VERSION: PREVIOUS.name}
"""Version to the target of the build that has its programs."""
PLUGIN = "nvidia-device-plugin"
KUBE_VIP = "kube-vip"
OTHERS = {
    PLUGIN: f"nvcr.io/nvidia/k8s-device-plugin:v{PLUGIN_VERSION}",
    KUBE_VIP: f"ghcr.io/kube-vip/kube-vip:v{KUBE_VIP_VERSION}",
}
"""Targets of the build that an archive has on request, and their images."""


def targets_of(version: str) -> list[str]:
    return [PROGRAMS[version] if name == "kubernetes" else name for name in TARGETS]


def names(programs: Binaries, version: str) -> dict[str, str]:
    """The images this version of kubeadm asks for, and the program that each is."""
    command = [str(programs["kubeadm"]), "config", "images", "list", f"--kubernetes-version=v{version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TestbedError(f"kubeadm does not tell its images: {done.stderr.strip()}")
    return {name: name.rpartition("/")[2].partition(":")[0] for name in done.stdout.split()}


def is_kubernetes(program: str) -> bool:
    return program.startswith("kube-") and program != KUBE_VIP


def layer_files(program: str, programs: Binaries, base: Path) -> dict[str, Path | str]:
    """What is in the layer of this program: a file to copy, or a link's target."""
    if program == PLUGIN:
        return {f"usr/bin/{program}": programs[program], **libraries_of(base, "/usr/bin/env")}
    if not is_kubernetes(program):
        return {f"usr/local/bin/{program}": programs[program], program: f"usr/local/bin/{program}"}
    files: dict[str, Path | str] = {"usr/local/bin/kubernetes": programs["kubelet"].resolve()}
    files |= {f"usr/local/bin/{name}": "kubernetes" for name in binaries.KUBERNETES_COMMANDS}
    files["usr/sbin/nft"] = base / "usr/sbin/nft"
    return files | libraries_of(base, "/usr/sbin/nft")


def libraries_of(base: Path, program: str) -> dict[str, Path]:
    """The shared libraries of a program of the hosts' system, the C library at least."""
    listed = subprocess.run(["chroot", str(base), "ldd", program], capture_output=True, text=True, check=True)
    paths = [word for word in listed.stdout.split() if word.startswith("/")]
    return {path.lstrip("/"): (base / path.lstrip("/")).resolve() for path in paths}


def write_layer(layer: Path, files: dict[str, Path | str]) -> None:
    with tarfile.open(layer, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
                continue
            entry.mode, entry.size = 0o755, content.stat().st_size
            with open(content, "rb") as opened:
                tar.addfile(entry, opened)


def archive(version: str = KUBERNETES_VERSION, others: Sequence[str] = ()) -> Path:
    """All images of this version's kubeadm in one file, and these others; made if it is not in the cache yet.

    It is an OCI layout in a tar file with the images under the names that kubeadm asks for, pause included:
    `ctr -n k8s.io images import FILE` is all that a host needs.
    """
    targets = [*targets_of(version), *others]
    programs = binaries.find(targets)
    keys = [binaries.key_of(binaries.BY_NAME[name]) for name in targets]
    key = hashlib.sha256("\0".join([*keys, rootfs.key(), "1"]).encode()).hexdigest()[:16]
    wanted = binaries.cache_folder() / "images" / f"kubeadm-{key}.tar"
    if wanted.exists():
        return wanted
    base = rootfs.get()
    with images.image_lock("kubeadm") as folder:
        if not wanted.exists():
            print(f"testbed images: making those of kubeadm {version}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as scratch:
                finished = Path(scratch) / "images.tar"
                wanted_images = names(programs, version) | {OTHERS[name]: name for name in others}
                write_images(finished, wanted_images, programs, base)
                finished.rename(wanted)
    return wanted


def write_images(finished: Path, wanted: Mapping[str, str], programs: Binaries, base: Path) -> None:
    layer = finished.with_name("layer.tar")
    listed: list[dict[str, object]] = []
    with tarfile.open(finished, "w") as tar:
        images.add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        groups: dict[str, list[str]] = {}
        for name, program in wanted.items():
            groups.setdefault("kube-proxy" if is_kubernetes(program) else program, []).append(name)
        for program, members in groups.items():
            write_layer(layer, layer_files(program, programs, base))
            listed += add_image(tar, layer, members)
        images.add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": listed}).encode())


def add_image(tar: tarfile.TarFile, layer: Path, references: Sequence[str]) -> list[dict[str, object]]:
    """One layer in the archive, and an image of it under each of the names."""
    digest, size = images.digest_of(layer), layer.stat().st_size
    tar.add(layer, f"blobs/sha256/{digest}")
    listed = []
    for name in references:
        program = name.rpartition("/")[2].partition(":")[0]
        config = {
            "architecture": images.architecture(),
            "os": "linux",
            "config": {"Env": [f"PATH={images.PATH}"], "Entrypoint": [f"/usr/local/bin/{program}"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "created": "1970-01-01T00:00:00Z",
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": images.add_blob(tar, "config.v1+json", config),
            "layers": [images.descriptor("layer.v1.tar", digest, size)],
        }
        descriptor = images.add_blob(tar, "manifest.v1+json", manifest)
        descriptor["annotations"] = {"io.containerd.image.name": name}
        listed.append(descriptor)
    return listed
