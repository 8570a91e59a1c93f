"""`longboat cluster kubeconfig`: a cluster's context in the user's kubeconfig."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from longboat.cli.cluster.session import login_options
from longboat.cli.cluster.target import chosen_name, spec_of, target_options
from longboat.cli.output.terminal import say
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import NotFound, UsageError


@click.command("kubeconfig", short_help="Put a cluster into your kubeconfig.")
@target_options
@login_options
@click.option("--from", "source", metavar="KUBECONFIG", help="Take it from this file (-: stdin), not from a host.")
@click.option("--use", is_flag=True, help="Make it the current context too.")
@click.option("--print", "prints", is_flag=True, help="Print the cluster's kubeconfig and change nothing.")
@click.option("--remove", is_flag=True, help="Take the cluster's context out again.")
def command(source: str | None, use: bool, prints: bool, remove: bool, accept_new_host_keys: bool) -> None:
    """Put the context of a cluster into your kubeconfig: ~/.kube/config, or the first file of KUBECONFIG.

    It is read from a control plane. The rest of your file stays as it is; what it was before is in a backup beside it.
    With --from and --remove, NAME is any name.
    """
    from longboat.clusters.kubeconfig_file import backup_of, drop_context, put_context

    if remove and (source is not None or use or prints):
        raise UsageError("--remove stands alone", hint="longboat cluster kubeconfig NAME --remove")
    if remove:
        name = name_of()
        dropped = drop_context(name, os.environ)
        say(f"longboat: {name} is gone from {dropped}" if dropped else f"longboat: there is no context {name}")
        return
    name, text = (name_of(), read_text(source)) if source is not None else from_host(accept_new_host_keys)
    if prints:
        print(text, end="")
        return
    changed = put_context(text, name, os.environ, is_current=use)
    if changed is None:
        say(f"longboat: the context {name} is there already")
        return
    kept = f"; before: {backup_of(changed)}" if backup_of(changed).exists() else ""
    say(f"longboat: {changed} has the context {name}{kept}; next: longboat doctor --on {name}")


def name_of() -> str:
    """The name that is given, or that of the cluster which the options mean."""
    from longboat.specs.fields.rules import NAME, NAME_EXPECTED

    name = chosen_name()
    if name is None:
        return spec_of().name
    if not re.fullmatch(NAME, name):
        raise UsageError(f"{name!r} is not the name of a cluster", hint=NAME_EXPECTED)
    return name


def from_host(accept_new_host_keys: bool) -> tuple[str, str]:
    from longboat.cli.input.sudo_password import ask_password
    from longboat.clusters.admin_kubeconfig import read_admin_kubeconfig
    from longboat.clusters.hosts.settings import LoginSettings

    spec = spec_of()
    if spec.cloud is not None:
        return spec.name, from_cloud(spec, spec.cloud.region)
    settings = LoginSettings(accept_new_host_keys=accept_new_host_keys, ask_password=ask_password)
    return spec.name, read_admin_kubeconfig(spec, settings)


def from_cloud(spec: ClusterSpec, region: str) -> str:
    """Where it was made: another account may have a cluster of this name, which the context would lead to then."""
    from longboat.clusters.cloud.same_place import check_same_place
    from longboat.engines.shared.home import Home

    if spec.kind == "azure":
        from longboat.clusters.cloud.azure.credentials import kubeconfig_of, open_group

        group = open_group(spec.name)
        check_same_place(spec, group.subscription, Home())
        return kubeconfig_of(spec.name, group)
    if spec.kind == "gcp":
        from longboat.cli.cluster.cloud.gcp import open_cluster
        from longboat.clusters.cloud.gcp.credentials import read_kubeconfig as read_google

        cluster = open_cluster(spec)
        check_same_place(spec, cluster.project, Home())
        return read_google(cluster)
    from longboat.clouds.aws.session import AwsSession
    from longboat.clusters.cloud.aws.credentials import read_kubeconfig

    session = AwsSession(region)
    check_same_place(spec, session.account(), Home())
    return read_kubeconfig(spec.name, session)


def read_text(source: str) -> str:
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{source}: not a kubeconfig") from None
    except OSError as error:
        raise NotFound(f"{source}: {error.strerror}") from None
