"""What can be wrong with a host, by name: `slow`, `disk=2G`, or `1:no-route` for host 1 alone. Pure.

no-route          the way out is missing; the other hosts and this machine are reached
slow[=RATE]       a link of this rate (1mbit)
delay[=TIME]      a link that delays every packet, each way (100ms); the kernel must have netem
clock[=OFFSET]    the clock is off (+1h), for every program that asks the C library
disk[=SIZE]       the disk is small (1G)
old-containerd    a configuration of containerd 1 that switches Kubernetes' part off
full-disk[=FREE]  a small disk on which no more than this is free (16M)
swap              a line for swap in /etc/fstab
busy-port=PORT    somebody listens there already
junk              old-containerd, swap and busy ports 6443 and 10250
leftover-cluster  files of a control plane that was never reset
no-sudo           the user may not become root
sudo-password[=P] sudo asks for a password (testbed)
firewall          all that comes in is dropped, except SSH and ping
old-kernel        uname says 2.6: the kernel's own personality for old programs (setarch --uname-2.6), no other kernel
gpus[=COUNT]      GPUs (8) of a stand-in driver: nvidia-smi, libraries, device files, what the kernel shows of them
ubuntu            Ubuntu in place of Debian
no-driver         the GPUs are on the PCI bus and nothing else of them is there
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from testbed.errors import TestbedError

_UNITS = {"s": 1, "m": 60, "h": 3600}
_VALUES = {
    "slow": (r"[1-9][0-9]*[kmg]?bit", "1mbit"),
    "delay": (r"[1-9][0-9]*ms", "100ms"),
    "clock": (r"[+-][1-9][0-9]*[smh]", "+1h"),
    "disk": (r"[1-9][0-9]*[MG]", "1G"),
    "busy-port": (r"[1-9][0-9]{0,4}", ""),
    "gpus": (r"[1-9]|[1-5][0-9]|6[0-4]", "8"),
    "full-disk": (r"[1-9][0-9]*[MG]", "16M"),
    "sudo-password": (r"[a-z0-9]{4,32}", "testbed"),
}
# systemd's own programs wait for several things at once in a way that the false clock breaks.
_TRUE_CLOCK = (
    "systemd-logind", "systemd-journald", "systemd-hostnamed", "systemd-timedated", "systemd-localed", "systemd-run",
    "systemctl", "journalctl", "loginctl", "machinectl", "busctl", "systemd",
)  # fmt: skip
FLAGS = (
    "no-route", "old-containerd", "swap", "junk", "leftover-cluster", "no-sudo", "firewall", "old-kernel",
    "no-driver", "ubuntu",
)  # fmt: skip
_FIELDS = (
    "no-route", "leftover-cluster", "no-sudo", "firewall", "old-kernel", "ubuntu", "slow", "delay", "sudo-password",
)  # fmt: skip
NAMES = (*FLAGS, *_VALUES)
JUNK_PORTS = (6443, 10250)
SMALLEST_DISK = 64 << 20
FULL_DISK = 1 << 30
FIREWALL = """flush ruleset
table inet filter {
    chain input {
        type filter hook input priority filter; policy drop;
        iifname "lo" accept
        ct state established,related accept
        tcp dport 22 accept
        meta l4proto { icmp, ipv6-icmp } accept
    }
}
"""
_KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: kubernetes, cluster: {server: "https://192.0.2.10:6443"}}]
users: [{name: admin, user: {}}]
contexts: [{name: admin, context: {cluster: kubernetes, user: admin}}]
current-context: admin
"""
_STATIC_POD = """apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec: {containers: [{name: kube-apiserver, image: "registry.k8s.io/kube-apiserver:v1.29.0"}], hostNetwork: true}
"""
LEFTOVER = {
    "etc/kubernetes/admin.conf": _KUBECONFIG,
    "etc/kubernetes/kubelet.conf": _KUBECONFIG,
    "etc/kubernetes/manifests/kube-apiserver.yaml": _STATIC_POD,
    "etc/kubernetes/pki/ca.crt": "the certificate of a cluster that is gone\n",
    "etc/cni/net.d/10-leftover.conflist": '{"cniVersion": "1.0.0", "name": "leftover", "plugins": [{"type": "ptp"}]}\n',
    "var/lib/kubelet/config.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
    "var/lib/etcd/member/snap/db": "",
}
"""What `kubeadm init` leaves and nobody reset."""


@dataclass(frozen=True)
class Traits:
    """All that is wrong, or special, with one host."""

    no_route: bool = False
    slow: str = ""
    delay: str = ""
    clock_s: int = 0
    disk_bytes: int = 0
    old_containerd: bool = False
    swap: bool = False
    busy_ports: tuple[int, ...] = ()
    gpus: int = 0
    has_driver: bool = True
    free_bytes: int = 0
    """No more than this is free, if not 0."""
    leftover_cluster: bool = False
    no_sudo: bool = False
    sudo_password: str = ""
    firewall: bool = False
    old_kernel: bool = False
    ubuntu: bool = False


def combine(wanted: Sequence[str], count: int) -> list[Traits]:
    """The traits of each of `count` hosts."""
    hosts = [Traits() for _ in range(count)]
    for text in wanted:
        chosen, name, value = parse(text)
        if chosen is not None and chosen >= count:
            raise TestbedError(f"{text!r}: there are {count} hosts, from 0 to {count - 1}")
        for number in range(count) if chosen is None else [chosen]:
            hosts[number] = add(hosts[number], name, value)
    return hosts


