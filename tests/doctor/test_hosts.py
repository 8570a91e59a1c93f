"""`longboat doctor --cluster` on real hosts over SSH that are broken in many ways, and mended where that is safe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from testbed import driver, hostfaults
from testbed.hosts import Group

pytestmark = pytest.mark.hosts
PKI = "/etc/kubernetes/pki"
SERVICE = "[Service]\\nExecStart=/bin/sleep infinity\\n"
MEMBER = f"""mkdir -p /var/lib/longboat && echo lab > /var/lib/longboat/cluster
printf '{SERVICE}' > /etc/systemd/system/containerd.service && systemctl daemon-reload"""

# A node whose kernel forwards nothing, with one CPU, an NVSwitch without its manager, and an old toolkit.
NODE = """set -e
sysctl -q -w net.ipv4.ip_forward=0
echo 0 > /run/online && mount --bind /run/online /sys/devices/system/cpu/online
switch=/sys/bus/pci/devices/0000:05:00.0 && mkdir $switch
echo 0x10de > $switch/vendor && echo 0x22a3 > $switch/device && echo 0x068000 > $switch/class
printf '#!/bin/sh\\necho "NVIDIA Container Toolkit CLI version 1.10.0"\\n' > /usr/local/bin/nvidia-ctk
printf '#!/bin/sh\\necho "[ 9.1] NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."\\n' > /usr/local/bin/dmesg
chmod 755 /usr/local/bin/nvidia-ctk /usr/local/bin/dmesg"""
# Little memory, a disk and inodes that are used up, Secure Boot, no package manager.
SMALL = """set -e
sed 's/^MemTotal:.*/MemTotal: 524288 kB/' /proc/meminfo > /run/meminfo
mount --bind /run/meminfo /proc/meminfo
mv /usr/bin/apt-get /usr/bin/apt-get.off
mount -t tmpfs -o size=64M,nr_inodes=40 none /var/lib
for number in $(seq 60); do echo 2>/dev/null > /var/lib/$number || break; done
[ ! -d /sys/firmware ] || mount -t tmpfs none /sys/firmware
mkdir -p /sys/firmware/efi/efivars
printf '\\006\\000\\000\\000\\001' > /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"""
# Behind a proxy, in a subnet of its own, with an address of the pods.
ELSEWHERE = """set -e
echo http_proxy=http://192.0.2.1:3128 >> /etc/environment
ip address add 10.244.7.1/24 dev host0
ip address add 192.168.77.3/24 dev host0"""


def expired_certificate(folder: Path) -> str:
    """A script that puts one where kubeadm keeps the API server's."""
    made = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=lab"]
    key, request, result = (str(folder / name) for name in ("key", "csr", "crt"))
    subprocess.run([*made, "-keyout", key, "-out", request], check=True, capture_output=True)
    signed = ["openssl", "x509", "-req", "-in", request, "-signkey", key, "-days", "-1", "-out", result]
    subprocess.run(signed, check=True, capture_output=True)
    return f"mkdir -p {PKI} && printf %s '{Path(result).read_text()}' > {PKI}/apiserver.crt"


def doctor(folder: Path, *options: str) -> tuple[dict[str, dict[str, str]], str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LONGBOAT_", "KUBE"))}
    environment = {**kept, "HOME": str(folder / "home"), "LONGBOAT_HOME": str(folder / "longboat")}
    command = [sys.executable, "-m", "longboat", "doctor", "--cluster", "cluster.yaml", "-o", "json", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 205, done.stderr
    return {finding["name"]: finding for finding in json.loads(done.stdout)}, done.stderr


def prepare(folder: Path, group: Group) -> None:
    (folder / "home" / ".ssh").mkdir(parents=True)
    (folder / "home" / ".ssh" / "config").write_text(group.hosts[0].config.read_text())
    hosts: list[dict[str, str]] = [{"name": host.name, "address": host.name} for host in group.hosts]
    hosts[0] |= {"role": "control-plane", "gpu": "yes"}
    hosts[1] |= {"gpu": "yes"}
    hosts[3] |= {"gpu": "yes", "node_address": "192.168.77.3"}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"name": "lab", "vip": "192.168.77.9", "hosts": hosts}))


