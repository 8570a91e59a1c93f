"""What kubeadm needs on a host without a way out: programs, units, settings, and the images under their official names.

All Kubernetes images are one layer: the program that is all its commands, and nft, which kube-proxy calls. Not here:
calling kubeadm; a test, or Longboat, does that.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testbed import binaries, images, rootfs
from testbed.binaries import KUBERNETES_VERSION, Binaries
from testbed.errors import TestbedError
from testbed.hosts import Group, Host

TARGETS = ("tools", "kubernetes", "etcd", "containerd", "runc", "cni", "coredns")
ON_HOST = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
COMMANDS = ("kubelet", "kubeadm", "kubectl")
PLUGINS = ("ptp", "host-local", "loopback", "portmap")
ARCHIVE = "/var/tmp/kubeadm-images.tar"
CONTAINERD_UNIT = """[Service]
ExecStart=/usr/local/bin/containerd
Delegate=yes
KillMode=process
Restart=always
[Install]
WantedBy=multi-user.target
"""
KUBELET_UNIT = """[Unit]
After=containerd.service
[Service]
Environment=KUBELET_KUBECONFIG_ARGS="--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
--kubeconfig=/etc/kubernetes/kubelet.conf"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
_PICTURES, _RUNTIME = 'plugins."io.containerd.cri.v1.images"', 'plugins."io.containerd.cri.v1.runtime"'
_INSTALL = """set -e
tar -C / -xf -
for name in {commands}; do ln -sf kubernetes /usr/local/bin/$name; done
sysctl -q -w net.ipv4.ip_forward=1
systemctl daemon-reload
systemctl -q enable kubelet
systemctl -q enable --now containerd
tries=0
until ctr version >/dev/null 2>&1; do tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.2; done
ctr -n k8s.io images import {archive}
rm {archive}
"""


