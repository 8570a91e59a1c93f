"""`longboat install`: the controller in a cluster, and its removal."""

from __future__ import annotations

import sys

import click

from longboat import __version__
from longboat.cli.arguments import seconds
from longboat.cli.places import complete_contexts
from longboat.cli.terminal import say


@click.command("install", short_help="Put the controller into a cluster, or take it out.")
@click.option(
    "--on",
    "context",
    metavar="CONTEXT",
    shell_complete=complete_contexts,
    help="The cluster of this context of the kubeconfig.",
)
@click.option("--image", metavar="IMAGE", help="An image that has Longboat (deploy/Dockerfile makes one).")
@click.option("--only", metavar="NAMESPACE", help="Serve one namespace, with rights in no other.")
@click.option("--remove", is_flag=True, help="Take it out again; runs stay as they are.")
@click.option("--dry-run", is_flag=True, help="Print the objects and stop.")
@click.option(
    "--timeout", default="2m", show_default=True, metavar="TIME", callback=seconds, help="Wait so long until it works."
)
def command(
    context: str | None, image: str | None, only: str | None, remove: bool, dry_run: bool, timeout: float
) -> int:
    """Install the controller: one small Deployment that lets waiting runs in and restarts failed ones."""
    from longboat.core.errors import UsageError
    from longboat.engines.kubernetes.installing import objects

    if remove and (image or only or dry_run):
        raise UsageError("--remove takes out all of it", hint="longboat install --remove, with --on CONTEXT if needed")
    if image is None and not remove:
        raise UsageError("which image?", hint="--image: one that has Longboat, as deploy/Dockerfile makes it")
    wanted = [] if image is None else objects(image=image, only=only, version=__version__)
    if dry_run:
        import yaml

        yaml.safe_dump_all(wanted, sys.stdout, sort_keys=False)
        return 0
    from longboat.engines.kubernetes.api.client import Client
    from longboat.engines.kubernetes.installation import install, uninstall

    with Client.open(context=context) as client:
        names = uninstall(client) if remove else install(client, wanted, timeout_s=timeout)
        is_any = False
        for name in names:
            is_any = True
            print(name, flush=True)
        if remove:
            say(f"longboat: the controller is gone from {client.context}" if is_any else "longboat: nothing to remove")
        else:
            say(f"longboat: the controller works in {client.context}")
    return 0
