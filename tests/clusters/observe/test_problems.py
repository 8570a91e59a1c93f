"""Every problem of a host has its message, its severity and a remedy; a good host has none."""

from __future__ import annotations

import msgspec
import pytest

from longboat.clusters.hosts.connection import HostUnreachable
from longboat.clusters.observe.facts import Disk, GpuDevice, HostFacts, HostProblem, Listener
from longboat.clusters.observe.problems import SEVERITIES, THIS_MACHINE, find_problems
from longboat.clusters.spec import ClusterSpec, HostSpec, Network, PackageRepository, SoftwareSource

GIB = 1 << 30
H200 = GpuDevice(bus="0000:01:00.0", device="0x2335")
GOOD = HostFacts(
    name="one", hostname="one", os_id="debian", os_version="12", architecture="amd64", kernel="6.1.0-25-amd64",
    package_manager="apt", init="systemd", cgroup_version=2, cpus=8, memory=32 * GIB, sudo="free",
    disks=(Disk(path="/", total=100 * GIB, free=60 * GIB),), listeners=(Listener(port=22, program="sshd"),),
    addresses=("10.0.0.5/24",), routes=("10.0.0.0/24",), source_address="10.0.0.5", has_route_out=True,
    machine_id="a", product_uuid="u-a", clock_s=1.7e9, loadable=("vxlan",), packages=(("nftables", "1.0.6"),),
)  # fmt: skip
SPEC = ClusterSpec(name="lab", hosts=(HostSpec(name="one", address="one", role="control-plane"),))


def with_(value, **changes):
    return msgspec.structs.replace(value, **changes)


def spec_of(host: HostSpec | None = None, **changes) -> ClusterSpec:
    return with_(SPEC, **changes, **({"hosts": (host,)} if host else {}))


def problems(spec: ClusterSpec = SPEC, **changes) -> list[HostProblem]:
    return find_problems(spec, [with_(GOOD, **changes)])


def only(found: list[HostProblem]) -> HostProblem:
    assert len(found) == 1, found
    assert found[0].severity in SEVERITIES and found[0].remedy and found[0].message
    return found[0]


def test_a_good_host_has_none() -> None:
    assert problems() == []


WORKER = spec_of(HostSpec(name="one", address="one"))
V1_ALLOWED = spec_of(kubelet=(("failCgroupV1", "false"),))
FILES = spec_of(source=SoftwareSource(kind="files", location="bundle"))
REPOSITORIES = (PackageRepository(url="http://mirror", key="k"),)
MIRROR = spec_of(source=SoftwareSource(repositories=REPOSITORIES, images="images.tar"))
SMALL = {"disks": (Disk(path="/", total=100 * GIB, free=60 * GIB), Disk(path="/var/lib", total=8 * GIB, free=2 * GIB))}
FULL = {"disks": (Disk(path="/", total=100 * GIB, free=9 * GIB),)}
PROXY = (("http_proxy", "http://proxy:3128"),)
DIRECT = (*PROXY, ("no_proxy", "localhost,10.0.0.0/8"))
DIRECT_SHORT = (*PROXY, ("no_proxy", "localhost,10.244.0.0/16"))
GPUS = spec_of(addons=("gpu",))
FLANNEL = spec_of(network=Network(kind="flannel"))


