"""A cluster on the machine itself: control plane and one real node that share its network, with its GPUs.

For machines where nothing can be installed: no network, no package manager, no `ip` and no `nft` command. Pods use the
machine's network (hostNetwork); there are no pod addresses, services or names. As elsewhere the node lives in
namespaces for its processes and mounts, so that `down` forgets nothing. Not here: the archive this travels in (`pack`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from testbed import (
    addresses,
    api,
    cgroups,
    cleanup,
    clusters,
    controlplane,
    gpus,
    images,
    namespaces,
    node,
    processes,
    settings,
    small_image,
)
from testbed.binaries import KUBERNETES_COMMANDS, Binaries
from testbed.certificates import node_certificate, write_kubeconfig
from testbed.clusters import Cluster
from testbed.errors import Missing, TestbedError
from testbed.processes import Launch, Process

DEFAULT_NAME = "machine"
PROFILE = "machine"
NODE = node.name_of(0)
PORTS = (*controlplane.PORTS, "kubelet", "kubelet-health")
IMAGES = ("pause", "host", small_image.NAME)
PROGRAMS = (
    "kubernetes", "etcd", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "loopback", "pause", "certificates",
    node.PLUGIN, node.CDI_HOOK,
)  # fmt: skip
DRIVER_FOLDER = Path("/usr/local/nvidia")
COMMANDS = ("unshare", "nsenter", "mount", "umount", "sh", "cp")
# /var and /etc are the node's own. The latter, because a runtime puts files of its own over some in there and would
# make them on the machine if they are missing; it is copied before /run is hidden, where its links may lead.
_FURNISH = (
    """
set -e
room=$1
mkdir -p "$room/etc" "$room/var/log/pods" "$room/var/log/containers" "$room/var/tmp"
for folder in kubelet containerd cni; do mkdir -p "$room/var/lib/$folder"; done
ln -s /run "$room/var/run"
cp -a /etc/. "$room/etc/" || echo "not all of /etc could be copied" >&2
for file in hosts hostname resolv.conf; do
    rm -f "$room/etc/$file"
    cat "/etc/$file" > "$room/etc/$file" 2>/dev/null || :
done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock
mount --bind "$room/var" /var
mount --bind "$room/etc" /etc
"""
    + namespaces.KERNEL_SETTINGS
    + """
mount --make-rshared /
"""
)
_TRY_LAYERS = """
cd /var/lib/containerd && mkdir -p try/lower try/upper try/work try/both || exit 1
mount -t overlay -o lowerdir=try/lower,upperdir=try/upper,workdir=try/work overlay try/both 2>/dev/null &&
    : > try/both/file && umount try/both && found=overlayfs
rm -rf try
echo "${found:-native}"
"""


def programs_in(folder: Path) -> Binaries:
    """The programs of an unpacked archive."""
    paths = {name: folder / name for name in (*PROGRAMS, *KUBERNETES_COMMANDS)}
    lacking = [str(path) for path in paths.values() if not os.access(path, os.X_OK)]
    if lacking:
        raise TestbedError(f"the archive was not unpacked whole: {lacking[0]} is missing or cannot be started")
    return Binaries(paths)


def check() -> None:
    if os.geteuid() != 0:
        raise Missing("a cluster with a real node needs root")
    lacking = [command for command in COMMANDS if not shutil.which(command, path=namespaces.SEARCH)]
    if lacking:
        raise Missing(f"this machine lacks the commands {', '.join(lacking)}")
    if not cgroups.hierarchies():
        raise Missing(f"no control groups are mounted at {cgroups.ROOT}")


def up(name: str, programs: Binaries, pictures: Path, number: int, *, has_plugin: bool = False) -> Cluster:
    """The cluster of this name with that many GPUs, running and ready. One that already runs is left as it is.

    `has_plugin`: NVIDIA's device plugin hands out the machine's own, each pod its own; else they are only counted.
    """
    check()
    with clusters.folder_lock(name):
        running = clusters.load(name)
        if running and running.ready and is_healthy(running):
            return running
        cleanup.remove(clusters.folder_of(name))
        settings.raise_limit()
        try:
            return clusters.save(dataclasses.replace(start(name, programs, pictures, number, has_plugin), ready=True))
        except BaseException:
            if not os.environ.get("LONGBOAT_TESTBED_KEEP"):
                cleanup.remove(clusters.folder_of(name))
                settings.restore_limit()
                addresses.release()
            raise


def down(name: str) -> bool:
    there = cleanup.down(name)
    addresses.release()
    return there


def is_healthy(cluster: Cluster) -> bool:
    known = processes.recorded(cluster.processes)
    return bool(known) and not processes.ended(known.values())


def start(name: str, programs: Binaries, pictures: Path, number: int, has_plugin: bool) -> Cluster:
    folder = clusters.folder_of(name)
    folder.mkdir(mode=0o755, parents=True)
    cluster = clusters.save(Cluster(name, clusters.new_id(), folder, (PROFILE,)))
    address = addresses.claim()
    with clusters.machine_lock("ports"):
        ports = clusters.free_ports(PORTS, clusters.taken_ports())
        cluster = clusters.save(dataclasses.replace(cluster, ports=ports))
    holder = namespaces.open_room(cluster, programs, NODE, kinds=("mount", "pid"), furnish=_FURNISH).pid
    cgroups.make(f"{cluster.cgroup}/{NODE}")
    controlplane.write_files(cluster, programs, [node_certificate(NODE, address)])
    snapshotter = namespaces.run(holder, ["sh", "-c", _TRY_LAYERS]).strip()
    write_files(cluster, programs, address, snapshotter)
    runtime = start_component(cluster, programs, containerd_command(cluster, programs), holder)
    controlplane.start(cluster, programs, holder)
    node.wait_runtime(programs, holder, runtime)
    load_images(programs, pictures, holder, snapshotter)
    agent = start_component(cluster, programs, kubelet_command(cluster, programs, address), holder)
    with contextlib.closing(api.Api(cluster)) as with_api:
        ready = lambda: node.is_ready(with_api, NODE)  # noqa: E731
        controlplane.wait_running("the node is ready", ready, [runtime, agent], node.READY_S)
        if number:
            shower = (
                start_plugin(cluster, programs, holder) if has_plugin else gpus.start(cluster, programs, NODE, number)
            )
            shown = lambda: gpus.is_shown(with_api, NODE, number)  # noqa: E731
            controlplane.wait_running(f"the node shows {number} GPUs", shown, [runtime, agent, shower], node.READY_S)
    return cluster


def driver_root() -> Path:
    """Where the machine has NVIDIA's driver: in a folder of its own, as in some clouds, or among all else."""
    return DRIVER_FOLDER if (DRIVER_FOLDER / "lib64/libcuda.so.1").exists() else Path("/")


