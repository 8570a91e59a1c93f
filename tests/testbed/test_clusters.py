"""The record of a cluster: names, ports, ranges, locks and leases."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import clusters
from testbed.clusters import Cluster
from testbed.errors import TestbedError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def use_state(state: Path) -> None:
    pass


def new(name: str, **values: object) -> Cluster:
    folder = clusters.folder_of(name)
    folder.mkdir(parents=True)
    return clusters.save(Cluster(name, clusters.new_id(), folder, ("api",), **values))  # type: ignore[arg-type]


def test_saved_and_loaded() -> None:
    cluster = new("one", ports={"apiserver": 1234})
    assert clusters.load("one") == cluster
    assert cluster.server == "https://127.0.0.1:1234"
    assert clusters.load("two") is None
    with pytest.raises(TestbedError, match="up --name two"):
        clusters.get("two")


def test_half_a_record_is_no_record() -> None:
    cluster = new("one")
    (cluster.folder / "cluster.json").write_text('{"name": "one", "id"')
    assert clusters.load("one") is None
    assert clusters.folders() == [cluster.folder]


@pytest.mark.parametrize("name", ["", "Up", "a/b", "..", "-a", "a" * 31, "a b"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(TestbedError, match="is no cluster name"):
        clusters.folder_of(name)


def test_ports_are_apart_and_not_given_twice() -> None:
    first = new("one", ports=clusters.free_ports(("a", "b", "c")))
    assert len(set(first.ports.values())) == 3
    assert clusters.taken_ports() == frozenset(first.ports.values())
    second = clusters.free_ports(("a", "b", "c"), clusters.taken_ports())
    assert not set(second.values()) & set(first.ports.values())


def test_free_range_avoids_every_route() -> None:
    used = [ipaddress.IPv4Network(text) for text in ("10.64.0.0/16", "10.65.3.0/24", "10.66.0.0/15", "172.17.0.0/16")]
    assert clusters.free_range(used) == 68
    with pytest.raises(TestbedError, match="no free range"):
        clusters.free_range([ipaddress.IPv4Network("10.0.0.0/8")])


def test_addresses_of_a_range_do_not_overlap() -> None:
    cluster = Cluster("one", "id", Path("/x"), ("pods",), range=70)
    pods, services = ipaddress.ip_network(cluster.pod_range), ipaddress.ip_network(cluster.service_range)
    cables = ipaddress.ip_network("10.70.255.0/24")
    assert not pods.overlaps(services) and not services.overlaps(cables) and not pods.overlaps(cables)
    assert all(one.subnet_of(ipaddress.ip_network("10.70.0.0/16")) for one in (pods, services))  # type: ignore[arg-type]
    assert cluster.first_service_address == "10.70.128.1"
    assert len(cluster.link) <= 15


def test_lock_is_exclusive_and_freed_by_death() -> None:
    code = """if True:
        import time
        from testbed import clusters
        with clusters.machine_lock("x"):
            print("held", flush=True)
            time.sleep(600)
    """
    other = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout and other.stdout.readline() == "held\n"
        with pytest.raises(TestbedError, match="held by another testbed"):
            with clusters.machine_lock("x", within_s=0.1):
                pass
    finally:
        other.kill()
        other.communicate()
    with clusters.machine_lock("x", within_s=5):
        pass


def test_lease_tells_who_is_last_and_what_is_abandoned() -> None:
    folder = new("one").folder
    assert clusters.hold_lease(folder) is None
    assert not clusters.is_abandoned(folder), "a cluster made by hand has no lease and is nobody's leftover"
    (folder / "lease").touch()
    assert clusters.is_abandoned(folder)
    first, second = clusters.hold_lease(folder), clusters.hold_lease(folder)
    assert first is not None and second is not None
    assert not clusters.is_abandoned(folder)
    assert not clusters.is_last_user(first)
    os.close(first)
    assert clusters.is_last_user(second)
    os.close(second)
    assert clusters.is_abandoned(folder)
