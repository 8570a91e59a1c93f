"""Labels and taints that nodes should have and do not: as arguments of kubectl. Pure.

Keys that we set are remembered in an annotation of the node, so that one that leaves the file leaves the node too; what
others set is never touched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from longboat.clusters.plan.network import NodeView
from longboat.clusters.plan.upgrade_plan import ANNOTATION as UPGRADING
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.specs.fields.rules import LABEL_KEY

ANNOTATION = "longboat.dev/cluster-settings"
# A node may write its own annotations: what is in there must not become an option of kubectl.
_ENTRY = re.compile(f"(label|taint):({LABEL_KEY})")


def commands(spec: ClusterSpec, nodes: Sequence[NodeView]) -> list[list[str]]:
    """kubectl commands, in order."""
    by_name = {node.name: node for node in nodes}
    commands_of_nodes: list[list[str]] = []
    for host in spec.hosts:
        if host.name in by_name:
            commands_of_nodes += _of_node(host, by_name[host.name])
    return commands_of_nodes


def _of_node(host: HostSpec, node: NodeView) -> list[list[str]]:
    commands_of_node = []
    before = {entry for entry in node.settings.split(",") if _ENTRY.fullmatch(entry)}
    wanted = dict(host.labels)
    wrong = [f"{key}={value}" for key, value in wanted.items() if dict(node.labels).get(key) != value]
    gone = [f"{entry.removeprefix('label:')}-" for entry in sorted(before) if _left(entry, "label:", wanted)]
    if wrong or gone:
        commands_of_node.append(["label", "node", node.name, "--overwrite", *wrong, *gone])
    taints = {f"{taint.key}={taint.value}:{taint.effect}": taint.key for taint in host.taints}
    missing = [text for text in taints if text not in node.taints]
    left = [f"{entry.removeprefix('taint:')}-" for entry in sorted(before) if _left(entry, "taint:", taints.values())]
    if missing or left:
        commands_of_node.append(["taint", "node", node.name, "--overwrite", *missing, *left])
    now = ",".join(sorted([f"label:{key}" for key in wanted] + [f"taint:{key}" for key in taints.values()]))
    if now != node.settings:
        commands_of_node.append(
            ["annotate", "node", node.name, "--overwrite", f"{ANNOTATION}={now}" if now else f"{ANNOTATION}-"]
        )
    # Its owner uncordoned it meanwhile. The mark would let the next upgrade uncordon what its owner cordons by then.
    if node.upgrading and not node.is_cordoned:
        commands_of_node.append(["annotate", "node", node.name, f"{UPGRADING}-"])
    return commands_of_node


def _left(entry: str, prefix: str, wanted: object) -> bool:
    return entry.startswith(prefix) and entry.removeprefix(prefix) not in wanted  # type: ignore[operator]
