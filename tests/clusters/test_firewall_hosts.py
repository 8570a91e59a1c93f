"""`firewall: open` on a real host with rules of its own: systemd brings ours back whatever loads the others anew."""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from longboat.clusters.apply.execute import perform
from longboat.clusters.apply.step_log import StepLog
from longboat.clusters.apply.undo import audit, undo
from longboat.clusters.hosts.connection import HostConnection
from longboat.clusters.hosts.local import LocalConnection
from longboat.clusters.observe.network_checks import firewall as firewall_problems
from longboat.clusters.observe.probe import read_facts
from longboat.clusters.plan.network import NodeView, routes
from longboat.clusters.plan.steps import Kept, Step
from longboat.clusters.plan.system import firewall, journal, sysctls
from testbed import hosts as machines
from testbed import processes
from testbed.hosts import Group, Host
from tests.clusters.worlds import cluster

SPEC = cluster(workers=0, firewall="open")
LISTEN = "systemd-run -q --unit=listens -p Restart=always python3 -m http.server 10250"
SOON_S = 30.0


class HostShell(LocalConnection):
    """The host, through the ssh of the system."""

    def __init__(self, host: Host) -> None:
        super().__init__(SPEC.hosts[0].name)
        self._host = host

    def _execute(self, command: str, *args: Any) -> int | None:
        return super()._execute(shlex.join(self._host.command(f"sudo sh -c {shlex.quote(command)}")), *args)


def is_open(host: Host, port: int = 10250, *, within_s: float = SOON_S) -> bool:
    """Whether it lets this machine in, now or soon."""
    until = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection((host.address, port), timeout=1).close()
            return True
        except OSError:
            if time.monotonic() > until:
                return False
            time.sleep(0.2)


def carry_out(shell: HostConnection, *steps: Step | Kept | None) -> None:
    for step in steps:
        assert isinstance(step, Step)
        perform(shell, step, b"", StepLog(lambda event: None))


def reboot(group: Group, host: Host) -> None:
    machines.switch_off(group.record, host)
    machines.switch_on(group.record, host)
    assert processes.wait_until(lambda: machines.answers(host), 90)


@pytest.mark.hosts
@pytest.mark.slow
@pytest.mark.soak
def test_ports_stay_open_after_a_reload_and_a_reboot_until_the_way_back(hosts: Callable[..., Group]) -> None:
    group = hosts(1, "firewall")
    (host,) = group.hosts
    shell = HostShell(host)
    host.run(f"sudo {LISTEN}")
    before = host.run("sudo nft list ruleset")
    assert not is_open(host, within_s=1.0)
    carry_out(shell, *(make(SPEC, SPEC.hosts[0], read_facts(shell)) for make in (journal, firewall)))
    assert is_open(host)
    opened = host.run("sudo nft list ruleset")
    stop_and_start = "sudo systemctl stop nftables && sudo systemctl start nftables"
    for change in ("sudo systemctl reload nftables", "sudo systemctl restart nftables", stop_and_start):
        host.run(change)
        assert processes.wait_until(lambda: host.run("sudo nft list ruleset") == opened, SOON_S), change
    reboot(group, host)
    host.run(f"sudo {LISTEN}")
    assert is_open(host)
    assert isinstance(firewall(SPEC, SPEC.hosts[0], read_facts(shell)), Kept)

    undo(shell, on_line=lambda line: None, timeout_s=60)
    assert not is_open(host, within_s=1.0)
    assert host.run("sudo nft list ruleset") == before
    assert audit(shell, SPEC.network.pods).ours == ()


# A pod as the plugin ptp attaches it, with a server in it. $1: the third number of its node's addresses. The plugin
# switches forwarding on, too: the unit that does it after a boot cannot work on a test host.
POD = """set -e
sysctl -q -w net.ipv4.ip_forward=1
ip netns add pod
ip link add podlink type veth peer name eth0 netns pod
ip link set podlink up
ip route add 10.244.$1.2 dev podlink src "$2"
in="ip netns exec pod"
$in ip addr add 10.244.$1.2/32 dev eth0
$in ip link set lo up
$in ip link set eth0 up
$in ip route add "$2" dev eth0
$in ip route add default via "$2"
systemd-run -q --unit=pod $in python3 -m http.server 8000
"""
PODS = SPEC.network.pods
ALLOW_SSH = {
    "ufw": "sudo ufw allow 22/tcp && sudo ufw --force enable",
    "firewalld": "sudo systemctl is-active firewalld",
}
RULES = {
    "ufw": "sudo ufw status; sudo cat /etc/ufw/user.rules",
    "firewalld": "sudo firewall-cmd --list-all-zones; sudo firewall-cmd --list-all-policies; "
    "sudo nft list table inet firewalld",
}
RELOAD = {"ufw": "sudo ufw reload", "firewalld": "sudo firewall-cmd --reload && sudo systemctl restart firewalld"}


