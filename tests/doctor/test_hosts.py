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
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"name": "lab", "hosts": hosts}))


def test_hosts_that_are_broken(hosts: Callable[..., Group], tmp_path: Path) -> None:
    traits = ("0:gpus=2", "1:gpus=1", "1:no-driver", "1:swap", "1:clock=+1h", "1:busy-port=10250", "2:no-sudo")
    group = hosts(4, *traits, "3:leftover-cluster", "3:old-kernel", "3:firewall")
    prepare(tmp_path, group)
    first = group.hosts[0]
    standin = f"/{driver.HOST_FOLDER}/proc/nvidia/version"
    for script in (
        f"sed -i s/{driver.VERSION}/570.1.2/ {standin}",
        "rm /dev/nvidia1",
        MEMBER,
        expired_certificate(tmp_path),
    ):
        hostfaults.run_inside(group.record, first, script)
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