def test_hosts_that_are_broken(hosts: Callable[..., Group], tmp_path: Path) -> None:
    traits = ["0:gpus=2", "1:gpus=1", "1:no-driver", "1:swap", "1:clock=+1h", "1:busy-port=10250", "2:no-sudo"]
    traits += ["1:old-containerd", "1:no-route", "3:leftover-cluster", "3:old-kernel", "3:firewall"]
    group = hosts(4, *traits)
    prepare(tmp_path, group)
    first, second, _, last = group.hosts
    standin = f"/{driver.HOST_FOLDER}/proc/nvidia/version"
    for script in (
        f"sed -i s/{driver.VERSION}/570.1.2/ {standin}",
        "rm /dev/nvidia1",
        MEMBER,
        NODE,
        expired_certificate(tmp_path),
    ):
        hostfaults.run_inside(group.record, first, script)
    identity = hostfaults.run_inside(group.record, second, f"{SMALL}\ncat /etc/machine-id").strip()
    hostfaults.run_inside(group.record, last, f"{ELSEWHERE}\necho {identity} > /etc/machine-id")
    found, told = doctor(tmp_path)
    wanted = {
        "host driver match": ("broken", f"kernel module 570.1.2, library {driver.VERSION}"),
        "host nvidia-smi": ("broken", "nvidia-smi lists 1 of 2 GPUs"),
        "host certificates": ("broken", "apiserver.crt ended"),
        "host kubelet": ("broken", "host-0 (not there)"),
        "host runtime": ("broken", "host-0 (inactive)"),
        "host cdi": ("warning", "host-0"),
        "host membership": ("warning", "host-1"),
        "host driver": ("warning", "1 NVIDIA device without a driver"),
        "host swap": ("warning", "host-1"),
        "host clock": ("broken", "host-1"),
        "host port": ("broken", "10250"),
        "host sudo": ("broken", "host-2"),
        "host cluster": ("broken", "host-3"),
        "host kernel": ("broken", "host-3"),
        "host firewall": ("broken", "host-3"),
        "host forwarding": ("broken", "host-0"),
        "host cpu": ("broken", "host-0: 1 CPU"),
        "host fabric": ("warning", "host-0"),
        "host toolkit": ("broken", "nvidia-container-toolkit 1.10.0 is too old"),
        "host xid": ("broken", "Xid 79"),
        "host containerd": ("warning", "host-1"),
        "host memory": ("warning", "host-1: 512 MiB"),
        "host disk": ("broken", "host-1: /var/lib has 0.1"),
        "host inodes": ("broken", "host-1"),
        "host packages": ("broken", "host-1"),
        "host route": ("broken", "host-1"),
        "host secure-boot": ("warning", "host-1"),
        "host proxy": ("warning", "host-3"),
        "host range": ("broken", "host-3"),
        "host link": ("broken", "host-3"),
        "host twin": ("broken", "host-3"),
        "host vip": ("broken", "host-0"),
        "host gpu": ("broken", "host-3"),
        "host login": ("ok", "4 answer"),
    }
    seen = {name: (found[name]["status"], words in found[name]["detail"]) for name, (_, words) in wanted.items()}
    assert seen == {name: (status, True) for name, (status, _) in wanted.items()}, [found[name] for name in wanted]
    assert all(found[name]["hint"] for name in wanted if found[name]["status"] != "ok")
    assert "only the hosts were examined" in told

    # Services of a node are started, and one host that is gone keeps the others from nothing.
    with hostfaults.unplugged(group.record, group.hosts[1]):
        found, told = doctor(tmp_path, "--fix")
    assert "host-0: systemctl start containerd" in told and found["host runtime"]["status"] == "ok"
    assert hostfaults.run_inside(group.record, first, "systemctl is-active containerd").strip() == "active"
    assert found["host login"]["status"] == "broken" and "host-1" in found["host login"]["detail"]
    assert found["host sudo"]["status"] == "broken"
