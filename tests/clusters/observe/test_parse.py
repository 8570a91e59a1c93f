"""Facts out of what hosts print, however strange."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.clusters.hosts.local import LocalConnection
from longboat.clusters.observe import probe_shell
from longboat.clusters.observe.facts import SYSCTLS, Disk, GpuDevice, HostFacts, Listener
from longboat.clusters.observe.parse import parse, skew
from longboat.clusters.observe.problems import find_problems
from longboat.clusters.spec import ClusterSpec, HostSpec

ROCKY = """clock\t1700000000.500000000
hostname\tgpu-7
kernel\t5.14.0-362.el9.x86_64
architecture\tx86_64
os\tID="rocky"
os\tID_LIKE="rhel centos fedora"
os\tVERSION_ID="9.3"
package_manager\tdnf
init\tsystemd
container\tnone
cgroup\tcgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0
cpus\t128
memory\tMemTotal:       1056442112 kB
disk\t/ /dev/mapper/r l-root 73364480 12000000 61364480 17% /
disk\t/var /dev/mapper/r l-root 73364480 12000000 61364480 17% /
disk\t/var/lib /dev/nvme1n1 900000000 100000 899900000 1% /var/lib
swap\t/dev/dm-1 partition 32964604 0 -2
fstab\t# /dev/sdb none swap sw 0 0
fstab\t/dev/mapper/rl-swap none                    swap    defaults        0 0
fstab\t/dev/mapper/rl-root /  xfs defaults 0 0
machine_id\t0123456789abcdef
product_uuid\t4C4C4544-0031
secure_boot\t   1
listener\tState  Recv-Q Send-Q Local Address:Port Peer Address:PortProcess
listener\tLISTEN 0      128          0.0.0.0:22        0.0.0.0:*    users:(("sshd",pid=1100,fd=3))
listener\tLISTEN 0      4096       127.0.0.1:10248    0.0.0.0:*    users:(("kubelet",pid=9,fd=1))
listener\tLISTEN 0      128             [::]:22           [::]:*    users:(("sshd",pid=1100,fd=4))
address\t1: lo    inet 127.0.0.1/8 scope host lo
address\t2: eno1    inet 10.1.2.3/22 brd 10.1.3.255 scope global dynamic eno1
address\t2: eno1    inet6 fe80::1/64 scope link
address\t2: eno1    inet6 2001:db8::7/64 scope global
address\t4: docker0    inet 172.17.0.1/16 scope global docker0
route\tdefault via 10.1.0.1 dev eno1 proto dhcp
route\t10.1.0.0/22 dev eno1 proto kernel scope link src 10.1.2.3
route\t172.17.0.0/16 dev docker0
route\tfe80::/64 dev eno1 proto kernel
source\t198.51.100.1 via 10.1.0.1 dev eno1 src 10.1.2.3 uid 0
proxy\thttps_proxy=http://proxy.example:3128
proxy\texport HTTP_PROXY="http://me:secret@proxy.example:3128"
firewall\tfirewalld
opened\t6443/tcp
opened\t30000-32767/tcp
opened\tssh
opened\trule family="ipv4" source address="10.244.0.0/16" port port="7443" protocol="tcp" accept
opened\trule family="ipv4" source address="10.9.0.0/16" port port="9443" protocol="tcp" reject
program\tcontainerd containerd github.com/containerd/containerd/v2 v2.1.0 061792f0ecf3684fb
program\tkubelet Kubernetes v1.36.4
program\tnvidia-smi 570.124.06
program\tdocker
package\tcontainerd.io 2.1.0-3.1.el9 installed
package\tpackage socat is not installed
unit\tId=containerd.service
unit\tLoadState=loaded
unit\tActiveState=active
unit\t
unit\tId=kubelet.service
unit\tLoadState=not-found
unit\tActiveState=inactive
sysctl\tnet/ipv4/ip_forward 1
module\toverlay
module\tnvidia
file\te3b0c442  /etc/fstab
cri_disabled\tyes
image\tregistry.k8s.io/pause:3.10
image\tsha256:aabb
cluster\tkubeadm
server\t    server: https://10.1.2.3:6443
journal_cluster\tlab
journal\t0001-swap
journal\t0002-file-aa
done\tswap 6f
pci\t0000:1b:00.0 0x2335 0x030200
pci\t0000:05:00.0 0x22a3 0x068000
pci\t0000:1b:00.1 0x22ba 0x040300
clock\t1700000001.500000000
"""


def test_a_rocky_machine_with_gpus() -> None:
    facts = parse("g7", ROCKY, sent_s=1_699_999_000.0, received_s=1_699_999_002.0)
    expected = HostFacts(
        name="g7", hostname="gpu-7", os_id="rocky", os_like=("rhel", "centos", "fedora"), os_version="9.3",
        architecture="amd64", kernel="5.14.0-362.el9.x86_64", package_manager="dnf", init="systemd", cgroup_version=2,
        cpus=128, memory=1056442112 << 10,
        disks=(Disk(path="/", total=73364480 << 10, free=61364480 << 10),
               Disk(path="/var/lib", total=900000000 << 10, free=899900000 << 10)),
        swaps=("/dev/dm-1",), fstab_swaps=("/dev/mapper/rl-swap",),
        listeners=(Listener(port=22, program="sshd"), Listener(port=10248, program="kubelet")),
        addresses=("10.1.2.3/22", "2001:db8::7/64"), routes=("10.1.0.0/22", "172.17.0.0/16"),
        source_address="10.1.2.3", has_route_out=True, machine_id="0123456789abcdef", product_uuid="4c4c4544-0031",
        clock_s=1_700_000_001.0, skew_s=999.5, firewall="firewalld",
        open_ports=("6443/tcp", "30000:32767/tcp", "ssh", "7443/tcp"),
        proxies=(("https_proxy", "http://proxy.example:3128"), ("http_proxy", "http://proxy.example:3128")),
        programs=(("containerd", "2.1.0"), ("kubelet", "1.36.4"), ("nvidia-smi", "570.124.06"), ("docker", "unknown")),
        packages=(("containerd.io", "2.1.0-3.1.el9"),), units=(("containerd", "active"),),
        sysctls=(("net.ipv4.ip_forward", "1"),), modules=("overlay", "nvidia"), files=(("/etc/fstab", "e3b0c442"),),
        images=("registry.k8s.io/pause:3.10",), cri_disabled=True, cluster="kubeadm",
        cluster_server="https://10.1.2.3:6443", journal_cluster="lab", journal=("0001-swap", "0002-file-aa"),
        done=(("swap", "6f"),), gpus=(GpuDevice(bus="0000:1b:00.0", device="0x2335"),), nvswitch=True,
        driver="570.124.06", secure_boot=True,
    )  # fmt: skip
    for field in HostFacts.__struct_fields__:
        assert getattr(facts, field) == getattr(expected, field), field
    assert "secret" not in str(facts)


def test_a_host_without_ss_date_and_names() -> None:
    facts = parse(
        "old",
        "clock\t1700000000.%N\nsocket\t  0: 00000000:192B 00000000:0000 0A 00000000\n"
        "socket\t  1: 0100007F:0CEA 0200007F:0050 01 0\nsocket\t  sl  local_address rem_address   st\n"
        "cgroup\ttmpfs /sys/fs/cgroup tmpfs ro 0 0\nnft\tclosed input inet filter in\n"
        "nft\trule input tcp dport { 22, 10250 } accept\n"
        "nft\trule any udp dport 30000-32767 accept\nleftover\t/etc/kubernetes/pki\n"
        "clock\t1700000000.%N\n",
    )
    assert facts.listeners == (Listener(port=6443),)
    assert (facts.cgroup_version, facts.cluster, facts.firewall) == (1, "leftovers", "nftables")
    assert facts.open_ports == ("22/tcp", "10250/tcp", "30000:32767/udp")
    assert facts.clock_s == 1700000000.0


def test_ufw_and_terminal_escapes() -> None:
    rules = "opened\tStatus: active\nopened\t6443/tcp       ALLOW   10.0.0.0/8\nopened\t22   DENY  Anywhere\n"
    rules += "opened\t10250/tcp   ALLOW OUT   Anywhere\nopened\t2379:2380/tcp   ALLOW FWD   Anywhere\n"
    rules += "opened\t10250/tcp (v6)   ALLOW   Anywhere (v6)\n"
    facts = parse("u", f"firewall\tufw\n{rules}hostname\tevil\x1b[2J\x07name\n")
    assert facts.open_ports == ("6443/tcp",)
    assert facts.hostname == "evil [2J name"


# As firewall-cmd 1.3.3 prints them.
ZONES = "zone\tdefault public\nzone\tpublic\nzone\t  interfaces: eth0\n"
ZONES += "zone\t{}\nzone\t  sources: 10.244.0.0/16 10.9.0.0/24\n"
POLICIES = "".join(
    f"policy\t{name} (active)\npolicy\t  priority: -1\npolicy\t  target: {target}\npolicy\t  ingress-zones: {come}\n"
    f"policy\t  egress-zones: {go}\npolicy\t  rich rules: \npolicy\t\trule accept\npolicy\t\n"
    for name, target, come, go in (
        ("allow-host-ipv6", "CONTINUE", "ANY", "HOST"),
        ("in", "ACCEPT", "ANY", "pods"),
        ("out", "ACCEPT", "pods", "ANY"),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ZONES.format("pods") + POLICIES, ("10.244.0.0/16", "10.9.0.0/24")),
        (ZONES.format("pods") + POLICIES.replace("ACCEPT", "CONTINUE"), ()),
        (ZONES.format("pods"), ()),
        # Its packets go everywhere, and nobody's go to it.
        (ZONES.format("trusted") + POLICIES, ()),
        (ZONES.format("trusted") + POLICIES.replace("pods", "trusted", 1), ("10.244.0.0/16", "10.9.0.0/24")),
        ("zone\tdefault trusted\n", None),
        ("zone\tdefault public\nzone\t  lost: field\npolicy\t  target: ACCEPT\npolicy\tx\nzone\t \n", ()),
        ("zone\tdefault \n", ()),
    ],
)
def test_firewalld_forwards_for_zones_that_policies_let_through(text: str, expected: tuple[str, ...] | None) -> None:
    assert parse("f", f"firewall\tfirewalld\nopened\tssh\n{text}").forwarded == expected


@pytest.mark.parametrize(
    ("start", "end", "sent", "received", "expected"),
    [
        (100.0, 101.0, 99.0, 102.0, 0.0),  # it may be right
        (110.0, 111.0, 99.0, 102.0, 9.0),  # at least so much ahead
        (90.0, 91.0, 99.0, 102.0, -9.0),
        (100.0, 100.5, 100.0, 100.5, 0.0),
    ],
)
def test_skew_is_what_the_round_trip_cannot_explain(
    start: float, end: float, sent: float, received: float, expected: float
) -> None:
    assert skew(start, end, sent, received) == expected


KEYS = sorted({line.partition("\t")[0] for line in ROCKY.splitlines()} | {"nft", "iptables", "socket", "leftover"})
values = st.one_of(st.text(max_size=60), st.sampled_from([line.partition("\t")[2] for line in ROCKY.splitlines()]))


@given(st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=60), st.text(max_size=50))
def test_any_output_gives_facts_and_problems(lines: list[tuple[str, str]], garbage: str) -> None:
    text = "\n".join([f"{key}\t{value}" for key, value in lines] + [garbage])
    facts = parse("h", text)
    assert msgspec.json.decode(msgspec.json.encode(facts), type=HostFacts) == facts
    find_problems(ClusterSpec(name="lab", hosts=(HostSpec(name="h", address="h"),)), [facts, facts])


def sysctl(name: str) -> str | None:
    file = Path("/proc/sys", *name.split("."))
    return file.read_text().strip() if file.exists() else None


def test_the_script_runs_in_a_plain_shell_and_without_programs() -> None:
    here = LocalConnection("here")
    facts = parse("here", here.run(probe_shell.script(), as_root=False, timeout_s=300).stdout)
    assert facts.kernel and facts.hostname and facts.cpus and facts.memory and facts.disks and facts.clock_s
    assert dict(facts.sysctls) == {name: text for name in SYSCTLS if (text := sysctl(name)) is not None}
    bare = "hide() { :; }; command() { return 1; }; ip() { return 127; }; systemctl() { return 127; }\n"
    sparse = parse("here", here.run(bare + probe_shell.script(), as_root=False, timeout_s=300).stdout)
    assert (sparse.kernel, sparse.cpus, sparse.programs, sparse.package_manager) == (facts.kernel, facts.cpus, (), "")
