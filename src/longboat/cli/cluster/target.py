"""Which cluster a command means: a cluster file, a name, `--hosts` or `--local`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from longboat.clusters.cluster_file import DEFAULT_FILE, cluster_of_hosts, local_cluster, read_cluster
from longboat.clusters.spec import ClusterSpec
from longboat.clusters.spec_store import known_clusters, load_spec
from longboat.core.errors import NotFound, UsageError
from longboat.engines.shared.home import Home

F = TypeVar("F", bound=Callable[..., Any])

_CHOSEN = "longboat.cluster"
DEFAULT_NAME = "cluster"
LOCAL_NAME = "local"


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store the option in the context, where `spec_of` reads it; commands take no parameter for it."""
    ctx.meta.setdefault(_CHOSEN, {})[param.name] = value


def target_options(function: F) -> F:
    """`[FILE]`, `--hosts`, `--local` and `--name`: the cluster that `spec_of` gives."""
    kept: dict[str, Any] = {"expose_value": False, "callback": _keep}
    options = (
        click.argument("file", required=False, metavar="[FILE|NAME]", **kept),
        click.option("--hosts", metavar="HOST,...", help="Without a file: user@host:port, joined by commas.", **kept),
        click.option("--local", "is_local", is_flag=True, help="Without a file: this machine alone.", **kept),
        click.option(
            "--name", metavar="NAME", help="Name of a cluster without a file (default: cluster, or local).", **kept
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def spec_of() -> ClusterSpec:
    """The cluster that this command's options name; by default that of ./cluster.yaml."""
    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    file, hosts, name = chosen.get("file"), chosen.get("hosts"), chosen.get("name")
    is_local = bool(chosen.get("is_local"))
    if sum((file is not None, hosts is not None, is_local)) > 1:
        raise UsageError("a file, --hosts and --local: one of them", hint="longboat cluster up --hosts gpu-1,gpu-2")
    if hosts is not None:
        return cluster_of_hosts([host.strip() for host in hosts.split(",")], name=name or DEFAULT_NAME)
    if is_local:
        return local_cluster(name=name or LOCAL_NAME)
    if name is not None:
        raise UsageError("--name is for a cluster without a file", hint="the file has a field `name`")
    return named_cluster(file)


def chosen_file() -> Path | None:
    """The cluster file that this command's options name; None: a cluster without a file."""
    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    file = chosen.get("file")
    if chosen.get("hosts") is not None or chosen.get("is_local") or (file is not None and not is_file_name(file)):
        return None
    return None if file == "-" else Path(file or DEFAULT_FILE)


def chosen_name() -> str | None:
    """The name of a cluster that this command's argument gives; None: a file, none, or a cluster without a file."""
    chosen = click.get_current_context().meta.get(_CHOSEN, {})
    file = chosen.get("file")
    is_alone = chosen.get("hosts") is None and not chosen.get("is_local") and chosen.get("name") is None
    return file if is_alone and file is not None and not is_file_name(file) else None


def is_file_name(text: str) -> bool:
    """Whether the text is a path (it exists or looks like one) and not the name of a cluster."""
    looks_so = os.sep in text or text.endswith((".yaml", ".yml", ".json")) or text == "-"
    return looks_so or os.path.lexists(text)


def named_cluster(file: str | None) -> ClusterSpec:
    """Read a cluster file, or the stored spec of a cluster of this name."""
    if file is None or is_file_name(file):
        return read_cluster(file or DEFAULT_FILE)
    home = Home()
    spec = load_spec(file, home)
    if spec is None:
        known = ", ".join(known_clusters(home)) or "none"
        raise NotFound(f"{file}: no such file, and no cluster of this name", hint=f"clusters made from here: {known}")
    return spec
