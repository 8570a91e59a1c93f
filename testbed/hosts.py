"""Machines reached over SSH, for the tests: Debian or Ubuntu with systemd and sshd, each in a systemd-nspawn container.

A group of hosts is recorded, kept and removed like a cluster (`clusters`, `cleanup`). All its hosts live in one room
(`namespaces`) with a bridge between them, so that whatever they make goes away with the room. A group has a range
10.X.0.0/16: hosts from 10.X.0.10 on, the rest is free for what is installed on them. What can be wrong with a host is
in `traits`. Not here: anything of Kubernetes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import (
    binaries,
    cgroups,
    cleanup,
    clusters,
    driver,
    namespaces,
    network,
    processes,
    rootfs,
    settings,
    traits,
)
from testbed.clusters import Cluster
from testbed.controlplane import wait_running
from testbed.errors import Missing, TestbedError
from testbed.processes import Launch, Process
from testbed.traits import Traits

PROFILE = "hosts"
DEFAULT_NAME = "hosts"
ROOM = "room"
MOST = 200
READY_S = 90.0
STOP_S = 15.0
COMMAND_S = 120.0
CAP_SYS_RESOURCE = 24
COMMANDS = {
    "systemd-nspawn": "systemd-container",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "slirp4netns": "slirp4netns",
    "tc": "iproute2",
    "mkfs.ext4": "e2fsprogs",
}
# Layers cannot be put on top of an overlay, and container runtimes do that below /var: there it is a real folder.
_MAKE_DISK = """
set -e
host=$1; base=$2; size=$3; user=$4; password=$5; free=$6
mkdir -p "$host/disk" "$host/root"
if [ "$size" != 0 ]; then
    truncate -s "$size" "$host/disk.img"
    mkfs.ext4 -q -m 0 "$host/disk.img"
    mount -o loop "$host/disk.img" "$host/disk"
fi
mkdir -p "$host/disk/upper" "$host/disk/work"
mount -t overlay -o "lowerdir=$base,upperdir=$host/disk/upper,workdir=$host/disk/work" overlay "$host/root"
cp -a "$base/var" "$host/disk/var"
mount --bind "$host/disk/var" "$host/root/var"
cp -r "$host/files/." "$host/root/"
chmod 600 "$host/root/etc/ssh/ssh_host_ed25519_key"
chown -R "$(stat -c %u:%g "$host/root/home/$user")" "$host/root/home/$user"
if [ -n "$password" ]; then echo "$user:$password" | chroot "$host/root" chpasswd; fi
if [ "$free" != 0 ]; then
    fallocate -l $(($(df --output=avail -B1 "$host/disk" | tail -1) - free)) "$host/disk/filler"
