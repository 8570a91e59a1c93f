"""The network flannel on real hosts: pods of two nodes reach each other in vxlan, and nothing of it is left."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from testbed import binaries
from testbed.hosts import Host
from tests.clusters.conftest import Lab, pinned_images

KUBECTL = "kubectl --kubeconfig=/etc/kubernetes/admin.conf"
PORT = 8000
STATE = """ip -o link | cut -d: -f2; ip route; nft list ruleset; iptables-save | grep -v '^#'
dpkg-query -W; ls /usr/local/bin"""
FETCH = """import hashlib, urllib.request
block = urllib.request.urlopen("http://{}:{}/block", timeout=60).read()
print(hashlib.sha256(block).hexdigest(), "" if len(block) == 4 << 20 else len(block))
"""


def pod(name: str, node: str, image: str) -> dict[str, object]:
    """A network, on this very node."""
    spec = {
        "nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": image, "imagePullPolicy": "Never"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def inside(host: Host, address: str) -> str:
    """How a command is run in the network of the pod that has this address there."""
    look = f"nsenter --net=$file ip -o address | grep -q ' {address}/' && echo $file"
    file = host.run(f"for file in /run/netns/cni-*; do {look}; done; true", user="root").strip()
    assert file, f"{host.name} has no pod with the address {address}"
    return f"nsenter --net={file}"


def serve(host: Host, way: str) -> str:
    """Serve a block from there; its checksum."""
    host.run("mkdir -p /run/served && head -c 4M /dev/urandom > /run/served/block", user="root")
    run = "systemd-run --quiet --unit=server --working-directory=/run/served"
    host.run(f"{run} {way} python3 -m http.server {PORT}", user="root")
    return host.run("sha256sum < /run/served/block", user="root").split()[0]


def fetch(host: Host, way: str, address: str) -> str:
    """What comes from there, once somebody listens."""
    once = f"{way} python3 -c '{FETCH.format(address, PORT)}' 2>/dev/null"
    return host.run(f"for try in $(seq 60); do {once} && exit 0; sleep 0.5; done; exit 1", user="root").strip()


@pytest.mark.hosts
@pytest.mark.xdist_group("kubeadm")
@pytest.mark.slow
@pytest.mark.soak
def test_pods_of_two_nodes_reach_each_other(lab: Callable[..., Lab]) -> None:
    longboat = lab(2, "no-route", uses_repository=False)
    first, second = longboat.group.hosts
    before = [host.run(STATE, user="root") for host in (first, second)]
    repository = longboat.repository
    mirrors = [f"{repository.kubernetes_url()}/", f"{repository.url}/distribution/"]
    source = {
        "repositories": [{"url": url, "key": "key.asc"} for url in mirrors],
        "images": pinned_images(repository),
        "flanneld": str(binaries.find(["flannel"])["flanneld"].resolve()),
    }
    network = {"kind": "flannel", "pods": "172.29.0.0/16", "services": "172.30.0.0/16"}
    longboat.write(count=2, source=source, network=network)
    longboat("cluster", "bundle", "-o", "lab.tar")
    assert "+ flanneld: install flanneld" in longboat("cluster", "up", "--from", "lab.tar", "--dry-run")
    assert "2 nodes are ready" in longboat("cluster", "up", "--from", "lab.tar")
    assert "nothing to do" in longboat("cluster", "up", "--from", "lab.tar")
    assert "vxlan id 1" in first.run("ip -d link show flannel.1") and "flannel.1" in second.run("ip route")
    longboat.write(count=2, source=source, network={**network, "kind": "routes"})
    refusal = longboat("cluster", "up", "--from", "lab.tar", code=203)
    assert "has the network flannel, the file asks for routes" in refusal
    longboat.write(count=2, source=source, network=network)

    image = first.run("ctr -n k8s.io images ls -q | grep '/pause:' | head -n 1", user="root").strip()
    bodies = [pod("a", first.name, image), pod("b", second.name, image)]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
    first.run(f"{KUBECTL} apply -f -", text=listed, user="root")
    first.run(f"{KUBECTL} wait --for=condition=Ready pod/a pod/b --timeout=120s", user="root", within_s=150)
    here, there = (first.run(f"{KUBECTL} get pod {name} -o jsonpath={{.status.podIP}}", user="root") for name in "ab")
    for host, own, other, address in ((first, here, second, there), (second, there, first, here)):
        way = inside(host, own)
        assert "mtu 1450" in host.run(f"{way} ip link show eth0", user="root")  # 1500 less what vxlan takes
        # Packets of full size arrive, and from the pod's own address: no node stands before it.
        assert serve(other, inside(other, address)) == fetch(host, way, address)
        assert f"{own} - - " in other.run("journalctl -u server -o cat --no-pager", user="root")
        other.run("systemctl stop server && rm -r /run/served", user="root")

    assert "nothing of it is left on 2 hosts" in longboat("cluster", "down", "--yes")
    assert [host.run(STATE, user="root") for host in (first, second)] == before
