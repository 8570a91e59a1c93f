"""Steps for the network between pods: routes between hosts of one subnet, or flannel's vxlan. Pure.

Nodes get their range of pod addresses from the control plane when they join; so this is planned from the nodes that are
there, after the hosts have joined.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
from collections.abc import Sequence

from longboat.clusters.plan.journal_shell import JOURNAL, put, undo
from longboat.clusters.plan.steps import Step
from longboat.core.errors import Refused
from longboat.core.jobs import Value

CONFLIST = "/etc/cni/net.d/10-longboat.conflist"
KUBECTL = f"kubectl --kubeconfig=/etc/kubernetes/admin.conf --cache-dir={JOURNAL}/kubectl --request-timeout=20s"
"""On a control plane. What it caches goes with the journal."""
UNIT = "/etc/systemd/system/longboat-routes.service"


class NodeView(Value, frozen=True):
    """A node of the cluster, as the API server shows it."""

    name: str
    address: str
    pods: str
    """Its range of pod addresses; empty as long as it has none."""
    is_ready: bool
    is_cordoned: bool = False
    version: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[str, ...] = ()
    settings: str = ""
    """Which labels and taints the cluster file gave it (`node_settings`)."""
    upgrading: str = ""
    """The version of an upgrade that cordoned it and has not finished."""


def is_inside(pods: str, whole: str) -> bool:
    try:
        return ipaddress.ip_network(pods).subnet_of(ipaddress.ip_network(whole))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def check_apart(nodes: Sequence[NodeView]) -> None:
    """Refuse ranges that overlap: a node that claims another's would get the packets of its pods."""
    ranges = sorted((ipaddress.ip_network(node.pods), node.name) for node in nodes)
    for (earlier, name), (later, other) in itertools.pairwise(ranges):
        if earlier.overlaps(later):
            raise Refused(
                f"the nodes {name} ({earlier}) and {other} ({later}) claim the same range of pod addresses",
                hint="one of them states a range that it did not get: look who has root there",
            )


def manifest(host: str, path: str, digest: str) -> Step:
    """A network of the user's choice, applied on the first control plane. `digest`: of what is in the file."""
    script = f"# {digest}\n{KUBECTL} apply --server-side --force-conflicts -f -\n"
    return Step(host=host, name="network", title=f"apply {path}", script=script, kind="manifest")


def conflist(pods: str, cluster: str, *, mtu: str = "") -> str:
    """Pods are attached by the plugin ptp: a cable of its own for each, no bridge, and so nothing of br_netfilter."""
    # The plugin would hide pods behind their node from pods of other nodes too; routes and flannel have a better rule.
    ptp = {
        "type": "ptp",
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    plugins = [ptp | ({"mtu": mtu} if mtu else {}), {"type": "portmap", "capabilities": {"portMappings": True}}]
    return json.dumps({"cniVersion": "1.0.0", "name": cluster, "plugins": plugins}, indent=2) + "\n"


def forward_rules(pods: str) -> list[str]:
    """Docker and ufw drop what is forwarded, as pods' packets are. These come before theirs and outlive a reload."""
    return [f"FORWARD {way} {pods} -j ACCEPT" for way in ("-s", "-d")]


def routes_unit(others: Sequence[NodeView], pods: str) -> str:
    """Routes to the others' pods, leave to forward what pods send and get, masquerading of what leaves the cluster.

    All of it comes back after a reboot. `pods` is the range of all nodes together.
    """
    lines = [f"ExecStart=ip route replace {node.pods} via {node.address}" for node in others]
    gone = [f"ExecStop=-ip route delete {node.pods} via {node.address}" for node in others]
    rules = forward_rules(pods)
    lines += [f"ExecStart=-iptables -w 30 -I {rule}" for rule in rules]
    gone += [f"ExecStop=-iptables -w 30 -D {rule}" for rule in rules]
    # Outside of the cluster nobody knows the way to a pod: there its node answers for it.
    hidden = f"POSTROUTING -s {pods} ! -d {pods} -j MASQUERADE"
    lines.append(f"ExecStart=iptables -w 30 -t nat -I {hidden}")
    gone.append(f"ExecStop=-iptables -w 30 -t nat -D {hidden}")
    return "\n".join(
        [
            "[Unit]",
            "Description=Routes to pods (Longboat)",
            "Wants=network-online.target",
            "After=network-online.target",
            "[Service]",
            "Type=oneshot",
            "RemainAfterExit=yes",
            *lines,
            *gone,
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def routes(host: str, nodes: Sequence[NodeView], cluster: str, pods: str) -> Step | None:
    """None while the host's node has no range of addresses."""
    own = next((node for node in nodes if node.name == host and node.pods), None)
    if own is None:
        return None
    others = [node for node in sorted(nodes, key=lambda node: node.name) if node.name != host and node.pods]
    # Routes of hosts that left are taken away by the unit that knows them, before it is written anew.
    script = "systemctl stop longboat-routes 2>/dev/null || true\n"
    script += put(UNIT, routes_unit(others, pods)) + put(CONFLIST, conflist(own.pods, cluster))
    # After the unit's file, so that on the way back it is stopped before the file goes.
    script += undo("routes", "systemctl disable --now longboat-routes 2>/dev/null || true")
    script += "systemctl daemon-reload\nsystemctl -q enable longboat-routes\nsystemctl restart longboat-routes\n"
    title = f"pods in {own.pods}, routes to {len(others)} other node{'s' if len(others) != 1 else ''}"
    return Step(host=host, name="network", title=title, script=script)
