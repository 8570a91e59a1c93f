"""Which programs the testbed needs, and where each is found.

In this order: the folder LONGBOAT_TESTBED_BIN, the cache, official release files, a build. What a build does is in
`build`, what a download does in `releases`; this module only names, finds and asks for them.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from testbed.errors import TestbedError

GO_FOLDER = Path(__file__).parent / "go"
KUBERNETES_VERSION = "1.36.4"
OLDER_VERSION = "1.29.15"
"""The oldest that Longboat works with; built only when a test asks for it."""
PREVIOUS_VERSION = "1.35.8"
"""What hosts are upgraded from; built only when a test asks for it."""
KUBERNETES_COMMANDS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubeadm",
    "kubectl",
)
HOST_COMMANDS = KUBERNETES_COMMANDS[4:]
"""Those that are installed on hosts; the others are images."""
OLDER_COMMANDS = KUBERNETES_COMMANDS[:5]
"""Those that run a cluster. kubectl and kubeadm are always the newer ones."""
_STAMP = "k8s.io/component-base/version."
_CONTAINERD = "github.com/containerd/containerd/v2/cmd/"
_CNI = "github.com/containernetworking/plugins/plugins/"
_PLUGIN = "github.com/NVIDIA/k8s-device-plugin/"
_TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit/"
PLUGIN_VERSION = "0.19.3"
TOOLKIT_VERSION = "1.20.1"
FLANNEL_VERSION = "0.28.0"
KUBE_VIP_VERSION = "1.0.0"


@dataclass(frozen=True)
class Target:
    """One step of the build: packages of one Go module, built with the same flags into one folder of the cache."""

    name: str
    module: str
    packages: Mapping[str, str]
    """File name to Go package."""
    links: tuple[str, ...] = ()
    """Names under which the (only) program is called."""
    stamps: str = ""
    tags: str = ""
    cgo: bool = False

    @property
    def is_static(self) -> bool:
        """Go's own resolver and user lookup are asked for where the C library is to be linked in."""
        return not self.cgo or "netgo" in self.tags.split()

    @property
    def programs(self) -> tuple[str, ...]:
        return self.links or tuple(self.packages)


def _stamps(version: str) -> str:
    _, minor, _ = version.split(".")
    return (
        f"-X {_STAMP}gitVersion=v{version} -X {_STAMP}gitMajor=1 -X {_STAMP}gitMinor={minor} "
        f"-X {_STAMP}gitTreeState=clean -X {_STAMP}gitCommit=unknown -X {_STAMP}buildDate=1970-01-01T00:00:00Z"
    )


