"""How nodes are connected, as data."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from testbed import network
from testbed.clusters import Cluster

CLUSTER = Cluster("one", "0a1b2c3d", Path("/x"), ("pods",), range=70)


def test_first_node_is_connected_to_the_machine() -> None:
    assert network.cable_commands(CLUSTER, 0, [111]) == {
        "machine": [
            "link add lb0a1b2c3d type veth peer name eth0 netns 111",
            "addr add 10.70.255.1/30 dev lb0a1b2c3d",
            "link set lb0a1b2c3d up",
            "route add 10.70.0.0/16 via 10.70.255.2",
        ],
        111: [
            "link set lo up",
            "addr add 10.70.255.2/30 dev eth0",
            "link set eth0 up",
            "route add default via 10.70.255.1",
        ],
    }


def test_second_node_is_connected_to_the_first() -> None:
    commands = network.cable_commands(CLUSTER, 1, [111, 222])
    assert commands["machine"] == ["link add node1 netns 111 type veth peer name eth0 netns 222"]
    assert commands[111][-1] == "route add 10.70.1.0/24 via 10.70.255.6"
    assert commands[222][-1] == "route add default via 10.70.255.5"


def test_pods_of_all_nodes_are_in_the_cluster_range_and_apart() -> None:
    ranges = [ipaddress.IPv4Network(network.pod_range(CLUSTER, number)) for number in range(4)]
    assert all(one.subnet_of(ipaddress.IPv4Network(CLUSTER.pod_range)) for one in ranges)
    assert not any(one.overlaps(other) for one in ranges for other in ranges if one != other)


def test_plugins_write_only_into_the_room() -> None:
    configuration = network.plugin_configuration(CLUSTER, 1)
    first = configuration["plugins"][0]  # type: ignore[index]
    assert first["type"] == "ptp"
    assert first["ipam"]["dataDir"].startswith("/var/lib/cni")
    assert first["ipam"]["ranges"] == [[{"subnet": "10.70.1.0/24"}]]
