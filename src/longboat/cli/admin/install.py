"""`longboat install`: the controller in a cluster, the autoscaler beside it, and their removal."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from longboat import __version__
from longboat.cli.input.arguments import namespaces_of, seconds, shown_namespaces
from longboat.cli.input.engine_option import complete_contexts, named_context
from longboat.cli.output.terminal import say
from longboat.core.errors import UsageError


@click.command("install", short_help="Put the controller into a cluster, or take it out.")
@click.option(
    "--on",
    "context",
    metavar="CONTEXT",
    callback=named_context,
    shell_complete=complete_contexts,
    help="The cluster of this kubeconfig context.",
)
@click.option("--image", metavar="IMAGE", help="An image that has Longboat (deploy/Dockerfile makes one).")
@click.option(
    "--only",
    multiple=True,
    metavar="NAMESPACE",
    help="Serve these namespaces (a,b or repeated), with permissions in no others; default: the context's.",
)
@click.option(
    "--all-namespaces", "everywhere", is_flag=True, help="Serve all namespaces, with permissions in all of them."
)
@click.option(
    "--autoscaler", "pools", type=click.Path(), metavar="FILE", help="Install the autoscaler too, with these pools."
)
@click.option("--remove", is_flag=True, help="Uninstall; runs and machines stay.")
@click.option("--dry-run", is_flag=True, help="Print the objects and stop.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="Output format of --dry-run.")
@click.option(
    "--timeout",
    default="2m",
    show_default=True,
    metavar="TIME",
    callback=seconds,
    help="How long to wait until it is ready.",
)
def command(context: str | None, remove: bool, dry_run: bool, output: str, timeout: float, **options: Any) -> int:
    """Install the controller: one small Deployment that admits waiting runs and restarts failed ones.

    With --autoscaler also the one that grows and shrinks pools of machines.
    """
    if remove and (any(options.values()) or dry_run):
        raise UsageError("--remove takes out all of it", hint="longboat install --remove, with --on CONTEXT if needed")
    if options["only"] and options["everywhere"]:
        raise UsageError("--only and --all-namespaces", hint="one of them: some namespaces, or all")
    wanted = [] if remove else objects_of(context, **options)
    if dry_run:
        print_objects(wanted, output)
        return 0
    from longboat.engines.kubernetes.install.controller_manifests import served_namespaces
    from longboat.engines.kubernetes.install.install import install, uninstall
    from longboat.kubeapi.client import Client

    with Client.open(context=context) as client:
        is_chosen = bool(options["only"] or options["everywhere"])
        made = install(client, wanted, timeout_s=timeout, is_chosen=is_chosen)
        names = uninstall(client) if remove else made
        is_any = False
        for name in names:
            is_any = True
            print(name, flush=True)
        if remove:
            say(f"longboat: the controller is gone from {client.context}" if is_any else "longboat: nothing to remove")
        else:
            who = "the controller and the autoscaler work" if options["pools"] else "the controller works"
            served = served_namespaces(next(each for each in wanted if each["kind"] == "Deployment"))
            say(f"longboat: {who} in {client.context}, for {shown_namespaces(served) if served else 'all namespaces'}")
    return 0


def objects_of(
    context: str | None, *, image: str | None, only: Sequence[str], everywhere: bool, pools: str | None
) -> list[dict[str, Any]]:
    """All manifests to install. The pools file is read and validated first."""
    from longboat.engines.kubernetes.install.controller_manifests import objects

    if image is None:
        raise UsageError("which image?", hint="--image: one that has Longboat, as deploy/Dockerfile makes it")
    from longboat.specs.fields.rules import IMAGE, IMAGE_EXPECTED

    if not re.fullmatch(IMAGE, image):
        raise UsageError(f"--image: found the text {image!r}, expected {IMAGE_EXPECTED}")
    served = None if everywhere else namespaces_of(only) or (context_namespace(context),)
    manifests = objects(image=image, only=served, version=__version__)
    if pools is None:
        return manifests
    from longboat.cli.input.pools import checked_pools
    from longboat.engines.kubernetes.install.autoscaler_manifests import autoscaler_objects

    text, simulates = checked_pools(pools)
    return [*manifests, *autoscaler_objects(image=image, pools=text, version=__version__, simulates=simulates)]


def context_namespace(context: str | None) -> str:
    """The default namespace of a context, from the kubeconfig alone: no request is made."""
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.kubeapi.errors import KubeconfigError

    place = KubernetesEngine(context=context)
    try:
        return place.client.namespace
    except KubeconfigError:
        return "default"  # of --dry-run where no cluster is known; who installs is told below
    finally:
        place.close()


def print_objects(manifests: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        import json

        json.dump({"apiVersion": "v1", "kind": "List", "items": manifests}, sys.stdout, indent=2)
        print()
        return
    import yaml

    yaml.safe_dump_all(manifests, sys.stdout, sort_keys=False)
