"""The room a real node lives in: namespaces of its own for processes, mounts, network and host name.

Everything the node makes (containers, mounts, interfaces, nftables rules, files in /run and /var) is made in there, and
the kernel takes it away together with the room's first process, the holder. That is why `down` cannot forget anything
and why a killed test run leaves nothing but this one marked process. Not here: what runs in the room.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed import processes
from testbed.binaries import Binaries
from testbed.clusters import Cluster
from testbed.errors import Missing, TestbedError
from testbed.processes import Launch, Process

COMMANDS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "nft": "nftables",
}
KINDS = ("mount", "net", "pid", "uts")
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KERNEL_SETTINGS = """
# What a kubelet sets on a machine that is all its own. It finds these values already there, and the machine keeps its.
while read -r file value; do
    [ -e "/proc/sys/$file" ] || continue
    own="$room/sysctl.${file##*/}"
    echo "$value" > "$own"
    mount --bind "$own" "/proc/sys/$file"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
"""
# /var shows what the machine has and keeps what the node writes; the folders below it must be real ones, because
# containers' file systems cannot be layered over an overlay.
_FURNISH = (
    """
set -e
room=$1; name=$2
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock "$room/var" "$room/var.work"
mount -t overlay -o "lowerdir=/var,upperdir=$room/var,workdir=$room/var.work" overlay /var
for folder in lib/kubelet lib/containerd lib/cni log/pods log/containers; do
    mkdir -p "/var/$folder" "$room/$folder"
    mount --bind "$room/$folder" "/var/$folder"
done
# The machine's name servers cannot be reached from here, and every pull from an unknown registry would wait for them.
if [ -e /etc/nsswitch.conf ]; then
    echo "hosts: files" > "$room/nsswitch.conf"
    mount --bind "$room/nsswitch.conf" /etc/nsswitch.conf
fi
"""
    + KERNEL_SETTINGS
    + """
mount --make-rshared /
hostname "$name"
"""
)


def missing() -> str | None:
    """What this machine lacks for rooms, in one line."""
    if os.geteuid() != 0:
        return "real nodes need root"
    lacking = sorted({package for command, package in COMMANDS.items() if not shutil.which(command, path=SEARCH)})
    return f"real nodes need the packages {', '.join(lacking)}" if lacking else None


def check() -> None:
    lacks = missing()
    if lacks:
        raise Missing(lacks)


def open_room(
    cluster: Cluster, programs: Binaries, name: str, *, kinds: Sequence[str] = KINDS, furnish: str = _FURNISH
) -> Process:
    """Start the holder of a node's namespaces and furnish them by a shell script that is given the folder and name."""
    room = cluster.folder / name
    room.mkdir(parents=True, exist_ok=True)
    for hidden in ("/run", "/var"):
        if room.is_relative_to(hidden):
            raise TestbedError(f"LONGBOAT_TESTBED_STATE must not be below {hidden}: a node has its own {hidden}")
    options = [*(f"--{kind}" for kind in kinds), "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
    outer = processes.start(
        Launch(
            f"{name}-room",
            ["unshare", *options, str(programs["pause"])],
            {"PATH": SEARCH, **processes.marks(cluster.id, cluster.folder)},
            cluster.logs / f"{name}-room.log",
        )
    )
    processes.record(cluster.processes, outer)
    holder = first_process(outer, programs["pause"])
    processes.record(cluster.processes, holder)
    run(holder.pid, ["sh", "-c", furnish, "sh", str(room), name])
    return holder


def first_process(outer: Process, program: Path) -> Process:
    """The process with the number 1 inside: the only child of the command that made the room."""
    pids: list[int] = []

    def is_there() -> bool:
        try:
            listed = processes.children(outer.pid)
            pids[:] = [pid for pid in listed if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(program)]
        except OSError:
            return not processes.is_alive(outer)
        return bool(pids) or not processes.is_alive(outer)

    processes.wait_until(is_there, 10.0, every_s=0.005)
    ticks = processes.start_ticks(pids[0]) if pids else None
    if ticks is None:
        raise TestbedError(f"no namespaces for {outer.name}:\n{processes.tail(Path(outer.log))}")
    return Process(outer.name.replace("-room", "-holder"), pids[0], ticks, outer.boot_id, outer.log)


def holder_of(cluster: Cluster, name: str) -> int | None:
    """The holder of a running node's room, for commands and components that are to run in it."""
    process = processes.recorded(cluster.processes).get(f"{name}-holder")
    return process.pid if process and processes.is_alive(process) else None


def run(holder: int, command: Sequence[str], text: str | None = None) -> str:
    """Run a short command inside and return what it printed."""
    done = subprocess.run(
        [*processes.enter(holder), *command], input=text, capture_output=True, text=True, check=False,
        env={"PATH": SEARCH},
    )  # fmt: skip
    if done.returncode != 0:
        raise TestbedError(f"{' '.join(command)[:200]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
