"""What is wrong with which host, and what that makes of its files."""

from __future__ import annotations

import pytest

from testbed import traits
from testbed.errors import TestbedError
from testbed.traits import Traits


def test_traits_are_for_all_hosts_or_for_one() -> None:
    assert traits.combine([], 2) == [Traits(), Traits()]
    assert traits.combine(["slow", "1:disk=2G", "1:clock=-30m"], 2) == [
        Traits(slow="1mbit"),
        Traits(slow="1mbit", disk_bytes=2 << 30, clock_s=-1800),
    ]
    junk = Traits(old_containerd=True, swap=True, busy_ports=(6443, 10250))
    assert traits.combine(["junk", "busy-port=6443"], 1) == [junk]
    assert traits.combine(["gpus", "1:gpus=2", "1:no-driver"], 2) == [Traits(gpus=8), Traits(gpus=2, has_driver=False)]
    assert traits.combine(["no-driver"], 1) == [Traits(gpus=8, has_driver=False)]
    assert traits.combine(["no-route", "delay=20ms"], 1) == [Traits(no_route=True, delay="20ms")]


@pytest.mark.parametrize(
    "text",
    ["nosuch", "2:slow", "slow=1mbit;reboot", "clock=1h", "disk=1M", "disk=x", "busy-port", "busy-port=0",
     "busy-port=22", "busy-port=70000", "junk=1", "no-route=", "slow=", "-1:slow", "",
     "gpus=0", "gpus=65", "gpus=x", "no-driver=1",
     "full-disk=x", "sudo-password=a b", "no-sudo=1"],
)  # fmt: skip
def test_mistakes_are_named(text: str) -> None:
    with pytest.raises(TestbedError):
        traits.combine([text], 2)


def test_a_host_without_traits_has_no_files_of_theirs() -> None:
    assert traits.files(Traits(), "admin") == {}
    assert traits.link_commands(Traits(), "eth0") == []


def test_delay_and_rate_add_up() -> None:
    first, second = traits.link_commands(Traits(slow="2mbit", delay="20ms"), "eth0")
    assert first == "qdisc add dev eth0 root handle 1: netem delay 20ms"
    assert second.startswith("qdisc add dev eth0 parent 1: handle 2: tbf rate 2mbit ")


def test_a_full_disk_is_a_small_disk_with_little_free() -> None:
    assert traits.combine(["full-disk"], 1) == [Traits(disk_bytes=1 << 30, free_bytes=16 << 20)]
    assert traits.combine(["disk=2G", "full-disk=1M"], 1) == [Traits(disk_bytes=2 << 30, free_bytes=1 << 20)]


def test_sudo_is_refused_or_asks() -> None:
    nobody, asked = traits.combine(["0:no-sudo", "1:sudo-password"], 2)
    assert asked.sudo_password == "testbed"
    assert traits.files(nobody, "admin") == {"etc/sudoers.d/admin": "# nobody\n"}
    assert traits.files(asked, "admin") == {"etc/sudoers.d/admin": "admin ALL=(ALL) ALL\n"}


def test_leftover_cluster_and_firewall_are_files() -> None:
    (found,) = traits.combine(["leftover-cluster", "firewall", "old-kernel"], 1)
    assert found.old_kernel
    paths = traits.files(found, "admin")
    assert {"etc/kubernetes/admin.conf", "var/lib/etcd/member/snap/db", "etc/nftables.conf"} < set(paths)