TARGETS = (
    Target("tools", "tools", {"certificates": "./certificates", "pause": "./pause"}),
    Target("etcd", "etcd", {"etcd": "."}),
    Target(
        "kubernetes", "kubernetes", {"kubernetes": "."}, links=KUBERNETES_COMMANDS, stamps=_stamps(KUBERNETES_VERSION)
    ),
    Target("kwok", "kubernetes", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Target(
        "containerd",
        "containerd",
        {name: _CONTAINERD + name for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
        tags="no_btrfs no_zfs no_devmapper",
    ),
    Target("runc", "containerd", {"runc": "github.com/opencontainers/runc"}, tags="netgo osusergo seccomp", cgo=True),
    Target(
        "cni",
        "containerd",
        {
            "ptp": _CNI + "main/ptp",
            "host-local": _CNI + "ipam/host-local",
            "loopback": _CNI + "main/loopback",
            "portmap": _CNI + "meta/portmap",
        },
    ),
    Target("cni-bridge", "cni", {"bridge": _CNI + "main/bridge"}),
    # Packages for hosts have them one by one: the one program for all would be on every host three times.
    Target(
        "kubernetes-host",
        "kubernetes",
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in HOST_COMMANDS},
        stamps=_stamps(KUBERNETES_VERSION),
    ),
    Target("coredns", "coredns", {"coredns": "."}),
    Target("jobset", "kubernetes", {"jobset": "sigs.k8s.io/jobset"}),
    Target("kueue", "kubernetes", {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}),
    Target("metrics-server", "metrics-server", {"metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server"}),
    Target(
        "nvidia-device-plugin",
        "nvidia-device-plugin",
        {"nvidia-device-plugin": f"{_PLUGIN}cmd/nvidia-device-plugin"},
        stamps=f"-X {_PLUGIN}internal/info.version=v{PLUGIN_VERSION}",
        cgo=True,
    ),
    Target(
        "nvidia-container-toolkit",
        "nvidia-container-toolkit",
        {name: f"{_TOOLKIT}cmd/{name}" for name in ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime")},
        stamps=f"-X {_TOOLKIT}internal/info.version={TOOLKIT_VERSION}",
        cgo=True,
    ),
)
OLDER = Target(
    "kubernetes-older", "kubernetes-older", {"kubernetes": "."}, links=OLDER_COMMANDS, stamps=_stamps(OLDER_VERSION)
)
PREVIOUS = Target(
    "kubernetes-previous",
    "kubernetes-previous",
    {"kubernetes": "."},
    links=KUBERNETES_COMMANDS,
    stamps=_stamps(PREVIOUS_VERSION),
)
FLANNEL = Target(
    "flannel",
    "flannel",
    {"flanneld": "github.com/flannel-io/flannel"},
    stamps=f"-X github.com/flannel-io/flannel/pkg/version.Version=v{FLANNEL_VERSION}",
    tags="netgo osusergo",
    cgo=True,
)
"""The network between hosts in different subnets; built only when a test asks for it."""
KUBE_VIP = Target("kube-vip", "kube-vip", {"kube-vip": "github.com/kube-vip/kube-vip"})
"""The virtual IP of several control planes; built only when a test asks for it."""
BY_NAME = {target.name: target for target in (*TARGETS, OLDER, PREVIOUS, FLANNEL, KUBE_VIP)}


@dataclass(frozen=True)
class Binaries:
    """Every program asked for, by name."""

    paths: Mapping[str, Path] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Path:
        try:
            return self.paths[name]
        except KeyError:
            raise TestbedError(f"{name} was not asked for; known are {', '.join(sorted(self.paths))}") from None

    def search_path(self) -> str:
        """A PATH on which they find each other."""
        folders = dict.fromkeys(str(path.parent) for path in self.paths.values())
        return ":".join([*folders, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])


def cache_folder() -> Path:
    named = os.environ.get("LONGBOAT_TESTBED_CACHE")
    return Path(named).expanduser().absolute() if named else Path.home() / ".cache" / "longboat-testbed"


def key_of(target: Target) -> str:
    """Changes whenever what the build would make changes."""
    digest = hashlib.sha256(json.dumps(asdict(target), sort_keys=True).encode())
    digest.update(f"{platform.system()} {platform.machine()} 1".encode())
    folder = GO_FOLDER / target.module
    for file in sorted(folder.rglob("*")):
        if file.name in ("go.mod", "go.sum") or file.suffix == ".go":
            digest.update(f"{file.relative_to(folder)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def cached_folder(target: Target, cache: Path | None = None) -> Path:
    return (cache or cache_folder()) / "binaries" / f"{target.name}-{key_of(target)}"


def in_folder(target: Target, folder: Path) -> dict[str, Path] | None:
    """The target's programs in this folder, or nothing unless all of them are there and can be started."""
    paths = {program: folder / program for program in target.programs}
    return paths if all(os.access(path, os.X_OK) for path in paths.values()) else None


def lookup(target: Target) -> dict[str, Path] | None:
    """Where the programs already are, nothing made for it."""
    named = os.environ.get("LONGBOAT_TESTBED_BIN")
    if named and target in TARGETS:  # under one name there can be one version only
        programs = in_folder(target, Path(named).expanduser().absolute())
        if programs:
            return programs
    return in_folder(target, cached_folder(target))


def find(names: Iterable[str], *, quiet: bool = False) -> Binaries:
    """The programs of these targets; what is nowhere is downloaded or built first. Of two of a name, the later one."""
    targets = [BY_NAME[name] for name in names]
    missing = [target for target in targets if lookup(target) is None]
    if missing:
        from testbed import build  # only a first start needs it

        build.make(missing, quiet=quiet)
    paths: dict[str, Path] = {}
    for target in targets:
        paths.update(lookup(target) or {})
    return Binaries(paths)
