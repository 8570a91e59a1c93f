"""Checks of one host's system: root, init, packages, kernel, cgroups, swap, disk, memory, other clusters. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from longboat.clusters.observe.facts import HostFacts, HostProblem
from longboat.clusters.spec import ClusterSpec, HostSpec

Problems = Iterator[HostProblem]
ARCHITECTURES = ("amd64", "arm64")
OLDEST_KERNEL = (5, 13)
"""kube-proxy's nftables mode asks for it; Debian 12, Ubuntu 22.04 and Rocky 9 have a newer one."""
CGROUP_V2_ONLY = 35
"""Minor version of Kubernetes from which the kubelet refuses cgroup v1 by default."""
LEAST_FREE = 3 << 30
"""Packages, images of a control plane and what comes out of them need 2 to 3 GiB."""
EVICTION_SHARE = 0.15
"""The kubelet removes images, then pods, when less of the disk is free."""
CONTROL_PLANE_MEMORY, CONTROL_PLANE_CPUS = 1700 << 20, 2  # kubeadm's own
_RESET = {
    "kubeadm": "kubeadm reset -f, if nobody needs it",
    "k3s": "/usr/local/bin/k3s-uninstall.sh (k3s-agent-uninstall.sh on an agent), if nobody needs it",
    "rke2": "/usr/local/bin/rke2-uninstall.sh, if nobody needs it",
    "microk8s": "snap remove --purge microk8s, if nobody needs it",
    "k0s": "k0s stop; k0s reset, if nobody needs it",
    "leftovers": "kubeadm reset -f, or remove /etc/kubernetes, /var/lib/etcd and /var/lib/kubelet",
}


def is_ours(spec: ClusterSpec, facts: HostFacts) -> bool:
    """Whether the host is a node of this cluster, or an unfinished one."""
    return facts.journal_cluster == spec.name


