"""`longboat cluster provisioner`: the program of the add-on storage, in a pod of the cluster."""

from __future__ import annotations

import os
from pathlib import Path

import click

from longboat.cli.admin.controller import end_of_process, tell


@click.command("provisioner", short_help="Make volumes for claims (runs in the cluster).")
@click.option("--folder", required=True, metavar="FOLDER", help="Where the path is mounted here.")
@click.option("--path", required=True, metavar="PATH", help="The folder on the node, or what the server exports.")
@click.option("--server", default="", metavar="HOST", help="An NFS server; default: folders of this node.")
@click.option("--only-node", is_flag=True, help="The cluster has no other node: its folders can be shared.")
@click.option("--health-port", type=click.IntRange(1, 65535), metavar="PORT", help="Answer GET /healthz and /readyz.")
def command(folder: str, path: str, server: str, only_node: bool, health_port: int | None) -> int:
    """Make a folder and a volume for every claim of the add-on's StorageClass, and delete it with the claim.

    `longboat cluster up` runs it in the cluster; the variable NODE_NAME says on which node it is.
    """
    from longboat.clusters.provisioner.serve import Provisioner
    from longboat.clusters.provisioner.volumes import VolumePlace
    from longboat.core.errors import NotFound, UsageError
    from longboat.kubeapi.client import Client
    from longboat.kubeapi.kinds import NODE

    if not os.path.isdir(folder):
        raise NotFound(f"--folder {folder}: no such folder")
    node = os.environ.get("NODE_NAME", "")
    if not server and not node:
        raise UsageError("which node is this?", hint="NODE_NAME is its name, or --server names an NFS server")
    ending = end_of_process()
    with Client.open() as client:
        hostname = "" if server else client.get(NODE, node)["metadata"]["labels"].get("kubernetes.io/hostname", node)
        place = VolumePlace(path=path, server=server, node=node, hostname=hostname, is_only_node=only_node)
        Provisioner(client, place, Path(folder), tell).run(ending, health_port)
    return 0
