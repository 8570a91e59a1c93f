"""`longboat install`: the controller in a cluster, the autoscaler beside it, and their removal."""

from __future__ import annotations

import sys
from typing import Any

import click

from longboat import __version__
from longboat.cli.arguments import seconds
from longboat.cli.places import complete_contexts
from longboat.cli.terminal import say
from longboat.core.errors import UsageError


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
@click.option("--autoscaler", "pools", type=click.Path(), metavar="FILE", help="The autoscaler too, with these pools.")
@click.option("--remove", is_flag=True, help="Take all of it out again; runs and machines stay as they are.")
@click.option("--dry-run", is_flag=True, help="Print the objects and stop.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="Form of --dry-run.")
@click.option(
    "--timeout", default="2m", show_default=True, metavar="TIME", callback=seconds, help="Wait so long until it works."
)
def command(context: str | None, remove: bool, dry_run: bool, output: str, timeout: float, **what: str | None) -> int:
    """Install the controller: one small Deployment that lets waiting runs in and restarts failed ones.

    With --autoscaler also the one that grows and shrinks pools of machines.
    """
    if remove and (any(what.values()) or dry_run):
        raise UsageError("--remove takes out all of it", hint="longboat install --remove, with --on CONTEXT if needed")
    wanted = [] if remove else objects_of(**what)
    if dry_run:
        print_objects(wanted, output)
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
            who = "the controller and the autoscaler work" if what["pools"] else "the controller works"
            say(f"longboat: {who} in {client.context}")
    return 0


def objects_of(image: str | None, only: str | None, pools: str | None) -> list[dict[str, Any]]:
    """All that is to be installed; the pools file is read and checked first."""
    from longboat.engines.kubernetes.installing import objects

    if image is None:
        raise UsageError("which image?", hint="--image: one that has Longboat, as deploy/Dockerfile makes it")
    found = objects(image=image, only=only, version=__version__)
    if pools is None:
        return found
    from pathlib import Path

    from longboat.autoscaler.poolfile import read_pools, read_providers
    from longboat.autoscaler.providers.configured import KwokSettings
    from longboat.autoscaler.providers.opening import check_named
    from longboat.engines.kubernetes.installing_autoscaler import autoscaler_objects

    wanted, known = read_pools(pools)[0], read_providers(pools)
    check_named(wanted, known)
    simulates = any(isinstance(known[pool.provider], KwokSettings) for pool in wanted)
    text = Path(pools).read_text(encoding="utf-8")
    return [*found, *autoscaler_objects(image=image, pools=text, version=__version__, simulates=simulates)]


def print_objects(found: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        import json

        json.dump({"apiVersion": "v1", "kind": "List", "items": found}, sys.stdout, indent=2)
        print()
        return
    import yaml

    yaml.safe_dump_all(found, sys.stdout, sort_keys=False)
