"""The commands `python -m testbed hosts up|down|status`: parses, calls, prints."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from typing import Any

from testbed import cleanup, clusters, hosts, processes, traits


def add(commands: Any) -> None:
    summary = "machines reached over SSH"
    top = commands.add_parser("hosts", help=summary, description=summary)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    up = verbs.add_parser("up", help="start hosts and wait until they answer")
    up.add_argument("count", type=int, nargs="?", default=1)
    up.add_argument(
        "--trait", action="append", default=[], metavar="[HOST:]NAME[=VALUE]",
        help=f"what is wrong with all hosts, or with one: {', '.join(traits.NAMES)}",
    )  # fmt: skip
    down = verbs.add_parser("down", help="remove hosts and everything they made")
    status = verbs.add_parser("status", help="show hosts and how to reach them")
    for verb in (up, down, status):
        verb.add_argument("--name", default=hosts.DEFAULT_NAME, help="the group of hosts (default: %(default)s)")


def do_hosts(arguments: argparse.Namespace) -> int:
    return {"up": do_up, "down": do_down, "status": do_status}[arguments.verb](arguments)


def do_up(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    group = hosts.up(arguments.name, arguments.count, arguments.trait)
    took = time.monotonic() - began
    print(f"{arguments.name}: {len(group.hosts)} hosts answer, {took:.1f} s", file=sys.stderr)
    print(f"ssh configuration: {group.hosts[0].config}", file=sys.stderr)
    for host in group.hosts:
        print(f"{host.name}\t{host.address}\t{shlex.join(host.command()[:3])} {host.name}")
    return 0


def do_down(arguments: argparse.Namespace) -> int:
    record = clusters.load(arguments.name)
    if record is not None and hosts.PROFILE not in record.profiles:
        hosts.get(arguments.name)
    there = cleanup.down(arguments.name)
    print(f"{arguments.name}: {'removed' if there else 'not there'}", file=sys.stderr)
    return 0


def do_status(arguments: argparse.Namespace) -> int:
    group = hosts.get(arguments.name)
    running = processes.recorded(group.record.processes)
    for host in group.hosts:
        is_on = host.name in running and processes.is_alive(running[host.name])
        state = "off" if not is_on else "answers" if hosts.answers(host) else "does not answer"
        print(f"{host.name}\t{state}\t{host.address}\t{shlex.join(host.command()[:3])} {host.name}")
    return 0