def reaches(host: Host, address: str, *, is_pod: bool) -> bool:
    prefix = "sudo ip netns exec pod " if is_pod else ""
    got = host.run(f"{prefix}curl -s -m 5 -o /dev/null -w '%{{http_code}}' http://{address}:8000/ || true")
    return got == "200"


@pytest.mark.hosts
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("name", ["ufw", "firewalld"])
def test_with_the_real_firewall_pods_reach_each_other(hosts: Callable[..., Group], name: str) -> None:
    """Debian's packages on host 0; host 1 has none, and a pod as host 0 has."""
    group = hosts(2)
    host, other = group.hosts
    host.run(
        f"sudo apt-get -q update && sudo DEBIAN_FRONTEND=noninteractive apt-get -q -y install {name}", within_s=300
    )
    host.run(ALLOW_SSH[name])
    host.run(f"sudo {LISTEN}")
    # What pods of two nodes meet in the world outside: a server that answers whoever asks, and sees from where.
    other.run("sudo systemd-run -q --unit=world python3 -m http.server 8000")
    before = host.run(RULES[name])
    assert not is_open(host, within_s=1.0)
    shell = HostShell(host)
    facts = read_facts(shell)
    assert facts.firewall == name
    (problem,) = firewall_problems(SPEC, SPEC.hosts[0], facts)
    assert ("forwards nothing for pods" in problem.message) == (name == "firewalld")

    nodes = [
        NodeView(name=SPEC.hosts[0].name, address=host.address, pods="10.244.0.0/24", is_ready=True),
        NodeView(name="w-0", address=other.address, pods="10.244.1.0/24", is_ready=True),
    ]
    steps = [make(SPEC, SPEC.hosts[0], facts) for make in (journal, sysctls, firewall)]
    carry_out(shell, *steps, routes(SPEC.hosts[0].name, nodes, SPEC.name, PODS))
    facts = read_facts(shell)
    assert isinstance(firewall(SPEC, SPEC.hosts[0], facts), Kept) and not [
        *firewall_problems(SPEC, SPEC.hosts[0], facts)
    ]
    other.run(f"sudo sysctl -q -w net.ipv4.ip_forward=1 && sudo ip route add 10.244.0.0/24 via {host.address}")

    def check() -> None:
        host.run(f"sudo sh -s 0 {host.address}", text=POD)
        assert is_open(host)
        assert not is_open(host, 8000, within_s=1.0), "nothing but the cluster's ports"
        assert processes.wait_until(lambda: reaches(host, "10.244.0.2", is_pod=False), SOON_S), "its own kubelet"
        assert reaches(other, "10.244.0.2", is_pod=True), "a pod of another node"
        assert reaches(other, "10.244.0.2", is_pod=False), "another node, as an API server that calls a webhook"
        assert reaches(host, "10.244.1.2", is_pod=True), "a pod there"
        # Nobody out there knows the way back to a pod: it must come from its node's address.
        other.run("sudo ip route delete 10.244.0.0/24")
        assert reaches(host, other.address, is_pod=True), "the world outside"
        other.run(f"sudo ip route add 10.244.0.0/24 via {host.address}")

    other.run(f"sudo sh -s 1 {other.address}", text=POD)
    check()
    host.run(f"sudo systemctl stop pod; sudo ip netns delete pod; {RELOAD[name]}")
    check()
    reboot(group, host)
    host.run(f"sudo {LISTEN}")
    check()

    undo(shell, on_line=lambda line: None, timeout_s=60)
    assert not is_open(host, within_s=1.0)
    host.run("sudo systemctl stop pod; sudo ip netns delete pod")
    assert host.run(RULES[name]) == before
    assert audit(shell, PODS).ours == ()
