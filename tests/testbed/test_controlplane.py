"""What the control plane is told, as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed import certificates, controlplane
from testbed.binaries import Binaries
from testbed.clusters import Cluster

PORTS = {name: 40000 + number for number, name in enumerate(controlplane.PORTS)}
ALONE = Cluster("one", "0a1b2c3d", Path("/x"), ("api",), ports=PORTS)
WITH_NODES = Cluster("two", "0a1b2c3e", Path("/y"), ("api", "pods"), "10.70.255.2", controlplane.FIXED_PORTS, range=70)


def listens_on(arguments: list[str]) -> set[str]:
    names = ("--bind-address=", "--listen-client-urls=http://", "--listen-peer-urls=http://")
    return {
        value.removeprefix(name).partition(":")[0] for value in arguments for name in names if value.startswith(name)
    }


@pytest.mark.parametrize("name", ["etcd", "apiserver", "controller-manager", "scheduler"])
def test_a_cluster_on_the_machine_listens_to_this_machine_only(name: str) -> None:
    assert listens_on(controlplane.arguments_of(ALONE)[name]) == {"127.0.0.1"}


def test_a_cluster_with_nodes_is_reached_by_its_own_address() -> None:
    assert listens_on(controlplane.arguments_of(WITH_NODES)["apiserver"]) == {"0.0.0.0"}
    assert "--advertise-address=10.70.255.2" in controlplane.arguments_of(WITH_NODES)["apiserver"]
    assert WITH_NODES.server == "https://10.70.255.2:6443"


def test_the_api_certificate_holds_for_every_way_to_reach_it() -> None:
    (api,) = [one for one in certificates.control_plane_certificates(WITH_NODES) if one.name == "apiserver"]
    assert {"127.0.0.1", "10.70.255.2", "10.70.128.1", "kubernetes.default.svc"} <= set(api.hosts)


def test_every_file_named_is_one_that_is_made() -> None:
    made = {f"{one.name}.{end}" for one in certificates.control_plane_certificates(ALONE) for end in ("crt", "key")}
    made |= {"ca.crt", "ca.key", "front-proxy-ca.crt", "sa.key"}
    named = {
        Path(value).name
        for arguments in controlplane.arguments_of(ALONE).values()
        for argument in arguments
        if (value := argument.partition("=")[2]).startswith("/x/pki/")
    }
    assert named <= made


def test_processes_get_nothing_of_the_callers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://somewhere")
    environment = controlplane.environment(ALONE, Binaries({"etcd": Path("/bin/etcd")}))
    assert set(environment) == {"PATH", "HOME", "LONGBOAT_TESTBED", "LONGBOAT_TESTBED_FOLDER"}
    assert environment["LONGBOAT_TESTBED"] == "0a1b2c3d"
