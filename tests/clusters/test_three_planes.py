"""Three control planes with stacked etcd, behind a balancer or a virtual IP: one dies, and the API goes on."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from longboat.clusters.apply import etcd_members
from testbed import hosts as testbed_hosts
from testbed import kubeadm_images
from testbed.hosts import Group, Host
from tests.clusters.conftest import Lab

API_PORT = 6443
KUBECTL = "sudo kubectl --kubeconfig=/etc/kubernetes/admin.conf"
LEFT = "sudo ls -d /var/lib/longboat /etc/kubernetes /var/lib/etcd 2>/dev/null || true"


def connect_one(addresses: Sequence[str]) -> socket.socket | None:
    for address in addresses:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, API_PORT), timeout=2)
    return None


def forward(client: socket.socket, addresses: Sequence[str]) -> None:
    server = connect_one(addresses)
    with client, contextlib.closing(server or socket.socket()):
        other = {client: server, server: client}
        while server is not None:
            for ready in select.select([client, server], [], [])[0]:
                try:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    other[ready].sendall(data)  # type: ignore[union-attr]
                except OSError:
                    return


@contextlib.contextmanager
def balanced(place: str, addresses: Sequence[str]) -> Iterator[str]:
    """A plain TCP balancer, as an administrator has one before his control planes: the first that answers."""
    with socket.create_server((place, 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client = listening.accept()[0]
                    threading.Thread(target=forward, args=(client, addresses), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"{place}:{listening.getsockname()[1]}"


def states(longboat: Lab) -> dict[str, str]:
    return {row["host"]: row["state"] for row in json.loads(longboat("cluster", "status", "-o", "json", code=None))}


def etcd_names(host: Host) -> list[str]:
    """Its members, as one of them lists them."""
    listed = host.run(f"sudo sh -c '{etcd_members.LIST_MEMBERS}'")
    return sorted(member["name"] for member in etcd_members.members_of(listed))


def wait_for(condition: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(2)


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_one_of_three_control_planes_dies_and_another_machine_takes_its_place(lab: Callable[..., Lab]) -> None:
    longboat = lab(4, "no-route")
    group = longboat.group
    lost, second, third, fresh = group.hosts
    with balanced(group.gateway, [host.address for host in group.hosts]) as endpoint:
        longboat.write(count=3, planes=3, endpoint=endpoint)
        assert "3 nodes are ready" in longboat("cluster", "up")
        assert "nothing to do" in longboat("cluster", "up")
        assert etcd_names(second) == ["host-0", "host-1", "host-2"]
        # What let them join is gone.
        assert second.run(f"{KUBECTL} -n kube-system get secret kubeadm-certs --ignore-not-found -o name") == ""

        testbed_hosts.switch_off(group.record, lost)
        # Made, though the answer may be lost with the server that gave it.
        made = f"({KUBECTL} create namespace alone || {KUBECTL} get namespace alone -o name) 2>/dev/null || true"
        wait_for(lambda: "namespace/alone" in second.run(made), 240)
        wait_for(lambda: states(longboat)["host-1"] == "ready", 120)
        longboat("check", "--on", "lab", "--image", "any", "--", "true")

        # The first one, which made the cluster: another speaks for it from now on.
        longboat.write(chosen=[second, third, fresh], planes=3, endpoint=endpoint)
        words = ("doctor", "--cluster", "cluster.yaml", "--no-pods", "-o", "json")
        found = json.loads(longboat.popen(*words).communicate()[0])
        (etcd,) = [finding for finding in found if finding["name"] == "host etcd"]
        assert etcd["status"] == "broken" and "--forget host-0" in etcd["hint"]
        told = longboat("cluster", "up", "--forget", "host-0")
        assert "host-0 is forgotten" in told and "3 nodes are ready" in told
        assert etcd_names(second) == ["host-1", "host-2", "host-3"]
        assert "nothing to do" in longboat("cluster", "up")

        # It comes back, where its kubelet finds no API server but its own, and is cleaned as the hint says.
        testbed_hosts.switch_on(group.record, lost)
        wait_for(lambda: testbed_hosts.answers(lost), 120)
        assert "longboat cluster down --hosts host-0 --name lab" in told
        told = longboat("cluster", "down", "--hosts", "host-0", "--name", "lab", "--yes")
        assert "nothing of lab is left on 1 host" in told
        assert lost.run(LEFT) == "" and etcd_names(second) == ["host-1", "host-2", "host-3"]
        assert set(states(longboat).values()) == {"ready"}

        # Down without one that is lost: the others can still leave etcd.
        testbed_hosts.switch_off(group.record, second)
        told = longboat("cluster", "down", "--yes", "--forget", "host-1")
        assert "host-1 is forgotten" in told and "nothing of it is left on 2 hosts" in told
    for host in (third, fresh):
        assert host.run(LEFT) == ""


def holders(group: Group, vip: str, names: Sequence[str]) -> list[str]:
    """The hosts that have the virtual IP on an interface."""
    shown = {host.name: host.run("ip -o -4 addr show") for host in group.hosts if host.name in names}
    return [name for name, text in shown.items() if f" {vip}/32 " in text]


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_kube_vip_moves_the_address_of_a_control_plane_that_dies(lab: Callable[..., Lab]) -> None:
    longboat = lab(3, "no-route", images=[kubeadm_images.KUBE_VIP])
    group = longboat.group
    vip = group.hosts[0].address.rpartition(".")[0] + ".200"
    longboat.write(count=3, planes=3, vip=vip)
    assert "3 nodes are ready" in longboat("cluster", "up")
    assert "nothing to do" in longboat("cluster", "up")
    names = [host.name for host in group.hosts]
    (holder,) = holders(group, vip, names)
    kubeconfig = (longboat.home / ".kube" / "config").read_text()
    assert f"https://{vip}:6443" in kubeconfig
    # None of them keeps rights that kubeadm gives only while it makes the first one.
    for host in group.hosts:
        assert host.run("sudo grep -c super-admin /etc/kubernetes/manifests/kube-vip.yaml || true") == "0\n"

    dead = next(host for host in group.hosts if host.name == holder)
    testbed_hosts.switch_off(group.record, dead)
    others = [name for name in names if name != holder]
    wait_for(lambda: len(holders(group, vip, others)) == 1, 120)
    alive = next(host for host in group.hosts if host.name in others)
    ready = f"curl -sk --max-time 5 https://{vip}:6443/readyz || true"
    wait_for(lambda: alive.run(ready) == "ok", 120)
    longboat("check", "--on", "lab", "--image", "any", "--", "true")

    testbed_hosts.switch_on(group.record, dead)
    wait_for(lambda: testbed_hosts.answers(dead), 120)
    wait_for(lambda: set(states(longboat).values()) == {"ready"}, 240)
    assert len(holders(group, vip, names)) == 1
    assert "nothing of it is left on 3 hosts" in longboat("cluster", "down", "--yes")
    assert holders(group, vip, names) == []
    for host in group.hosts:
        assert host.run(LEFT) == ""
