"""Takes clusters away again, and shows what there is on a machine before and after.

`down` removes one cluster by name. `clean` removes what nobody will take down any more: clusters of test runs that
died, starts that were killed half-way, clusters of which nothing runs any more, marked processes without a cluster. It
goes by our marks alone (a variable in the environment, a prefix of interfaces and control groups) and never touches a
cluster that is in use.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

from testbed import cgroups, clusters, processes, settings
from testbed.clusters import Cluster
from testbed.errors import TestbedError

MARKED_NAME = re.compile(r"(?:^|\blb|\blongboat-)([0-9a-f]{8})\b")
LINKS = Path("/sys/class/net")
WATCHED = (
    "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/lib/etcd", "/var/log/pods", "/var/log/containers",
    "/run/containerd", "/run/netns", "/etc/cni", "/etc/kubernetes", "/opt/cni", "/usr/libexec/kubernetes",
)  # fmt: skip
SETTINGS = (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max",
)  # fmt: skip


def down(name: str) -> bool:
    """Remove the cluster of this name and all it made; False when there was none."""
    folder = clusters.folder_of(name)
    with clusters.folder_lock(name):
        there = remove(folder)
    settings.restore_limit()
    return there


def remove(folder: Path) -> bool:
    """Remove what belongs to this folder, whether its record can be read or not. The caller holds its lock."""
    cluster = clusters.load_folder(folder)
    ids = {process.cluster_id for process in processes.marked() if process.folder == str(folder)}
    if cluster:
        ids.add(cluster.id)
    for identity in ids:
        remove_marked(identity)
    if not folder.exists():
        return bool(ids)
    unmount_below(folder)
    shutil.rmtree(folder)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
    return True


def remove_marked(identity: str) -> None:
    """Processes first: namespaces, mounts, interfaces and rules go with the last process in them."""
    processes.kill_marked(identity)
    remove_link(f"lb{identity}")
    if os.geteuid() == 0:
        cgroups.remove(f"{cgroups.PREFIX}{identity}")


def remove_link(name: str) -> None:
    def gone() -> bool:
        return not (LINKS / name).exists()

    if gone():
        return
    # The kernel takes it away with its namespace, a moment after the last process; asking shortens the moment.
    subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)
    if not processes.wait_until(gone, 10.0):
        raise TestbedError(f"the interface {name} cannot be removed")


def mounts() -> list[str]:
    """Mount points of this mount namespace, inner ones last."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        points.append(line.split()[4].encode().decode("unicode_escape"))
    return points


def unmount_below(folder: Path) -> None:
    """A cluster mounts nothing out here; should something be there all the same, it must not be deleted through."""
    for point in reversed(mounts()):
        if Path(point).is_relative_to(folder):
            done = subprocess.run(["umount", "-l", point], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise TestbedError(f"{point} cannot be unmounted: {done.stderr.strip()}")


def is_left_over(folder: Path) -> bool:
    """Whether nobody uses this cluster any more. The caller holds its lock, so no start is under way."""
    cluster = clusters.load_folder(folder)
    if cluster is None or not cluster.ready or clusters.is_abandoned(folder):
        return True
    known = processes.recorded(cluster.processes)
    return bool(known) and len(processes.ended(known.values())) == len(known)


def clean(*, everything: bool = False) -> list[str]:
    """Remove what was left behind (or, if asked, every cluster of this state folder); one line for each."""
    removed = []
    for folder in clusters.folders():
        with clusters.folder_lock(folder.name):
            if folder.exists() and (everything or is_left_over(folder)):
                remove(folder)
                removed.append(f"cluster {folder.name}")
    for identity in sorted(orphans()):
        remove_marked(identity)
        removed.append(f"processes and groups of {identity}")
    settings.restore_limit()
    return removed


def orphans() -> set[str]:
    """Ids of clusters of which something runs or stays although their folder is gone or another's."""
    # Looked at before the processes: a node's first process is there before its groups are.
    stale = cgroups.present() if os.geteuid() == 0 else set()
    orphaned: set[str] = set()
    at_home: set[str] = set()
    for process in processes.marked():
        stale.discard(process.cluster_id)
        cluster = clusters.load_folder(Path(process.folder)) if process.folder else None
        # A folder without a readable record may be one whose start is under way.
        if (process.folder and not has_folder(process)) or (cluster is not None and cluster.id != process.cluster_id):
            orphaned.add(process.cluster_id)
        else:
            at_home.add(process.cluster_id)
    return (orphaned - at_home) | stale


def has_folder(process: processes.Marked) -> bool:
    """Whether the folder is there, also for a process that sees another root file system than we do."""
    return Path(process.folder).exists() or Path(f"/proc/{process.pid}/root{process.folder}").exists()


@dataclass(frozen=True)
class Inventory:
    """What is on this machine that a cluster could leave behind."""

    processes: frozenset[str]
    mounts: frozenset[str]
    links: frozenset[str]
    namespaces: frozenset[str]
    tables: frozenset[str]
    cgroups: frozenset[str]
    files: frozenset[str]
    settings: frozenset[str]


def inventory() -> Inventory:
    tables = ""
    if shutil.which("nft"):
        tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False).stdout
    # os.walk passes over what another cluster removes meanwhile.
    groups = [os.path.relpath(path, tree.parent) for tree in cgroups.hierarchies() for path, _, _ in os.walk(tree)]
    return Inventory(
        processes=frozenset(f"{process.cluster_id} {process.pid} {process.command}" for process in processes.marked()),
        mounts=frozenset(mounts()),
        links=frozenset(entry.name for entry in LINKS.iterdir()),
        namespaces=frozenset(entry.name for entry in entries(Path("/run/netns"))),
        tables=frozenset(tables.splitlines()),
        cgroups=frozenset(groups),
        files=frozenset(str(file) for file in watched_files()),
        settings=frozenset(setting(name) for name in SETTINGS),
    )


def entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def watched_files() -> list[Path]:
    folders = [Path(name) for name in WATCHED]
    paths = [folder for folder in folders if folder.exists()] + [file for folder in folders for file in entries(folder)]
    return paths + clusters.folders()


def setting(name: str) -> str:
    try:
        return f"{name} {Path('/proc/sys', name).read_text().strip()}"
    except OSError:
        return f"{name} -"


def left_behind(before: Inventory, after: Inventory, cluster: Cluster) -> list[str]:
    """What was not there before, except what carries another cluster's mark: several may come and go at once."""
    lines = []
    for field in fields(Inventory):
        for item in sorted(getattr(after, field.name) - getattr(before, field.name)):
            named = set(MARKED_NAME.findall(item)) if field.name in ("processes", "links", "cgroups") else set()
            if not named or cluster.id in named:
                lines.append(f"{field.name}: {item}")
    return lines