def parse(text: str) -> tuple[int | None, str, str]:
    """The host's number (none for all of them), the trait's name and its value."""
    match = re.fullmatch(r"(?:([0-9]{1,3}):)?([a-z-]+)(?:=(.*))?", text)
    if match is None or match[2] not in NAMES:
        raise TestbedError(f"{text!r} is no trait of a host; there are {', '.join(NAMES)}")
    pattern, usual = _VALUES.get(match[2], ("", ""))
    value = usual if match[3] is None else match[3]
    if not re.fullmatch(pattern, value) or (match[2] in FLAGS and match[3] is not None):
        raise TestbedError(f"{text!r}: {value!r} is no value of {match[2]}" + (f", {usual} is" if usual else ""))
    return (None if match[1] is None else int(match[1])), match[2], value


def add(traits: Traits, name: str, value: str) -> Traits:
    if name in _FIELDS:
        named: dict[str, Any] = {name.replace("-", "_"): value or True}
        return replace(traits, **named)
    if name == "clock":
        return replace(traits, clock_s=int(value[:-1]) * _UNITS[value[-1]])
    if name == "disk":
        return replace(traits, disk_bytes=checked_disk(value))
    if name == "gpus":
        return replace(traits, gpus=int(value))
    if name == "no-driver":
        return replace(traits, has_driver=False, gpus=traits.gpus or int(_VALUES["gpus"][1]))
    if name == "full-disk":
        return replace(traits, disk_bytes=traits.disk_bytes or FULL_DISK, free_bytes=parsed_size(value))
    ports = {"busy-port": (checked_port(value),) if value else (), "junk": JUNK_PORTS}.get(name, ())
    return replace(
        traits,
        old_containerd=traits.old_containerd or name in ("old-containerd", "junk"),
        swap=traits.swap or name in ("swap", "junk"),
        busy_ports=tuple(dict.fromkeys((*traits.busy_ports, *ports))),
    )


def parsed_size(value: str) -> int:
    return int(value[:-1]) << {"M": 20, "G": 30}[value[-1]]


def checked_disk(value: str) -> int:
    size = parsed_size(value)
    if size < SMALLEST_DISK:
        raise TestbedError(f"a disk of {value} is too small to start from; {SMALLEST_DISK >> 20}M is not")
    return size


def checked_port(value: str) -> int:
    port = int(value)
    if port > 65535 or port == 22:
        raise TestbedError(f"port {port} cannot be made busy")
    return port


def files(traits: Traits, user: str) -> dict[str, str]:
    """Files to put on the host, by path."""
    contents = dict(LEFTOVER) if traits.leftover_cluster else {}
    if traits.no_sudo or traits.sudo_password:
        contents[f"etc/sudoers.d/{user}"] = "# nobody\n" if traits.no_sudo else f"{user} ALL=(ALL) ALL\n"
    if traits.firewall:
        contents["etc/nftables.conf"] = FIREWALL
        contents["etc/systemd/system/multi-user.target.d/firewall.conf"] = "[Unit]\nWants=nftables.service\n"
    if traits.old_containerd:
        contents["etc/containerd/config.toml"] = (
            'version = 2\ndisabled_plugins = ["cri"]\nroot = "/var/lib/containerd"\n'
        )
    if traits.swap:
        contents["etc/fstab"] = "/swap.img none swap sw 0 0\n"
    if traits.clock_s:
        contents.update(clock_files(traits.clock_s))
    if traits.slow or traits.delay:
        contents["etc/testbed/link"] = "\n".join(link_commands(traits, "host0")) + "\n"
    for port in traits.busy_ports:
        unit = f"[Service]\nExecStart=/usr/bin/python3 -m http.server {port}\n"
        contents[f"etc/systemd/system/busy-{port}.service"] = unit
        contents[f"etc/systemd/system/multi-user.target.d/busy-{port}.conf"] = f"[Unit]\nWants=busy-{port}.service\n"
    return contents


def clock_files(offset_s: int) -> dict[str, str]:
    """There is one clock for all that run on a kernel; a library between programs and the C library tells another time.

    What runs on a host has its environment from systemd, from the login that started it, or from sudo.
    """
    settings = {
        "LD_PRELOAD": "/usr/$LIB/faketime/libfaketime.so.1",
        "FAKETIME": f"{offset_s:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_SKIP_CMDS": ",".join(_TRUE_CLOCK),
    }
    pairs = [f"{name}={value}" for name, value in settings.items()]
    return {
        "etc/environment": "\n".join(pairs) + "\n",
        "etc/sudoers.d/clock": "Defaults env_file=/etc/environment\n",
        "etc/systemd/system.conf.d/clock.conf": f"[Manager]\nDefaultEnvironment={' '.join(pairs)}\n",
    }


def link_commands(traits: Traits, link: str) -> list[str]:
    """What `tc` must be told about one end of the host's cable."""
    commands = []
    if traits.delay:
        commands.append(f"qdisc add dev {link} root handle 1: netem delay {traits.delay}")
    if traits.slow:
        below = "parent 1:" if traits.delay else "root"
        commands.append(f"qdisc add dev {link} {below} handle 2: tbf rate {traits.slow} burst 32kb latency 400ms")
    return commands