def sudo(_spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    said = f": {facts.sudo_message}" if facts.sudo_message else ""
    remedy = (
        "let the account use sudo without a password (NOPASSWD), log in as root, or give sudo's password when asked"
    )
    if facts.sudo in ("asks", "none"):
        yield HostProblem(host=facts.name, check="sudo", message=f"no way to root{said}", remedy=remedy)


def init(_spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    if facts.init != "systemd":
        yield HostProblem(
            host=facts.name,
            check="systemd",
            message=f"systemd does not run here; process 1 is {facts.init or 'unknown'}",
            remedy="containerd and the kubelet are services of systemd: take a host that has it",
        )


def package_manager(spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    if spec.source.kind == "packages" and facts.package_manager not in ("apt", "dnf"):
        system = " ".join(filter(None, (facts.os_id, facts.os_version))) or "this system"
        manager = f"{system} has {facts.package_manager}" if facts.package_manager else f"{system} has none known"
        yield HostProblem(
            host=facts.name,
            check="packages",
            message=f"programs come from apt or dnf; {manager}",
            remedy="take a host with Debian, Ubuntu, Fedora, or a relative of Red Hat's",
        )


def architecture(_spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    if facts.architecture not in ARCHITECTURES:
        yield HostProblem(
            host=facts.name,
            check="architecture",
            message=f"the processor is {facts.architecture or 'unknown'}; there are programs for amd64 and arm64",
            remedy="take another host",
        )


def kernel(_spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", facts.kernel)
    if match and (int(match[1]), int(match[2])) < OLDEST_KERNEL:
        yield HostProblem(
            host=facts.name,
            check="kernel",
            message=f"Linux {facts.kernel} is too old; {'.'.join(map(str, OLDEST_KERNEL))} is the oldest that will do",
            remedy="upgrade the distribution: Debian 12, Ubuntu 22.04 and Rocky Linux 9 have newer ones",
        )


def control_groups(spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    if facts.cgroup_version == 2:
        return
    minor = re.match(r"v?1\.([0-9]{1,3})", spec.versions.kubernetes)
    allowed = dict(spec.kubelet).get("failCgroupV1", "").strip() == "false"
    refuses = minor is None or int(minor[1]) >= CGROUP_V2_ONLY
    version = f"version {facts.cgroup_version}" if facts.cgroup_version else "an unknown version"
    yield HostProblem(
        host=facts.name,
        check="cgroup",
        severity="error" if refuses and not allowed else "warning",
        message=f"control groups are of {version}; Kubernetes {spec.versions.kubernetes} wants version 2",
        remedy="boot with systemd.unified_cgroup_hierarchy=1; or, for the time being, `kubelet: {failCgroupV1: false}`",
    )


def swap(_spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    areas = facts.swaps or facts.fstab_swaps
    if areas:
        state = "is in use" if facts.swaps else "comes back with the next boot"
        yield HostProblem(
            host=facts.name,
            check="swap",
            severity="repair",
            message=f"swap {state}: {', '.join(areas)}",
            remedy="up switches it off and comments it out of /etc/fstab; down brings it back",
        )


def disk(spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    """Check free space of the file system for images and pods."""
    if not facts.disks or "evictionHard" in dict(spec.kubelet):
        return
    volume = max(facts.disks, key=lambda volume: len(volume.path))
    size = f"{volume.path} has {volume.free / 2**30:.1f} of {volume.total / 2**30:.1f} GiB free"
    if volume.free < LEAST_FREE and not is_ours(spec, facts):
        remedy = f"make room for {LEAST_FREE >> 30} GiB at least; trainings' images need tens of GiB"
        yield HostProblem(host=facts.name, check="disk", message=size, remedy=remedy)
    elif volume.total and volume.free < EVICTION_SHARE * volume.total:
        message = f"{size}: below {EVICTION_SHARE:.0%} the kubelet removes images, then pods"
        remedy = "make room, or set `kubelet: {evictionHard: ...}`"
        yield HostProblem(host=facts.name, check="disk", severity="warning", message=message, remedy=remedy)


def size(_spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Problems:
    is_control_plane = host.role == "control-plane"
    severity = "error" if is_control_plane else "warning"
    if 0 < facts.memory < CONTROL_PLANE_MEMORY:
        message = f"{facts.memory >> 20} MiB of memory; a {host.role} wants {CONTROL_PLANE_MEMORY >> 20} MiB at least"
        yield HostProblem(host=facts.name, check="memory", severity=severity, message=message, remedy="add memory")
    if is_control_plane and 0 < facts.cpus < CONTROL_PLANE_CPUS:
        message = f"{facts.cpus} CPU; a control plane wants {CONTROL_PLANE_CPUS} at least"
        yield HostProblem(host=facts.name, check="cpu", message=message, remedy="add one, or let another host do it")


def other_cluster(spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    if is_ours(spec, facts):
        return
    if facts.journal_cluster:
        yield HostProblem(
            host=facts.name,
            check="cluster",
            message=f"it belongs to the cluster {facts.journal_cluster} that Longboat made",
            remedy=f"take it out of {facts.journal_cluster} first: longboat cluster down",
        )
    elif facts.cluster:
        kind = facts.cluster if facts.cluster in _RESET else "leftovers"
        server = f" of {facts.cluster_server}" if facts.cluster_server else ""
        title = (
            "leftovers of a cluster are here" if kind == "leftovers" else f"a node of {kind} is here already{server}"
        )
        yield HostProblem(host=facts.name, check="cluster", message=title, remedy=_RESET[kind])


def container_runtime(spec: ClusterSpec, _host: HostSpec, facts: HostFacts) -> Problems:
    if facts.cri_disabled and not is_ours(spec, facts):
        yield HostProblem(
            host=facts.name,
            check="containerd",
            severity="repair",
            message="containerd is configured without the part that the kubelet needs (disabled_plugins: cri)",
            remedy="up writes another configuration and restarts containerd; down brings the old one back",
        )


CHECKS = (
    sudo, init, package_manager, architecture, kernel, control_groups, swap, disk, size, other_cluster,
    container_runtime,
)  # fmt: skip
