"""The command `start` of an unpacked archive: a cluster on this machine, and commands of the machine run in its pods.

It parses, calls and prints; data goes to stdout, everything else to stderr. Not here: making the archive (`pack`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from testbed import clusters, gpus, hostjobs, machine
from testbed.errors import TestbedError


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="start", description="Kubernetes on this machine, with its network and GPUs.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, summary: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=summary, description=summary)
        made.add_argument("--name", default=machine.DEFAULT_NAME, help="the cluster (default: %(default)s)")
        return made

    up_parser = command("up", "start the cluster and wait until it is ready")
    up_parser.add_argument("--gpus", type=whole, metavar="N", help="how many the node shows (default: those it has)")
    up_parser.add_argument(
        "--plugin", action="store_true", help="NVIDIA's device plugin hands them out, to each its own"
    )
    command("down", "remove the cluster and everything it made")
    command("status", "show clusters and their processes")
    command("kubeconfig", "print the path of the kubeconfig")
    command("kubectl", "run kubectl: start kubectl -- get pods").add_argument("rest", nargs=argparse.REMAINDER)
    for name, summary in (
        ("run", "run a command of this machine as a Job, show its output, return its exit code"),
        ("manifest", "print the Job that `run` would make"),
    ):
        job = command(name, f"{summary}: start {name} -- COMMAND")
        job.add_argument("--gpus", type=whole, default=1, metavar="N", help="GPUs to ask for (default: %(default)s)")
        job.add_argument("--mount", action="append", default=[], metavar="FOLDER", help="a further folder, writable")
        job.add_argument("--folder", default="", help="where the command starts (default: /tmp, the pod's own)")
        job.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
        job.add_argument("rest", nargs=argparse.REMAINDER)
    return top


def whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of GPUs")
    return int(text)


def main(root: Path, argv: Sequence[str] | None = None) -> int:
    """`root` is the folder the archive was unpacked to."""
    arguments = parser().parse_args(argv)
    arguments.root = root
    try:
        result: int = globals()[f"do_{arguments.command}"](arguments)
        return result
    except TestbedError as error:
        print(f"start: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("start: interrupted", file=sys.stderr)
        return 130


def do_up(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    number = gpus.count() if arguments.gpus is None else arguments.gpus
    programs = machine.programs_in(arguments.root / "bin")
    pictures = arguments.root / "images"
    cluster = machine.up(arguments.name, programs, pictures, number, has_plugin=arguments.plugin)
    took = time.monotonic() - began
    print(f"{cluster.name}: ready at {cluster.server}, {gpus.RESOURCE} {number}, {took:.1f} s", file=sys.stderr)
    print(cluster.kubeconfig)
    return 0


def do_down(arguments: argparse.Namespace) -> int:
    there = machine.down(arguments.name)
    print(f"{arguments.name}: {'removed' if there else 'not there'}", file=sys.stderr)
    return 0


def do_status(arguments: argparse.Namespace) -> int:
    from testbed.__main__ import do_status as show

    return show(arguments)


def running(name: str) -> clusters.Cluster:
    cluster = clusters.load(name)
    if cluster is None:
        raise TestbedError(f"there is no cluster {name!r} in {clusters.state_folder()}: start up")
    return cluster


def do_kubeconfig(arguments: argparse.Namespace) -> int:
    print(running(arguments.name).kubeconfig)
    return 0


def after_dashes(rest: list[str]) -> tuple[str, ...]:
    return tuple(rest[1:] if rest[:1] == ["--"] else rest)


def do_kubectl(arguments: argparse.Namespace) -> int:
    cluster = running(arguments.name)
    # What kubectl keeps must go with the cluster.
    ours = {"KUBECONFIG": str(cluster.kubeconfig), "KUBECACHEDIR": str(cluster.folder / "kubectl")}
    program = machine.programs_in(arguments.root / "bin")["kubectl"]
    os.execve(program, ["kubectl", *after_dashes(arguments.rest)], {**os.environ, **ours})


def order_of(arguments: argparse.Namespace) -> hostjobs.Order:
    environment = hostjobs.inherited_environment()
    for text in arguments.env:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise TestbedError(f"--env {text}: give NAME=VALUE")
        environment[name] = value
    return hostjobs.Order(
        after_dashes(arguments.rest),
        gpus=arguments.gpus,
        name=hostjobs.new_name(),
        writable=tuple(arguments.mount),
        folder=arguments.folder,
        environment=environment,
    )


def do_run(arguments: argparse.Namespace) -> int:
    programs = machine.programs_in(arguments.root / "bin")
    return hostjobs.run(running(arguments.name), programs, order_of(arguments))


def do_manifest(arguments: argparse.Namespace) -> int:
    print(json.dumps(hostjobs.manifest_here(order_of(arguments)), indent=1))
    return 0
