"""kube-vip's static pod, and the shell that writes it: complete, for one interface, never half."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from longboat.clusters import virtual_ip
from longboat.clusters.plan.journal_shell import PRELUDE
from tests.clusters.worlds import cluster

SPEC = cluster(planes=3, vip="10.0.0.9")
ADDRESSES = """1: lo    inet 127.0.0.1/8 scope host lo
2: eth0    inet 10.0.0.50/24 scope global eth0
3: bond0    inet 10.0.0.5/24 brd 10.0.0.255 scope global bond0
3: bond0    inet 10.0.0.9/32 scope global bond0
"""


class SimulatedHost:
    """A folder in place of a host's root; `ip` and `ping` write down how they were called."""

    def __init__(self, root: Path, *, answers: bool = False) -> None:
        self.root, self.calls = root, root / "calls"
        (root / "bin").mkdir()
        (root / "kubernetes").mkdir()
        for name, script in {
            "ip": f'echo "ip $*" >> {self.calls}\n[ "$1" != -o ] || printf %s \'{ADDRESSES}\'',
            "ping": f"exit {0 if answers else 1}",
        }.items():
            (root / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (root / "bin" / name).chmod(0o755)

    def run(self, call: str, address: str = "10.0.0.5") -> subprocess.CompletedProcess[str]:
        text = virtual_ip.functions(SPEC, "cp-0", address).replace("/etc/kubernetes", f"{self.root}/kubernetes")
        start = PRELUDE.replace(":$PATH\n", f":$PATH\nPATH={self.root}/bin:$PATH\n", 1)
        return subprocess.run(["sh", "-c", f"{start}{text}{call}"], capture_output=True, text=True, check=False)


@pytest.fixture
def host(tmp_path: Path) -> SimulatedHost:
    return SimulatedHost(tmp_path)


@pytest.mark.parametrize("kubeconfig", [virtual_ip.FIRST_KUBECONFIG, virtual_ip.KUBECONFIG])
def test_the_pod_is_written_for_the_interface_of_the_node(host: SimulatedHost, kubeconfig: str) -> None:
    assert host.run(f"put_vip {kubeconfig}").returncode == 0
    pod = json.loads((host.root / "kubernetes/manifests/kube-vip.yaml").read_text())
    environment = {item["name"]: item.get("value") for item in pod["spec"]["containers"][0]["env"]}
    assert (environment["address"], environment["vip_interface"]) == ("10.0.0.9", "bond0")
    assert pod["spec"]["volumes"][0]["hostPath"] == {"path": f"/etc/kubernetes/{kubeconfig}", "type": "File"}
    assert sorted(path.name for path in (host.root / "kubernetes").iterdir()) == ["manifests"]


def test_a_node_whose_address_is_nowhere_gets_no_pod(host: SimulatedHost) -> None:
    done = host.run("put_vip admin.conf || exit 3", address="10.0.0.7")
    assert done.returncode == 3 and "no interface has the address 10.0.0.7" in done.stderr
    assert not (host.root / "kubernetes/manifests").exists()


def test_an_address_that_somebody_has_is_refused(tmp_path: Path) -> None:
    host = SimulatedHost(tmp_path, answers=True)
    done = host.run("vip_is_free")
    assert done.returncode == 1 and "something answers at 10.0.0.9 already" in done.stderr


def test_what_an_earlier_kube_vip_left_does_not_count(host: SimulatedHost) -> None:
    assert host.run("vip_is_free").returncode == 0
    assert "ip addr del 10.0.0.9/32 dev bond0" in host.calls.read_text()


def test_the_pod_has_two_capabilities_and_opens_no_port() -> None:
    (container,) = virtual_ip.pod(SPEC)["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}
    assert "--prometheusHTTPServer=" in container["args"]
    assert container["image"] == "ghcr.io/kube-vip/kube-vip:v1.0.0"
