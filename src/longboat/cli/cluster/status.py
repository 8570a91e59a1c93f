"""`longboat cluster status`: hosts and nodes of a cluster, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import msgspec

from longboat.cli.cluster.addons import show_addons
from longboat.cli.cluster.session import ClusterSession, login_options, open_session
from longboat.cli.cluster.target import spec_of, target_options
from longboat.cli.output.tables import table
from longboat.cli.output.terminal import clean
from longboat.clusters.apply.nodes import read_nodes
from longboat.clusters.plan.network import NodeView
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.core.errors import LongboatError

HEAD = ("HOST", "ROLE", "ADDRESS", "NODE", "VERSION", "GPUS", "STATE")


@click.command("status", short_help="Show hosts and nodes of a cluster.")
@target_options
@login_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Output format.")
def command(output: str, accept_new_host_keys: bool) -> int:
    """Show every host of the cluster: whether it is reachable, which cluster it is part of, whether its node is ready.

    Of an existing cluster: the add-ons that `up` installed. Exit code 1 if a host does not answer, or a node or an
    add-on is not ready.
    """
    spec = spec_of()
    if spec.kind == "existing":
        return show_addons(spec, output)
    if spec.cloud is not None:
        if spec.kind == "azure":
            from longboat.cli.cluster.cloud.azure import status_azure

            return status_azure(spec, output)
        if spec.kind == "gcp":
            from longboat.cli.cluster.cloud.gcp import status_gcp

            return status_gcp(spec, output)
        from longboat.cli.cluster.cloud.status import status_cloud

        return status_cloud(spec, output)
    with open_session(spec, accept_new_host_keys) as session:
        nodes, trouble = nodes_of(session)
        rows = [row(host, session, nodes.get(host.name)) for host in spec.hosts]
    if output == "json":
        print(msgspec.json.encode(rows).decode())
    else:
        for line in table(HEAD, [[clean(str(each[name.lower()])) for name in HEAD] for each in rows]):
            print(line)
        if trouble:
            print(clean(trouble))
        for line in stranger_lines(spec, nodes):
            print(line)
    return 0 if all(each["state"] == "ready" for each in rows) else 1


def stranger_lines(spec: ClusterSpec, nodes: Iterable[str]) -> list[str]:
    """Nodes of the cluster that its file does not have: others do not know the way to their pods."""
    strangers = sorted(set(nodes) - {host.name for host in spec.hosts})
    return [
        f"{clean(name)} is a node, and not in the file: forgotten and back, or joined by hand" for name in strangers
    ]


def nodes_of(session: ClusterSession) -> tuple[dict[str, NodeView], str]:
    """Nodes from the first control plane that answers; else none, and the last error."""
    trouble = ""
    for plane in session.spec.control_planes:
        facts = session.facts.get(plane.name)
        if facts is None or not facts.file("/etc/kubernetes/admin.conf"):
            continue
        try:
            return {node.name: node for node in read_nodes(session.hosts[plane.name])}, ""
        except (LongboatError, ValueError) as error:
            trouble = str(error)
    return {}, trouble


def row(host: HostSpec, session: ClusterSession, node: NodeView | None) -> dict[str, Any]:
    facts = session.facts.get(host.name)
    return {
        "host": host.name,
        "role": host.role,
        "address": node.address if node else (facts.source_address if facts else ""),
        "node": "" if node is None else "Ready" if node.is_ready else "NotReady",
        "version": node.version if node else "",
        "gpus": len(facts.gpus) if facts else "",
        "state": state(host, session, node),
    }


def state(host: HostSpec, session: ClusterSession, node: NodeView | None) -> str:
    if host.name in session.unreachable:
        return session.unreachable[host.name].message.removeprefix(f"{host.name}: ")
    facts = session.facts[host.name]
    if facts.journal_cluster != session.spec.name:
        return f"part of {facts.journal_cluster}" if facts.journal_cluster else "not part of the cluster"
    if node is None:
        return "has not joined"
    return "ready" if node.is_ready else "not ready"
