"""One machine makes a cluster of itself, beside what it has: Docker's containerd, a firewall, other kubeconfigs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

import pytest
import yaml

from testbed import hosts as machines
from testbed.hosts import Host
from tests.clusters.conftest import Lab
from tests.clusters.recipes import WorkstationReader

CONFIG = """apiVersion: v1
kind: Config
clusters:
- {name: old, cluster: {server: "https://192.0.2.9:6443"}}
users:
- {name: me, user: {token: "123_456"}}
contexts:
- {name: work, context: {cluster: old, user: me}}
current-context: work
"""
CONTAINERD = 'disabled_plugins = ["cri"]\n'  # as Docker's package of containerd has it
# What Docker sets up when it starts: nothing is forwarded but its own.
DOCKER = "sudo iptables -P FORWARD DROP && sudo iptables -N DOCKER-USER && sudo iptables -A FORWARD -j DOCKER-USER"
OPEN = "sudo nft add rule inet filter input tcp dport 6443 accept"
STATE = (
    "cat /etc/containerd/config.toml /etc/fstab; dpkg-query -W; sudo nft list table inet filter; ip route; "
    "sudo iptables-save -t filter | sed '/^#/d; s/ \\[[0-9:]*\\]$//'; systemctl is-enabled containerd; "
    "sudo ctr namespaces list -q"
)


def prepare(host: Host) -> None:
    """What the machine has before: another cluster's context, a containerd that Docker uses, a firewall."""
    host.run("mkdir .kube && cat > .kube/config", text=CONFIG)
    host.run(f"{DOCKER} && {OPEN}")
    host.run("sudo mkdir -p /etc/containerd && sudo tee /etc/containerd/config.toml", text=CONTAINERD)
    host.run("sudo apt-get -q update && sudo apt-get -q -y install containerd >/dev/null 2>&1")


def interrupt(host: Host) -> None:
    """Ctrl-C on a terminal, in the middle of a step."""
    command = host.command("cd desk && exec longboat cluster up")
    command.insert(1, "-tt")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdin
    wait_until(lambda: host.run("sudo ls /var/lib/longboat/undo 2>/dev/null | grep packages || true") != "", 120)
    process.stdin.write(b"\x03")
    process.stdin.flush()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and b"interrupted" in out, out[-2000:]
    # Nothing of it goes on: nobody holds the lock of the journal, and no apt is at work.
    assert host.run("sudo flock -n /var/lib/longboat/lock echo free") == "free\n"
    assert host.run("pidof apt-get dpkg || true") == ""


def wait_until(is_so: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def reboot(longboat: Lab, host: Host) -> None:
    machines.switch_off(longboat.group.record, host)
    machines.switch_on(longboat.group.record, host)
    wait_until(lambda: machines.answers(host), 90)
    host.run(f"{DOCKER} && {OPEN}")
    rows = "cd desk && longboat cluster status -o json || true"
    wait_until(lambda: json.loads(host.run(rows))[0]["state"] == "ready", 300)


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_a_machine_is_a_cluster_beside_what_it_has_and_after_a_reboot(lab: Callable[..., Lab]) -> None:
    """The recipe, line by line; two pods of its distributed training talk through what forwards nothing by itself."""
    reader = WorkstationReader(lab(1, "no-route", "firewall", "swap"))
    host, end = reader.host, "## 3. Take it down"
    prepare(host)
    before = host.run(STATE)

    reader.type("$ longboat cluster init --local --name desk\n")
    interrupt(host)
    host.run("rm desk/cluster.yaml")
    reader.read("workstation.md", until=end)
    assert "nothing to do" in host.run("cd desk && longboat cluster up 2>&1", within_s=300)
    config = yaml.safe_load(host.run("cat .kube/config"))
    assert {context["name"] for context in config["contexts"]} == {"work", "desk"}
    assert config["current-context"] == "work" and config["users"][0]["user"]["token"] == "123_456"

    reboot(reader.lab, host)
    reader.type("$ longboat rerun digits --on desk\n...\n...accuracy: 0.9...\n")

    reader.read("workstation.md", after=end)
    assert host.run(STATE) == before
    assert yaml.safe_load(host.run("cat .kube/config")) == yaml.safe_load(CONFIG)
