"""`longboat cluster`: the table of its commands. The module of a command is imported when it is called."""

from __future__ import annotations

import click

from longboat.cli.main import LazyCommands

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Commands": {
        "init": ("cluster.init", "Write a cluster file, from hosts or a few questions."),
        "up": ("cluster.up", "Make the cluster, or change it to what its file says."),
        "status": ("cluster.status", "Show hosts and nodes of a cluster."),
        "upgrade": ("cluster.upgrade", "Upgrade Kubernetes, one node after the other."),
        "down": ("cluster.down", "Take the cluster down; the hosts are as they were before."),
        "check": ("cluster.check", "Check a cluster file and show what it asks for."),
        "render": ("cluster.cloud.render", "Write the template of a cluster in a cloud."),
        "bundle": ("cluster.bundle", "Collect programs and images for hosts without a network."),
        "permissions": ("cluster.cloud.permissions", "Print the rights that a cluster in a cloud needs."),
        "selftest": ("cluster.cloud.selftest", "Try a cloud: make a small cluster, use it, take it down."),
        "token": ("cluster.cloud.token", "Print a token for a cluster on AWS, as kubectl asks for it."),
        "kubeconfig": ("cluster.access.kubeconfig", "Put a cluster into your kubeconfig, or take it out."),
        "provisioner": ("admin.provisioner", "Make volumes for claims (runs in the cluster)."),
        "user": ("cluster.access.user", "Give people access to a namespace, and take it away."),
    },
}
"""As in cli.main: section -> command -> (module of longboat.cli, one line of help)."""


@click.group("cluster", cls=LazyCommands, sections=SECTIONS, short_help="Make a cluster of machines.")
def command() -> None:
    """Make a Kubernetes cluster of machines that ssh reaches, of this one, or in a cloud, and take it down again.

    A cluster.yaml says which machines; longboat cluster init writes it, and docs/clouds.md has those of clouds.
    """