fi
"""
# nspawn is told to stay in the groups it was started in; the host's own groups are made below them.
_ENTER_GROUPS = 'name=$1; shift; for tree in $TREES; do echo 0 > "$tree/$name/cgroup.procs"; done; exec "$@"'
_SETTLE = """
echo 'table ip out {
    chain after { type nat hook postrouting priority srcnat; oifname "tap0" masquerade; }
}' | nft -f -
"""


@dataclass(frozen=True)
class Host:
    """One host and how to reach it."""

    name: str
    address: str
    folder: Path
    """The group's."""
    traits: Traits

    @property
    def key(self) -> Path:
        return self.folder / "ssh" / "key"

    @property
    def config(self) -> Path:
        """A configuration for ssh in which the host has its name."""
        return self.folder / "ssh" / "config"

    def command(self, *words: str, user: str = rootfs.USER) -> list[str]:
        return ["ssh", "-F", str(self.config), "-l", user, self.name, *words]

    def run(self, script: str, *, text: str | None = None, user: str = rootfs.USER, within_s: float = COMMAND_S) -> str:
        """Run a line of shell there and return what it printed; anything but success is an error."""
        done = subprocess.run(
            self.command(script, user=user), input=text, stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True, text=True, timeout=within_s, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise TestbedError(f"{self.name}: {script[:200]}: {done.stderr[-2000:].strip() or done.stdout[-2000:]}")
        return done.stdout


@dataclass(frozen=True)
class Group:
    """Hosts that were started together."""

    record: Cluster
    hosts: tuple[Host, ...]

    @property
    def gateway(self) -> str:
        """This machine, as the hosts see it."""
        return network.gateway_address(self.record, 0)


def missing() -> str | None:
    """What this machine lacks for hosts, in one line."""
    if os.geteuid() != 0:
        return "hosts need root"
    search = namespaces.SEARCH
    lacking = sorted({package for command, package in COMMANDS.items() if not shutil.which(command, path=search)})
    if lacking:
        return f"hosts need the packages {', '.join(lacking)}"
    if not Path("/dev/net/tun").exists():
        return "hosts need the device /dev/net/tun"
    return namespaces.missing() or rootfs.missing()


def up(name: str, count: int, wanted: Sequence[str] = (), *, lease: bool = False) -> Group:
    """The group of this name, every host answering over SSH. One that already runs is left as it is."""
    if not 1 <= count <= MOST:
        raise TestbedError(f"a group has 1 to {MOST} hosts, not {count}")
    chosen = traits.combine(wanted, count)
    lacks = missing() or (driver.missing() if any(host.gpus for host in chosen) else None)
    if lacks:
        raise Missing(lacks)
    if any(host.delay for host in chosen):
        check_delay()
    for system in {system_of(host) for host in chosen}:
        rootfs.get(system)
    folder = clusters.folder_of(name)
    with clusters.folder_lock(name):
        running = clusters.load(name)
        if running and running.ready and not processes.ended(processes.recorded(running.processes).values()):
            if PROFILE in running.profiles and [host.traits for host in load(running).hosts] == chosen:
                return load(running)
            raise TestbedError(f"{name!r} runs and is something else; take it down first, or use --name")
        cleanup.remove(folder)
        try:
            group = start(name, chosen)
            if lease:
                (folder / "lease").touch(mode=0o600)
            return dataclasses.replace(group, record=clusters.save(dataclasses.replace(group.record, ready=True)))
        except BaseException:
            if not os.environ.get("LONGBOAT_TESTBED_KEEP"):
                cleanup.remove(folder)
            raise


def check_delay() -> None:
    tried = "ip link add name one type veth peer name two && tc qdisc add dev one root netem delay 1ms"
    done = subprocess.run(["unshare", "--net", "sh", "-c", tried], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing("no host can have the trait delay here: this kernel has no netem (CONFIG_NET_SCH_NETEM)")


def load(record: Cluster) -> Group:
    rows = json.loads((record.folder / "hosts.json").read_text())
    for row in rows:
        row["traits"]["busy_ports"] = tuple(row["traits"]["busy_ports"])
    return Group(
        record, tuple(Host(row["name"], row["address"], record.folder, Traits(**row["traits"])) for row in rows)
    )


def get(name: str) -> Group:
    record = clusters.load(name)
    if record is None or PROFILE not in record.profiles:
        raise TestbedError(f"there are no hosts {name!r} in {clusters.state_folder()}; python -m testbed hosts up 3")
    return load(record)


def start(name: str, wanted: list[Traits]) -> Group:
    folder = clusters.folder_of(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.parent.stat().st_uid != os.geteuid() or any(sign in str(folder) for sign in ",:\\\n"):
        raise TestbedError(f"{folder.parent} cannot be used: set LONGBOAT_TESTBED_STATE to a folder of your own")
    folder.mkdir(mode=0o755)
    record = clusters.save(Cluster(name, clusters.new_id(), folder, (PROFILE,)))
    settings.raise_limit()
    holder = namespaces.open_room(record, binaries.find(("tools",)), ROOM).pid
    with clusters.machine_lock("addresses"):
        record = clusters.save(dataclasses.replace(record, range=network.claim_range()))
        network.connect(record, 0, [holder])
    connect_outside(record, holder)
    hosts = tuple(
        Host(f"host-{number}", f"10.{record.range}.0.{10 + number}", folder, host_traits)
        for number, host_traits in enumerate(wanted)
    )
    rows = [{"name": host.name, "address": host.address, "traits": dataclasses.asdict(host.traits)} for host in hosts]
    (folder / "hosts.json").write_text(json.dumps(rows))
    write_keys(hosts)
    running = []
    for host in hosts:
        write_files(record, host)
        made = [str(room_of(host)), str(rootfs.path(system_of(host.traits))), str(host.traits.disk_bytes), rootfs.USER]
        made += [host.traits.sudo_password, str(host.traits.free_bytes)]
        namespaces.run(holder, ["sh", "-c", _MAKE_DISK, "sh", *made])
        running.append(switch_on(record, host))
    for host in hosts:
        wait_running(f"{host.name} answers", lambda host=host: answers(host), running, READY_S)  # type: ignore[misc]
    return Group(record, hosts)


def system_of(host: Traits) -> rootfs.Distribution:
    return rootfs.UBUNTU if host.ubuntu else rootfs.DEBIAN


def room_of(host: Host) -> Path:
    return host.folder / host.name


def connect_outside(record: Cluster, holder: int) -> None:
    """A bridge for the hosts, and a way out that asks nothing of this machine's own settings."""
    wires = f"10.{record.range}.254"
    network.run_ip(
        ["nsenter", "-t", str(holder), "-n", "--", "ip", "-batch", "-"],
        f"link add br0 type bridge\naddr add 10.{record.range}.0.1/24 dev br0\nlink set br0 up\n",
    )
    launch = Launch(
        "way-out",
        ["slirp4netns", f"--cidr={wires}.0/24", "--configure", "--disable-host-loopback", str(holder), "tap0"],
        {"PATH": namespaces.SEARCH, **processes.marks(record.id, record.folder)},
        record.logs / "way-out.log",
    )
    running = processes.start(launch)
    processes.record(record.processes, running)
    routed = ["nsenter", "-t", str(holder), "-n", "--", "ip", "-4", "route", "show", "dev", "tap0"]

    def is_connected() -> bool:
        shown = subprocess.run(routed, capture_output=True, text=True, check=False).stdout
        return "default" in shown

    wait_running("there is a way out", is_connected, [running], 20.0)
    namespaces.run(holder, ["sh", "-c", f"{_SETTLE}\nip route del default via {network.gateway_address(record, 0)}"])


def write_keys(hosts: Sequence[Host]) -> None:
    """One pair of keys to log in with, one for each host to be known by, and what ssh must know about both."""
    first = hosts[0]
    folder = first.key.parent
    folder.mkdir(mode=0o700)
    known, config = [], []
    for name in ["key", *(host.name for host in hosts)]:
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"testbed-{name}", "-f", str(folder / name)]
        subprocess.run(command, check=True, capture_output=True)
    for host in hosts:
        known.append(f"{host.address} {(folder / f'{host.name}.pub').read_text()}")
        config.append(f"Host {host.name}\n  HostName {host.address}\n")
    config.append(
        f'Host *\n  User {rootfs.USER}\n  IdentityFile "{first.key}"\n  IdentitiesOnly yes\n  BatchMode yes\n'
        f'  UserKnownHostsFile "{folder / "known_hosts"}"\n  GlobalKnownHostsFile /dev/null\n  ConnectTimeout 10\n'
    )
    (folder / "known_hosts").write_text("".join(known))
    first.config.write_text("".join(config))


def own_files(record: Cluster, host: Host) -> dict[str, str]:
    """What this host has beyond the root file system that all share, by path."""
    login, identity = host.key.with_suffix(".pub"), host.key.parent / host.name
    settings = {
        "ADDRESS": host.address,
        "GATEWAY": f"10.{record.range}.0.1",
        "RANGE": f"10.{record.range}.0.0/16",
        "ROUTE": "no" if host.traits.no_route else "yes",
    }
    return {
        "etc/testbed/host": "".join(f"{name}={value}\n" for name, value in settings.items()),
        "etc/hostname": f"{host.name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n{host.address} {host.name}\n",
        # Without a way out nobody answers there.
        "etc/resolv.conf": f"nameserver 10.{record.range}.{'0.1' if host.traits.no_route else '254.3'}\n",
        "etc/ssh/ssh_host_ed25519_key": identity.read_text(),
        "etc/ssh/ssh_host_ed25519_key.pub": identity.with_suffix(".pub").read_text(),
        "root/.ssh/authorized_keys": login.read_text(),
        f"home/{rootfs.USER}/.ssh/authorized_keys": login.read_text(),
        **machine_files(Path("/proc/self/status").read_text()),
        **traits.files(host.traits, rootfs.USER),
    }


def machine_files(status: str) -> dict[str, str]:
    """What containerd needs to be told on a machine whose root may not protect a process from running out of memory.

    Every pod's first process asks for that protection. A configuration of one's own is to import this folder, as
    containerd's default one does.
    """
    capabilities = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:")), 16)
    if capabilities >> CAP_SYS_RESOURCE & 1:
        return {}
    setting = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\n  restrict_oom_score_adj = true\n'
    return {"etc/containerd/conf.d/testbed.toml": setting}


def write_files(record: Cluster, host: Host) -> None:
    for name, content in own_files(record, host).items():
        file = room_of(host) / "files" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    if host.traits.gpus:
        machine = int(host.name.removeprefix("host-")) + 1
        driver.write_host_files(room_of(host) / "files", host.traits.gpus, machine, has_driver=host.traits.has_driver)
    (room_of(host) / "files").chmod(0o700)


def nspawn_arguments(host: Host) -> list[str]:
    return [
        *(["setarch", "--uname-2.6"] if host.traits.old_kernel else []),
        "systemd-nspawn",
        f"--directory={room_of(host) / 'root'}",
        f"--machine={host.name}",
        f"--hostname={host.name}",
        "--network-bridge=br0",
        "--register=no",
        "--keep-unit",
        "--boot",
        "--capability=all",
        "--private-users=no",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--bind=/dev/kmsg",
        "--system-call-filter=add_key keyctl bpf @privileged @mount @module @raw-io",
    ]


def switch_on(record: Cluster, host: Host) -> Process:
    """Start the host (again): what is on its disk is still there."""
    holder = namespaces.holder_of(record, ROOM)
    if holder is None:
        raise TestbedError(f"the room of {host.name} is gone: python -m testbed hosts down --name {record.name}")
    group = f"{record.cgroup}/{host.name}"
    cgroups.make(group)
    # A host that was killed leaves its cable, and the next start would stumble over it.
    link = f"vb-{host.name}"
    namespaces.run(holder, ["sh", "-c", 'if ip link show "$1"; then ip link delete "$1"; fi 2>/dev/null', "sh", link])
    trees = cgroups.hierarchies()
    environment = {
        "PATH": namespaces.SEARCH,
        "TREES": " ".join(map(str, trees)),
        # The kubelet writes to /proc/sys and /sys.
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1",
        "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1" if trees == [cgroups.ROOT] else "0",
        **processes.marks(record.id, record.folder),
    }
    arguments = ["sh", "-c", _ENTER_GROUPS, "sh", group, *nspawn_arguments(host)]
    process = processes.start(Launch(host.name, arguments, environment, record.logs / f"{host.name}.log", holder))
    processes.record(record.processes, process)
    shape_link(host, holder, process)
    return process


def shape_link(host: Host, holder: int, process: Process) -> None:
    """Make what comes to the host as slow as it is asked to be; what leaves it is slowed on the host itself."""
    link = f"vb-{host.name}"
    outside = traits.link_commands(host.traits, link)
    if not outside:
        return
    seen = ["nsenter", "-t", str(holder), "-n", "--", "ip", "link", "show", link]
    is_there = lambda: subprocess.run(seen, capture_output=True, check=False).returncode == 0  # noqa: E731
    wait_running(f"{host.name} is connected", is_there, [process], 30.0)
    namespaces.run(holder, ["tc", "-batch", "-"], "\n".join(outside) + "\n")


def switch_off(record: Cluster, host: Host) -> None:
    """Shut the host down, as its power button would."""
    process = processes.recorded(record.processes).get(host.name)
    if process:
        processes.stop(process, grace_s=STOP_S)


def answers(host: Host) -> bool:
    done = subprocess.run(host.command("true"), capture_output=True, stdin=subprocess.DEVNULL, check=False)
    return done.returncode == 0
