"""One machine makes a cluster of itself, beside what it has: Docker's containerd, a firewall, other kubeconfigs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from testbed import binaries, images
from testbed import hosts as machines
from testbed.hosts import Host
from tests.clusters.conftest import Lab
from tests.clusters.workstation import install_longboat

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
# What Docker sets up on a machine: it forwards nothing but its own.
DOCKER = "sudo iptables -P FORWARD DROP && sudo iptables -N DOCKER-USER && sudo iptables -A FORWARD -j DOCKER-USER"
STATE = (
    "cat /etc/containerd/config.toml; dpkg-query -W; sudo nft list table inet filter; ip route; sudo iptables-save -t "
    "filter | grep -v '^#' | sed 's/ .[0-9]*:[0-9]*.$//'; systemctl is-enabled containerd kubelet 2>/dev/null; true"
)
PEERS = (
    "import os, socket; rank = int(os.environ['RANK']); address = (os.environ['MASTER_ADDR'], 29555)\n"
    "if rank == 0: s = socket.create_server(('', 29555)); c, a = s.accept(); print('heard', c.recv(9).decode())\n"
    "else:\n"
    "  import time\n"
    "  for _ in range(600):\n"
    "    try: c = socket.create_connection(address, 5); c.send(b'rank 1'); break\n"
    "    except OSError: time.sleep(0.1)\n"
    "  else: raise SystemExit('rank 0 is not reached')\n"
)


def give_image(host: Host) -> None:
    """The image of jobs that name none, which no test host can pull."""
    archive = images.archive("python", binaries.find(("tools",)))
    script = (
        "sudo ctr -n k8s.io images import - >/dev/null && sudo ctr -n k8s.io images tag --force "
        f"{images.reference('python')} docker.io/library/python:3.12-slim"
    )
    with open(archive, "rb") as stream:
        subprocess.run(host.command(script), stdin=stream, check=True, timeout=300)


def prepare(lab: Lab, host: Host) -> None:
    """Longboat, the cluster file of this machine, and what its owner had before."""
    install_longboat(host)
    text = yaml.safe_load((lab.folder / "cluster.yaml").read_text())
    text |= {"name": "desk", "kind": "local"}
    del text["hosts"]
    host.run("mkdir -p desk .kube && cat > desk/cluster.yaml", text=yaml.safe_dump(text))
    host.run("cat > desk/key.asc", text=(lab.folder / "key.asc").read_text())
    host.run("cat > .kube/config", text=CONFIG)
    host.run("cat > desk/peers.py", text=PEERS)
    host.run(DOCKER)
    host.run("sudo nft add rule inet filter input tcp dport 6443 accept")
    host.run("sudo apt-get -q update && sudo apt-get -q -y install containerd >/dev/null")


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


def train(host: Host, name: str) -> str:
    """Two pods of one machine that talk to each other, over the network that forwards nothing by itself."""
    run = f"longboat run --on desk -n {name} --nodes 2 --cpus 0.1 --timeout 2m peers.py"
    return host.run(f"cd desk && {run} 2>&1", within_s=300)


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_a_machine_is_a_cluster_beside_what_it_has_and_after_a_reboot(lab: Callable[..., Lab], tmp_path: Path) -> None:
    longboat = lab(1, "no-route", "firewall", "old-containerd", "swap")
    (host,) = longboat.group.hosts
    prepare(longboat, host)
    before = host.run(STATE)

    interrupt(host)
    told = host.run("cd desk && longboat cluster up 2>&1", within_s=600)
    assert "1 node is ready" in told
    assert "nothing to do" in host.run("cd desk && longboat cluster up 2>&1", within_s=300)
    config = yaml.safe_load(host.run("cat .kube/config"))
    assert {context["name"] for context in config["contexts"]} == {"work", "desk"}
    assert config["current-context"] == "work" and config["users"][0]["user"]["token"] == "123_456"
    give_image(host)
    assert "heard rank 1" in train(host, "first")

    machines.switch_off(longboat.group.record, host)
    machines.switch_on(longboat.group.record, host)
    wait_until(lambda: machines.answers(host), 90)
    host.run(DOCKER)  # as Docker does when it starts; the firewall's own rules come from its file
    host.run("sudo nft add rule inet filter input tcp dport 6443 accept")
    rows = "longboat cluster status desk -o json || true"
    wait_until(lambda: json.loads(host.run(rows))[0]["state"] == "ready", 300)
    assert "heard rank 1" in train(host, "second")

    assert "nothing of it is left on 1 host" in host.run("longboat cluster down desk --yes 2>&1", within_s=600)
    assert host.run(STATE) == before
    assert yaml.safe_load(host.run("cat .kube/config")) == yaml.safe_load(CONFIG)