def plugin_command(programs: Binaries, root: Path) -> list[str]:
    return [
        str(programs[node.PLUGIN]),
        "--device-list-strategy=cdi-cri",
        f"--nvidia-driver-root={root}",
        f"--container-driver-root={root}",
        f"--nvidia-cdi-hook-path={programs[node.CDI_HOOK]}",
    ]


def start_plugin(cluster: Cluster, programs: Binaries, holder: int) -> Process:
    """NVIDIA's device plugin over the machine's driver."""
    root = driver_root()
    if root != Path("/") and (root / "dev").is_dir():
        # It looks for the devices below the driver's folder.
        namespaces.run(holder, ["mount", "--bind", "/dev", str(root / "dev")])
    libraries = {"LD_LIBRARY_PATH": str(root / "lib64")} if root != Path("/") else {}
    return start_component(cluster, programs, plugin_command(programs, root), holder, libraries)


def kubelet_configuration(cluster: Cluster, address: str) -> dict[str, object]:
    """The usual one, at ports that are free here and without a hand in the machine's network."""
    return {
        **node.kubelet_configuration(cluster, 0),
        "address": address,
        "port": cluster.ports["kubelet"],
        "healthzPort": cluster.ports["kubelet-health"],
        "makeIPTablesUtilChains": False,
        "clusterDNS": [],
    }


def plugin_configuration() -> dict[str, object]:
    """A node without any is never ready, though pods that use the machine's network need none."""
    return {"cniVersion": "1.0.0", "name": "testbed", "plugins": [{"type": "loopback"}]}


def unpacking(snapshotter: str) -> str:
    """containerd's import of images has a setting of its own, and does not start without the usual file system."""
    if snapshotter == "overlayfs":
        return ""
    section = 'plugins."io.containerd.transfer.v1.local"'
    platform = f"linux/{images.architecture()}"
    return f'[[{section}.unpack_config]]\n  platform = "{platform}"\n  snapshotter = "{snapshotter}"\n'


def write_files(cluster: Cluster, programs: Binaries, address: str, snapshotter: str) -> None:
    folder = cluster.folder / NODE
    settled = node.containerd_configuration(folder, programs, snapshotter=snapshotter, plugin="loopback")
    (folder / "containerd.toml").write_text(settled + unpacking(snapshotter))
    (folder / "kubelet.json").write_text(json.dumps(kubelet_configuration(cluster, address), indent=1))
    (folder / "resolv.conf").write_text("# No names are served here.\n")
    (folder / "registries").mkdir(exist_ok=True)
    (folder / "cni").mkdir(exist_ok=True)
    (folder / "cni/10-testbed.conflist").write_text(json.dumps(plugin_configuration()))
    write_kubeconfig(cluster, f"node-{NODE}", folder / "kubeconfig")


def containerd_command(cluster: Cluster, programs: Binaries) -> list[str]:
    return [str(programs["containerd"]), "--config", str(cluster.folder / NODE / "containerd.toml")]


def kubelet_command(cluster: Cluster, programs: Binaries, address: str) -> list[str]:
    folder = cluster.folder / NODE
    return [
        str(programs["kubelet"]),
        f"--config={folder / 'kubelet.json'}",
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--hostname-override={NODE}",
        f"--node-ip={address}",
        "--root-dir=/var/lib/kubelet",
        f"--node-labels={node.REAL_LABEL}=true",
    ]


def start_component(
    cluster: Cluster, programs: Binaries, command: list[str], holder: int, extra: Mapping[str, str] | None = None
) -> Process:
    name = f"{NODE}-{Path(command[0]).name}"
    environment = {**controlplane.environment(cluster, programs), **(extra or {})}
    process = processes.start(Launch(name, command, environment, cluster.logs / f"{name}.log", holder))
    processes.record(cluster.processes, process)
    return process


def load_images(programs: Binaries, pictures: Path, holder: int, snapshotter: str) -> None:
    importing = [str(programs["ctr"]), "-a", node.SOCKET, "-n", "k8s.io", "images", "import", "--local"]
    for name in IMAGES:
        namespaces.run(holder, [*importing, "--snapshotter", snapshotter, str(pictures / f"{name}.tar")])


def image_settings() -> dict[str, dict[str, object]]:
    """Configurations of the images in the archive, each of which has the program `pause` in it and nothing else."""
    return {"pause": dict(images.RECIPES["pause"].settings), "host": {"Entrypoint": ["/pause"]}}
