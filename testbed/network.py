"""The network of a cluster with real nodes: one cable from the machine to the first node, one from there to each other.

A cluster has a range 10.X.0.0/16 of its own: pods of node N in 10.X.N.0/24, services in 10.X.128.0/18, cables in
10.X.255.0/24. The machine reaches pods and services by one route; pods reach the machine, not the world behind it.
Pods are attached by the CNI plugin `ptp`, every packet is routed: no bridge, and services work without br_netfilter.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed import clusters
from testbed.clusters import Cluster
from testbed.errors import TestbedError
from testbed.namespaces import SEARCH

MACHINE = "machine"


def node_address(cluster: Cluster, number: int) -> str:
    return f"10.{cluster.range}.255.{4 * number + 2}"


def gateway_address(cluster: Cluster, number: int) -> str:
    """The other end of the node's cable: the machine for node 0, node 0 for the rest."""
    return f"10.{cluster.range}.255.{4 * number + 1}"


def pod_range(cluster: Cluster, number: int) -> str:
    return f"10.{cluster.range}.{number}.0/24"


def cable_commands(cluster: Cluster, number: int, holders: Sequence[int]) -> Mapping[str | int, list[str]]:
    """What `ip` must be told, by place (the machine, or a holder), to connect node `number`. Pure."""
    node = holders[number]
    address, gateway = node_address(cluster, number), gateway_address(cluster, number)
    inside = [
        "link set lo up",
        f"addr add {address}/30 dev eth0",
        "link set eth0 up",
        f"route add default via {gateway}",
    ]
    if number == 0:
        outside = [
            f"link add {cluster.link} type veth peer name eth0 netns {node}",
            f"addr add {gateway}/30 dev {cluster.link}",
            f"link set {cluster.link} up",
            f"route add 10.{cluster.range}.0.0/16 via {address}",
        ]
        return {MACHINE: outside, node: inside}
    link = f"node{number}"
    return {
        MACHINE: [f"link add {link} netns {holders[0]} type veth peer name eth0 netns {node}"],
        holders[0]: [
            f"addr add {gateway}/30 dev {link}",
            f"link set {link} up",
            f"route add {pod_range(cluster, number)} via {address}",
        ],
        node: inside,
    }


def connect(cluster: Cluster, number: int, holders: Sequence[int]) -> None:
    for place, lines in cable_commands(cluster, number, holders).items():
        enter = [] if place == MACHINE else ["nsenter", "-t", str(place), "-n", "--"]
        run_ip([*enter, "ip", "-batch", "-"], "\n".join(lines) + "\n")
    forward = ["nsenter", "-t", str(holders[number]), "-n", "--", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]
    run_ip(forward, "")


def run_ip(command: list[str], text: str) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env={"PATH": SEARCH})
    if done.returncode != 0:
        raise TestbedError(f"the cluster's network: {done.stderr.strip()}")


def claim_range() -> int:
    """A range no route of this machine touches. The caller holds the machine's lock until its own route is there."""
    return clusters.free_range(clusters.used_networks())


def is_connected(cluster: Cluster) -> bool:
    return Path("/sys/class/net", cluster.link).exists()


def plugin_configuration(cluster: Cluster, number: int) -> dict[str, object]:
    """How CNI attaches the pods of one node."""
    addresses = {
        "type": "host-local",
        "dataDir": "/var/lib/cni/networks",
        "ranges": [[{"subnet": pod_range(cluster, number)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "testbed",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": True}},
        ],
    }


def write_plugin_configuration(cluster: Cluster, number: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "10-testbed.conflist").write_text(json.dumps(plugin_configuration(cluster, number), indent=1))
