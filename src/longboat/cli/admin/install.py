"""`longboat install`: the controller in a cluster, the autoscaler beside it, and their removal."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from longboat import __version__
from longboat.cli.input.arguments import PATH, namespaces_of, seconds, shown_namespaces
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
@click.option("--autoscaler", "pools", type=PATH, metavar="FILE", help="Install the autoscaler too, with these pools.")
@click.option("--ui", is_flag=True, help="Install the dashboard too: read-only, unless --ui-user names people.")
@click.option("--ui-user", "users", multiple=True, metavar="NAME", help="May use it in their own name. Repeatable.")
@click.option("--ui-group", "groups", multiple=True, metavar="NAME", help="A group of these. Repeatable.")
@click.option("--public-url", metavar="URL", help="Where browsers reach the dashboard's proxy: https://HOST[:PORT].")
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
            parts = ["the controller", *["the autoscaler"] * bool(options["pools"]), *["the dashboard"] * options["ui"]]
            who = f"{phrase(parts)} work{'' if len(parts) > 1 else 's'}"
            served = served_namespaces(next(each for each in wanted if each["kind"] == "Deployment"))
            say(f"longboat: {who} in {client.context}, for {shown_namespaces(served) if served else 'all namespaces'}")
    return 0


def phrase(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def objects_of(
    context: str | None, *, image: str | None, only: Sequence[str], everywhere: bool, pools: str | None, **shown: Any
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
    manifests += dashboard_of(image, served, **shown)
    if pools is None:
        return manifests
    from longboat.cli.input.pools import checked_pools
    from longboat.engines.kubernetes.install.autoscaler_manifests import autoscaler_objects

    text, simulates = checked_pools(pools)
    return [*manifests, *autoscaler_objects(image=image, pools=text, version=__version__, simulates=simulates)]


def dashboard_of(
    image: str, served: Sequence[str] | None, *, ui: bool, users: Sequence[str], groups: Sequence[str], public_url: Any
) -> list[dict[str, Any]]:
    """Raises UsageError for what would let in nobody, or anybody."""
    from longboat.engines.kubernetes.install.dashboard_manifests import DashboardSetup, dashboard_objects
    from longboat.kubeapi.connection.impersonation import NAME
    from longboat.web.server import public_host

    if not ui:
        if users or groups or public_url:
            raise UsageError("--ui-user, --ui-group and --public-url are of the dashboard", hint="add --ui")
        return []
    if served is None:
        raise UsageError("--ui with --all-namespaces", hint="--only a,b: the dashboard reads in these alone")
    if groups and not users:
        raise UsageError("--ui-group without --ui-user", hint="name the people too: nobody else is let in")
    if users and public_url is None:
        raise UsageError("--ui-user without --public-url", hint="https://HOST: the proxy that knows who is who")
    if public_url is not None:
        public_host(public_url)
    for name in (*users, *groups):
        if not NAME.fullmatch(name) or name.startswith("system:") or "," in name:
            raise UsageError(f"{name!r} is not the name of a person or group", hint="as the cluster's RBAC names them")
    setup = DashboardSetup(tuple(served), public_url, tuple(users), tuple(groups))
    return dashboard_objects(image=image, setup=setup, version=__version__)


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