@pytest.mark.parametrize(
    ("spec", "changes", "check", "severity", "message"),
    [
        (SPEC, {"sudo": "none", "sudo_message": "not in the sudoers file"}, "sudo", "error", "no way to root: not in"),
        (SPEC, {"sudo": "asks"}, "sudo", "error", "no way to root"),
        (SPEC, {"sudo": "asks", "init": "", "cgroup_version": 0}, "sudo", "error", "no way to root"),
        (SPEC, {"init": "runit"}, "systemd", "error", "process 1 is runit"),
        (SPEC, {"package_manager": "zypper", "os_id": "sles"}, "packages", "error", "sles 12 has zypper"),
        (SPEC, {"package_manager": "", "os_id": "", "os_version": ""}, "packages", "error", "this system has none"),
        (SPEC, {"architecture": "riscv64"}, "architecture", "error", "riscv64"),
        (SPEC, {"kernel": "5.10.0-28-amd64"}, "kernel", "error", "5.10.0-28-amd64 is too old; 5.13"),
        (SPEC, {"cgroup_version": 1}, "cgroup", "error", "of version 1; Kubernetes 1.36"),
        (SPEC, {"cgroup_version": 0}, "cgroup", "error", "unknown version"),
        (V1_ALLOWED, {"cgroup_version": 1}, "cgroup", "warning", "of version 1"),
        (SPEC, {"swaps": ("/dev/sda2",), "fstab_swaps": ("UUID=1",)}, "swap", "repair", "swap is in use: /dev/sda2"),
        (SPEC, {"fstab_swaps": ("UUID=1",)}, "swap", "repair", "comes back with the next boot: UUID=1"),
        (SPEC, SMALL, "disk", "error", "/var/lib has 2.0 of 8.0 GiB free"),
        (SPEC, FULL, "disk", "warning", "/ has 9.0 of 100.0 GiB free: below 15%"),
        (SPEC, {"memory": 1 * GIB}, "memory", "error", "1024 MiB of memory"),
        (WORKER, {"memory": 1 * GIB}, "memory", "warning", "1024 MiB of memory"),
        (SPEC, {"cpus": 1}, "cpu", "error", "1 CPU; a control plane wants 2"),
        (SPEC, {"listeners": (Listener(port=6443, program="nginx"),)}, "port", "error", "6443 is taken by nginx"),
        (WORKER, {"listeners": (Listener(port=10250),)}, "port", "error", "10250 is taken by another program"),
        (SPEC, {"cluster": "k3s", "listeners": (Listener(port=6443),)}, "cluster", "error", "a node of k3s"),
        (SPEC, {"cluster": "kubeadm", "cluster_server": "https://x:6443"}, "cluster", "error", "of https://x:6443"),
        (SPEC, {"cluster": "leftovers"}, "cluster", "error", "leftovers of a cluster"),
        (SPEC, {"cluster": "\x1b[31m"}, "cluster", "error", "leftovers of a cluster"),
        (SPEC, {"journal_cluster": "other", "cluster": "kubeadm"}, "cluster", "error", "belongs to the cluster other"),
        (SPEC, {"cri_disabled": True}, "containerd", "repair", "disabled_plugins: cri"),
        (WORKER, {"firewall": "ufw"}, "firewall", "error", "ufw lets nothing through to 10250/tcp, 30000:32767/tcp"),
        (with_(WORKER, firewall="open"), {"firewall": "firewalld"}, "firewall", "repair", "firewalld lets nothing"),
        (with_(WORKER, firewall="open"), {"firewall": "nftables"}, "firewall", "repair", "nftables lets nothing"),
        (WORKER, {"firewall": "iptables"}, "firewall", "error", "iptables lets nothing through to 10250/tcp"),
        (SPEC, {"firewall": "nftables", "open_ports": ("Anywhere",), "forwarded": ("10.9.0.0/16",)},
         "firewall", "error", "nftables forwards nothing for pods, 10.244.0.0/16"),
        (with_(SPEC, kind="local"), {"firewall": "ufw"}, "firewall", "error", "ufw lets nothing through to 6443/tcp"),
        (FLANNEL, {"firewall": "ufw", "open_ports": ("1:65535/tcp",)}, "firewall", "error", "through to 8472/udp"),
        (SPEC, {"proxies": PROXY}, "proxy", "warning", "leaves out 10.244.0.0/16, 10.96.0.0/12, 10.0.0.5"),
        (SPEC, {"proxies": DIRECT_SHORT}, "proxy", "warning", "leaves out 10.96.0.0/12, 10.0.0.5"),
        (SPEC, {"has_route_out": False}, "route", "error", "no route out"),
        (SPEC, {"routes": ("10.244.0.0/24",)}, "range", "error", "to 10.244.0.0/24, which overlaps network.pods"),
        (SPEC, {"addresses": ("10.0.0.5/24", "10.100.0.1/8")}, "range", "error", "connected to 10.0.0.0/8"),
        (spec_of(HostSpec(name="one", address="one", gpu="yes")), {}, "gpu", "error", "no NVIDIA device"),
        (SPEC, {"gpus": (H200,)}, "driver", "warning", "1 NVIDIA device without a driver"),
        (spec_of(addons=("gpu",)), {"gpus": (H200, H200)}, "driver", "repair", "2 NVIDIA devices without"),
        (spec_of(addons=("gpu",), driver="keep"), {"gpus": (H200,)}, "driver", "error", "1 NVIDIA device without"),
        (spec_of(addons=("gpu",)), {"driver": "570.1", "nvswitch": True}, "fabric", "repair", "NVSwitch"),
        (GPUS, {"driver": "1.1", "programs": (("nvidia-ctk", "1.14.3"),)}, "toolkit", "error", "too old"),
        (with_(FILES, addons=("gpu",)), {"driver": "1.1"}, "toolkit", "error", "nvidia-container-toolkit is missing"),
        (SPEC, {"gpus": (H200,), "modules": ("nouveau",)}, "driver", "warning", "nouveau holds them"),
        (SPEC, {"gpus": (H200,), "driver": "570.1", "nvswitch": True}, "fabric", "warning", "NVSwitch"),
        (SPEC, {"skew_s": 5.0}, "clock", "warning", "5 s ahead of this machine's"),
        (SPEC, {"skew_s": -3600.0}, "clock", "error", "3600 s behind this machine's"),
    ],
)  # fmt: skip
def test_one_thing_is_wrong(spec: ClusterSpec, changes: dict, check: str, severity: str, message: str) -> None:
    found = problems(spec, **changes)
    if check == "range" and len(found) == 2:  # a route of 10.0.0.0/8 overlaps both ranges
        assert {item.check for item in found} == {"range"}
        found = found[:1]
    problem = only(found)
    assert (problem.host, problem.check, problem.severity) == ("one", check, severity)
    assert message in problem.message


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (FILES, {"package_manager": "", "has_route_out": False}),
        (MIRROR, {"has_route_out": False}),
        (SPEC, {"has_route_out": False, "proxies": (*DIRECT,)}),
        (SPEC, {"proxies": DIRECT}),
        (SPEC, {"journal_cluster": "lab", "cluster": "kubeadm", "listeners": (Listener(port=6443),)}),
        (SPEC, {"journal_cluster": "lab", "routes": ("10.244.1.0/24",), "cri_disabled": True}),
        (SPEC, {"skew_s": 1.9}),
        (WORKER, {"listeners": (Listener(port=6443), Listener(port=2379)), "cpus": 1}),
        (with_(SPEC, firewall="ignore"), {"firewall": "ufw"}),
        (WORKER, {"firewall": "firewalld", "open_ports": ("ssh", "kube-worker")}),
        (SPEC, {"firewall": "ufw", "open_ports": ("22/tcp", "Anywhere")}),
        (WORKER, {"firewall": "nftables", "open_ports": ("10250/tcp", "30000:32767/tcp")}),
        (with_(SPEC, kind="local"), {"firewall": "nftables", "open_ports": ("6443/tcp",)}),
        (SPEC, {"firewall": "nftables", "open_ports": ("Anywhere",), "forwarded": ("10.0.0.0/8",)}),
        (spec_of(HostSpec(name="one", address="one", gpu="no")), {"gpus": (H200,)}),
        (SPEC, {"gpus": (H200,), "driver": "570.1", "nvswitch": True, "units": (("nvidia-fabricmanager", "active"),)}),
        (spec_of(HostSpec(name="one", address="one", gpu="yes")), {"driver": "570.1"}),
        (spec_of(addons=("gpu",)), {"driver": "1.1", "programs": (("nvidia-ctk", "1.18.0"),)}),
    ],
)
def test_what_is_no_problem(spec: ClusterSpec, changes: dict) -> None:
    assert problems(spec, **changes) == []


