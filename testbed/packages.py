"""Debian packages of the built programs, named and laid out as pkgs.k8s.io and Debian lay theirs out.

kubelet, kubeadm, kubectl and kubernetes-cni as the Kubernetes project packs them (no cri-tools: since 1.32 kubeadm does
not depend on it); containerd and runc as Debian does, without a configuration; NVIDIA's container toolkit as NVIDIA
does, as far as CDI needs it; and a stand-in for NVIDIA's driver under the name of the real one. A package is kept in
the cache under a hash of what goes into it. Not here: the repository they are served from (`apt_repository`).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from testbed import binaries, driver, images
from testbed.binaries import KUBERNETES_VERSION, PREVIOUS, PREVIOUS_VERSION, TOOLKIT_VERSION, Binaries
from testbed.errors import Missing, TestbedError

REVISION = "1.1"
UNITS = "usr/lib/systemd/system"
KUBELET_UNIT = """[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""
KUBEADM_DROP_IN = """[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
# Written by kubeadm init and kubeadm join.
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
# The administrator's own.
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
CONTAINERD_UNIT = """[Unit]
Description=containerd container runtime
Documentation=https://containerd.io
After=network.target local-fs.target dbus.service

[Service]
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""
# What debhelper writes for a unit. The kubelet is not started: it has nothing to do before kubeadm.
_POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
    deb-systemd-helper unmask {unit} >/dev/null || true
    if deb-systemd-helper --quiet was-enabled {unit}; then
        deb-systemd-helper enable {unit} >/dev/null || true
    else
        deb-systemd-helper update-state {unit} >/dev/null || true
    fi
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
        {start}
    fi
fi
"""
_START = 'deb-systemd-invoke "$([ -n "$2" ] && echo restart || echo start)" {unit} >/dev/null || true'
_PRERM = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then deb-systemd-invoke stop {unit} >/dev/null || true; fi
"""
_POSTRM = """#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
if [ "$1" = remove ]; then deb-systemd-helper mask {unit} >/dev/null || true; fi
if [ "$1" = purge ]; then
    deb-systemd-helper purge {unit} >/dev/null || true
    deb-systemd-helper unmask {unit} >/dev/null || true
fi
"""


@dataclass(frozen=True)
class Package:
    """One package: where each program and each text goes, and what apt is told about it."""

    name: str
    version: str
    targets: tuple[str, ...]
    """Of `binaries`, in which its programs are."""
    programs: Mapping[str, str]
    """Path on the host to the program's name."""
    texts: Mapping[str, str] = field(default_factory=dict)
    depends: str = ""
    recommends: str = ""
    unit: str = ""
    starts: bool = False
    driver: bool = False
    """It has the stand-in driver, which comes to life with the next start of the host."""

    @property
    def file(self) -> str:
        return f"{self.name}_{self.version}_{images.architecture()}.deb"


def of_kubernetes(version: str, target: str) -> tuple[Package, ...]:
    """What pkgs.k8s.io has for one version."""
    full = f"{version}-{REVISION}"
    return (
        Package("kubectl", full, (target,), {"usr/bin/kubectl": "kubectl"}),
        Package(
            "kubeadm", full, (target,), {"usr/bin/kubeadm": "kubeadm"},
            {f"{UNITS}/kubelet.service.d/10-kubeadm.conf": KUBEADM_DROP_IN},
        ),
        Package(
            "kubelet", full, (target,), {"usr/bin/kubelet": "kubelet"},
            {
                f"{UNITS}/kubelet.service": KUBELET_UNIT,
                "etc/default/kubelet": "KUBELET_EXTRA_ARGS=\n",
                # dpkg would not keep an empty folder.
                "var/lib/kubelet/.kubelet-keep": "",
                "etc/kubernetes/manifests/.kubelet-keep": "",
            },
            depends="kubernetes-cni (>= 1.2.0), mount, util-linux", recommends="iptables (>= 1.8.4)",
            unit="kubelet.service",
        ),
        Package(
            "kubernetes-cni", f"1.9.1-{REVISION}", ("cni", "cni-bridge"),
            {f"opt/cni/bin/{name}": name for name in ("bridge", "host-local", "loopback", "portmap", "ptp")},
            {"etc/cni/net.d/.kubernetes-cni-keep": ""},
        ),
    )  # fmt: skip


OF_DISTRIBUTION = (
    Package("runc", "1.5.2-1", ("runc",), {"usr/sbin/runc": "runc"}),
    Package(
        "containerd", "2.4.2-1", ("containerd",),
        {f"usr/bin/{name}": name for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
        {f"{UNITS}/containerd.service": CONTAINERD_UNIT},
        depends="runc (>= 1.0.0)", unit="containerd.service", starts=True,
    ),
)  # fmt: skip
"""What a distribution's own archive has."""
_TOOLKIT = "nvidia-container-toolkit"
OF_NVIDIA = (
    Package(
        f"{_TOOLKIT}-base", f"{TOOLKIT_VERSION}-1", (_TOOLKIT,),
        {f"usr/bin/{name}": name for name in ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime")},
    ),
    Package(_TOOLKIT, f"{TOOLKIT_VERSION}-1", (), {}, depends=f"{_TOOLKIT}-base (= {TOOLKIT_VERSION}-1)"),
)  # fmt: skip
"""What NVIDIA's own repository has for hosts with a driver."""
DRIVERS = (Package("nvidia-open", f"{driver.VERSION}-1", (), {}, driver=True),)
"""What NVIDIA's repository of drivers has."""
NEWEST = of_kubernetes(KUBERNETES_VERSION, "kubernetes-host")
VERSIONS = {KUBERNETES_VERSION: NEWEST, PREVIOUS_VERSION: of_kubernetes(PREVIOUS_VERSION, PREVIOUS.name)}
"""What there is of each version of Kubernetes."""


def missing() -> str | None:
    """What this machine lacks to make packages, in one line."""
    return None if shutil.which("dpkg-deb") else "Debian packages are made by dpkg-deb: install dpkg"


def targets_of(packages: Sequence[Package]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(target for package in packages for target in package.targets))


def control(package: Package, installed_kib: int) -> str:
    """What dpkg and apt are told. Pure."""
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": images.architecture(),
        "Maintainer": "Longboat testbed <testbed@longboat.test>",
        "Installed-Size": str(installed_kib),
        "Depends": package.depends,
        "Recommends": package.recommends,
        "Section": "net",
        "Priority": "optional",
        "Description": f"{package.name}, {'a stand-in of' if package.driver else 'built by'} the testbed",
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items() if value)


def scripts(package: Package) -> dict[str, str]:
    """What dpkg runs before and after, by name. Pure."""
    if not package.unit:
        return {}
    start = _START.format(unit=package.unit) if package.starts else ":"
    return {
        "postinst": _POSTINST.format(unit=package.unit, start=start),
        "prerm": _PRERM.format(unit=package.unit),
        "postrm": _POSTRM.format(unit=package.unit),
    }


def key_of(package: Package) -> str:
    """Changes with what goes into the package."""
    fields = asdict(package)
    has_driver = fields.pop("driver")
    parts = [json.dumps(fields, sort_keys=True), control(package, 0), json.dumps(scripts(package))]
    parts += [driver.compiled_folder().name] if has_driver else []
    parts += [binaries.key_of(binaries.BY_NAME[name]) for name in package.targets]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def cached_path(package: Package) -> Path:
    return binaries.cache_folder() / "packages" / f"{package.name}-{key_of(package)}.deb"


def get(package: Package) -> Path:
    """The package as a file; made if it is not in the cache yet."""
    wanted = cached_path(package)
    if wanted.exists():
        return wanted
    lacks = missing()
    if lacks:
        raise Missing(lacks)
    programs = binaries.find(package.targets)
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with images.image_lock("packages"):
        if not wanted.exists():
            print(f"testbed packages: making {package.name} {package.version}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix=".making-", dir=wanted.parent) as scratch:
                build(package, Path(scratch), programs).rename(wanted)
    return wanted


def control_of(file: Path) -> str:
    """What a finished package says of itself."""
    return subprocess.run(["dpkg-deb", "--field", str(file)], capture_output=True, text=True, check=True).stdout


def build(package: Package, scratch: Path, programs: Binaries) -> Path:
    root = scratch / "root"
    (root / "DEBIAN").mkdir(parents=True)
    if package.driver:
        shutil.copytree(driver.compiled(), root, symlinks=True, dirs_exist_ok=True)
    for path, name in package.programs.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(programs[name].resolve(), root / path)
        (root / path).chmod(0o755)
    for path, text in package.texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    conffiles = [f"/{path}\n" for path in package.texts if path.startswith("etc/")]
    size = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
    (root / "DEBIAN" / "control").write_text(control(package, size >> 10))
    if conffiles:
        (root / "DEBIAN" / "conffiles").write_text("".join(conffiles))
    for name, text in scripts(package).items():
        (root / "DEBIAN" / name).write_text(text)
        (root / "DEBIAN" / name).chmod(0o755)
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)
    finished = scratch / "package.deb"
    # Little compression: a package is made once, and unpacked on three hosts at the same time on a machine of 2 cores.
    command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z1", "--build", str(root), str(finished)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "SOURCE_DATE_EPOCH": "0"}
    )
    if done.returncode != 0:
        raise TestbedError(f"{package.file} could not be made: {done.stderr.strip()}")
    return finished