def image_names(programs: Binaries) -> dict[str, str]:
    """The images this version of kubeadm asks for, and the program that each is."""
    command = [str(programs["kubeadm"]), "config", "images", "list", f"--kubernetes-version=v{KUBERNETES_VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TestbedError(f"kubeadm does not tell its images: {done.stderr.strip()}")
    return {name: name.rpartition("/")[2].partition(":")[0] for name in done.stdout.split()}


def layer_files(program: str, programs: Binaries, base: Path) -> dict[str, Path | str]:
    """What is in the layer of this program: a file to copy, or a link's target."""
    if not program.startswith("kube-"):
        return {f"usr/local/bin/{program}": programs[program], program: f"usr/local/bin/{program}"}
    found: dict[str, Path | str] = {"usr/local/bin/kubernetes": programs["kubelet"].resolve()}
    found |= {f"usr/local/bin/{name}": "kubernetes" for name in binaries.KUBERNETES_COMMANDS}
    listed = subprocess.run(["chroot", str(base), "ldd", "/usr/sbin/nft"], capture_output=True, text=True, check=True)
    libraries = [word for word in listed.stdout.split() if word.startswith("/")]
    for path in ["/usr/sbin/nft", *libraries]:
        found[path.lstrip("/")] = (base / path.lstrip("/")).resolve()
    return found


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


def image_archive(programs: Binaries) -> Path:
    """All images in one file that containerd imports; made if it is not in the cache yet."""
    keys = [binaries.key_of(binaries.BY_NAME[name]) for name in TARGETS]
    key = hashlib.sha256("\0".join([*keys, rootfs.key(), "1"]).encode()).hexdigest()[:16]
    wanted = binaries.cache_folder() / "images" / f"kubeadm-{key}.tar"
    if wanted.exists():
        return wanted
    base = rootfs.get()
    with images.image_lock("kubeadm") as folder:
        if not wanted.exists():
            print("testbed images: making those of kubeadm", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as scratch:
                finished = Path(scratch) / "images.tar"
                write_images(finished, Path(scratch) / "layer.tar", programs, base)
                finished.rename(wanted)
    return wanted


def write_images(archive: Path, layer: Path, programs: Binaries, base: Path) -> None:
    names = image_names(programs)
    listed: list[dict[str, object]] = []
    with tarfile.open(archive, "w") as tar:
        images.add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        groups: dict[str, list[str]] = {}
        for name, program in names.items():
            groups.setdefault("kube-proxy" if program.startswith("kube-") else program, []).append(name)
        for program, members in groups.items():
            write_layer(layer, layer_files(program, programs, base))
            listed += add_image(tar, layer, members)
        images.add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": listed}).encode())


def add_image(tar: tarfile.TarFile, layer: Path, names: Sequence[str]) -> list[dict[str, object]]:
    """One layer in the archive, and an image of it under each of the names."""
    digest, size = images.digest_of(layer), layer.stat().st_size
    tar.add(layer, f"blobs/sha256/{digest}")
    listed = []
    for name in names:
        program = name.rpartition("/")[2].partition(":")[0]
        config = {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
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
        one = images.add_blob(tar, "manifest.v1+json", manifest)
        one["annotations"] = {"io.containerd.image.name": name}
        listed.append(one)
    return listed


def containerd_configuration(pause: str) -> str:
    return f"""version = 3
[{_PICTURES}.pinned_images]
  sandbox = "{pause}"
[{_RUNTIME}]
  restrict_oom_score_adj = true
[{_RUNTIME}.cni]
  bin_dirs = ["/opt/cni/bin"]
[{_RUNTIME}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{_RUNTIME}.containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


def pod_range(group: Group, number: int) -> str:
    return f"10.{group.record.range}.{64 + number}.0/24"


def network_configuration(group: Group, number: int) -> str:
    """Pods are attached by the CNI plugin ptp; hosts route to each other's pods."""
    subnet = {"subnet": pod_range(group, number)}
    addresses = {"type": "host-local", "ranges": [[subnet]], "routes": [{"dst": "0.0.0.0/0"}]}
    return json.dumps({"cniVersion": "1.0.0", "name": "testbed", "plugins": [{"type": "ptp", "ipam": addresses}]})


def install(group: Group, number: int, programs: Binaries) -> None:
    """Put everything on one host and start containerd. The kubelet waits for kubeadm."""
    host = group.hosts[number]
    pause = next(name for name, program in image_names(programs).items() if program == "pause")
    texts = {
        "etc/containerd/config.toml": containerd_configuration(pause),
        "etc/cni/net.d/10-testbed.conflist": network_configuration(group, number),
        "etc/systemd/system/containerd.service": CONTAINERD_UNIT,
        "etc/systemd/system/kubelet.service": KUBELET_UNIT,
    }
    files = {f"usr/local/bin/{name}": programs[name] for name in ON_HOST}
    files |= {f"opt/cni/bin/{name}": programs[name] for name in PLUGINS}
    files |= {"usr/local/bin/kubernetes": programs["kubelet"].resolve(), ARCHIVE[1:]: image_archive(programs)}
    send(host, files, texts)
    for other, machine in enumerate(group.hosts):
        if other != number:
            host.run(f"sudo ip route replace {pod_range(group, other)} via {machine.address}")


def send(host: Host, files: dict[str, Path], texts: dict[str, str]) -> None:
    script = _INSTALL.format(commands=" ".join(COMMANDS), archive=ARCHIVE)
    with tempfile.TemporaryFile() as log:
        running = subprocess.Popen(
            host.command("sudo", "sh", "-c", f"'{script}'"), stdin=subprocess.PIPE, stdout=log, stderr=log
        )
        assert running.stdin
        with running.stdin, tarfile.open(fileobj=running.stdin, mode="w|") as tar:
            for name, source in files.items():
                tar.add(source.resolve(), name)
            for name, text in texts.items():
                images.add(tar, name, text.encode())
        if running.wait() != 0:
            log.seek(0)
            raise TestbedError(f"{host.name}: Kubernetes could not be installed: {log.read().decode()[-2000:]}")
