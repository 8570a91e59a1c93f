"""`longboat cluster init`: the first cluster file."""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from longboat.cli.cluster.target import DEFAULT_NAME, LOCAL_NAME
from longboat.cli.output.terminal import is_terminal, say
from longboat.clusters.cluster_file import DEFAULT_FILE, cluster_of_hosts, local_cluster
from longboat.clusters.init_template import ClusterAnswers, write_cluster_file
from longboat.clusters.ssh_config import ssh_hosts
from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.engines.shared.files import write_bytes

SSH_CONFIG = Path("~/.ssh/config")
_SHOWN = 20
"""Names of ~/.ssh/config that fit before a question."""


@click.command("init", short_help="Write a cluster file.")
@click.argument("hosts", nargs=-1, metavar="[USER@HOST:PORT]...")
@click.option("--local", "is_local", is_flag=True, help="This machine alone.")
@click.option("--name", metavar="NAME", help="Name of the cluster (default: cluster, or local).")
@click.option("-o", "--output", default=DEFAULT_FILE, show_default=True, metavar="FILE", help="The file; -: stdout.")
@click.option("--yes", "-y", is_flag=True, help="Ask no questions.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def command(hosts: Sequence[str], is_local: bool, name: str | None, output: str, yes: bool, force: bool) -> None:
    """Write a commented cluster file. The first host is the control plane.

    A HOST may be a name of ~/.ssh/config, or a pattern of such names: 'gpu-*'. On a terminal a few questions are asked.
    """
    if is_local and hosts:
        raise UsageError("hosts and --local: one of them", hint="longboat cluster init --local")
    if output != "-" and os.path.lexists(output) and not force:
        raise UsageError(f"{output} exists already", hint="--force overwrites it, -o names another file")
    answers = ClusterAnswers(name=name or (LOCAL_NAME if is_local else DEFAULT_NAME), hosts=expanded(hosts))
    if not yes and is_terminal(sys.stdin) and is_terminal(sys.stderr):
        answers = ask(answers, is_local=is_local)
    if not answers.hosts and not is_local:
        raise UsageError("which hosts?", hint="longboat cluster init user@gpu-1 user@gpu-2, or --local")
    check(answers)
    text = write_cluster_file(answers)
    if output == "-":
        print(text, end="")
        return
    try:
        write_bytes(Path(output), text.encode())
    except EngineError as error:  # its hint is for files of the home
        raise EngineError(error.message, hint="-o names another file") from None
    say(f"longboat: wrote {output}; next: longboat cluster check {output}, longboat cluster up {output}")


def check(answers: ClusterAnswers) -> None:
    """Report all invalid names and hosts at once, before anything is written."""
    if answers.hosts:
        cluster_of_hosts(answers.hosts, name=answers.name)
    else:
        local_cluster(name=answers.name)


def expanded(hosts: Sequence[str]) -> tuple[str, ...]:
    """Patterns replaced by the names of ~/.ssh/config that they match."""
    names_of_hosts: list[str] = []
    for host in hosts:
        if not set(host) & set("*?"):
            names_of_hosts.append(host)
            continue
        user, at, pattern = host.rpartition("@")
        names = [name for name in ssh_hosts(SSH_CONFIG.expanduser()) if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            raise NotFound(f"no host in {SSH_CONFIG} matches {pattern}")
        names_of_hosts += [f"{user}{at}{name}" for name in names]
    return tuple(dict.fromkeys(names_of_hosts))


def ask(answers: ClusterAnswers, *, is_local: bool) -> ClusterAnswers:
    """Ask for hosts and names on stderr."""
    name = click.prompt("Name of the cluster", default=answers.name, err=True)
    gpu = click.confirm("Do machines have NVIDIA GPUs?", default=True, err=True)
    if is_local:
        return msgspec.structs.replace(answers, name=name, gpu=gpu)
    hosts = answers.hosts
    if not hosts:
        known = ssh_hosts(SSH_CONFIG.expanduser())
        if known:
            more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
            say(f"in {SSH_CONFIG}: {', '.join(known[:_SHOWN])}{more}")
        line = click.prompt("Hosts, the control plane first (user@host, separated by blanks)", err=True)
        hosts = expanded(line.replace(",", " ").split())
    is_segment = click.confirm("Are all hosts on one network segment?", default=True, err=True)
    return msgspec.structs.replace(
        answers, name=name, gpu=gpu, hosts=hosts, network="routes" if is_segment else "flannel"
    )