def test_secure_boot_is_said_with_the_driver_that_is_missing() -> None:
    found = problems(gpus=(H200,), secure_boot=True)
    assert [item.check for item in found] == ["driver", "secure-boot"]


def test_a_name_that_no_node_can_have() -> None:
    bad = HostSpec(name="Node_1", address="x", role="control-plane")
    problem = only(find_problems(spec_of(bad), [with_(GOOD, name="Node_1")]))
    assert (problem.check, problem.message) == ("name", "'Node_1' cannot be the name of a node")


def several(count: int = 3, **changes) -> tuple[ClusterSpec, list[HostFacts]]:
    names = [f"h{number}" for number in range(count)]
    spec = with_(SPEC, hosts=tuple(HostSpec(name=name, address=name) for name in names), **changes)
    facts = [
        with_(
            GOOD, name=name, hostname=name, machine_id=name, product_uuid=name,
            addresses=(f"10.0.0.{number}/24",), source_address=f"10.0.0.{number}",
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    return spec, facts


def test_copies_of_a_machine() -> None:
    spec, facts = several()
    assert find_problems(spec, facts) == []
    facts[2] = with_(facts[2], machine_id="h0", product_uuid="h0", hostname="h0")
    found = find_problems(spec, facts)
    assert [(item.host, item.check, item.severity) for item in found] == [
        ("h2", "twin", "error"), ("h2", "twin", "warning"), ("h2", "twin", "warning")
    ]  # fmt: skip
    assert "the same machine-id as h0" in found[0].message
    blank = [with_(host, machine_id="", product_uuid="", hostname="") for host in facts]
    assert find_problems(spec, blank) == []


def test_clocks_are_compared_with_each_other() -> None:
    spec, facts = several()
    facts[1] = with_(facts[1], skew_s=-90.0)
    assert "90 s behind the other hosts'" in only(find_problems(spec, facts)).message
    late = [with_(host, skew_s=30.0) for host in facts]
    problem = only(find_problems(spec, late))
    assert (problem.host, problem.severity) == (THIS_MACHINE, "warning")
    assert "30 s behind the hosts'" in problem.message


def test_a_virtual_ip_is_of_the_nodes_subnet_and_nobodys() -> None:
    assert problems(spec_of(vip="10.0.0.9")) == []
    assert "10.1.0.9 is not" in only(problems(spec_of(vip="10.1.0.9"))).message
    taken = only(problems(spec_of(vip="10.0.0.9"), addresses=("10.0.0.5/24", "10.0.0.9/24")))
    assert "it has the address 10.0.0.9 itself" in taken.message
    ours = {"addresses": ("10.0.0.5/24", "10.0.0.9/32"), "journal_cluster": "lab"}
    assert problems(spec_of(vip="10.0.0.9"), **ours) == []
    assert problems(with_(WORKER, vip="10.1.0.9")) == []
    worker = only(problems(with_(WORKER, vip="10.0.0.9"), addresses=("10.0.0.9/24",), source_address="10.0.0.9"))
    assert "it has the address 10.0.0.9 itself" in worker.message
    for nobody in ("10.0.0.0", "10.0.0.255"):
        assert f"{nobody} is no address of a host in 10.0.0.0/24" in only(problems(spec_of(vip=nobody))).message


def test_routes_need_one_link() -> None:
    spec, facts = several()
    facts[1] = with_(facts[1], addresses=("10.0.1.7/24",), source_address="10.0.1.7")
    problem = only(find_problems(spec, facts))
    assert (problem.host, problem.check) == ("h1", "link")
    assert problem.message == "it is on 10.0.1.0/24, and h0, h2 elsewhere; network: routes needs one subnet"
    assert "flannel" in problem.remedy
    assert find_problems(with_(spec, network=Network(kind="flannel")), facts) == []


def test_hosts_that_were_not_reached_and_the_order() -> None:
    spec, facts = several()
    facts[0] = with_(facts[0], swaps=("/swap",), init="runit")
    unreached = HostUnreachable("h2", "nothing answers at h2", hint="is sshd running there?")
    found = find_problems(spec, facts[:2], {"h2": unreached})
    assert [(item.host, item.check) for item in found] == [("h0", "systemd"), ("h0", "swap"), ("h2", "connection")]
    assert (found[2].message, found[2].remedy) == ("nothing answers at h2", "is sshd running there?")


def test_only_debian_and_ubuntu_have_a_driver_of_their_own() -> None:
    rocky = {"gpus": (H200,), "package_manager": "dnf", "os_id": "rocky"}
    found = problems(spec_of(addons=("gpu",), driver="distribution"), **rocky)
    assert [(item.check, item.severity) for item in found] == [("driver", "error"), ("driver", "repair")]
    assert [item.severity for item in problems(spec_of(addons=("gpu",)), **rocky)] == ["repair"]
