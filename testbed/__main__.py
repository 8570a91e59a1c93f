"""The command `python -m testbed`: parses, calls, prints. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from testbed import api, binaries, build, cleanup, clusters, faults, hostcommands, pack, pack_cache, processes, profiles
from testbed.errors import TestbedError
from testbed.hostcommands import do_hosts  # noqa: F401  called by name
from testbed.up import up


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m testbed", description="A real Kubernetes for the tests.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, summary: str, *, named: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=summary, description=summary)
        if named:
            made.add_argument("--name", default=clusters.DEFAULT_NAME, help="the cluster (default: %(default)s)")
        return made

    up_parser = command("up", "start a cluster and wait until it is ready")
    up_parser.add_argument("--profile", action="append", default=[], choices=profiles.NAMES, help="several add up")
    up_parser.add_argument(
        "--nodes", action="append", default=[], metavar="COUNT[:SHAPE]", help="simulated nodes: 100:h100x8"
    )
    command("down", "remove a cluster and everything it made")
    command("status", "show clusters and their processes", named=False)
    command("kubeconfig", "print the path of a cluster's kubeconfig")
    kubectl = command("kubectl", "run kubectl on a cluster: python -m testbed kubectl -- get pods")
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    command("shell", "a shell with kubectl and KUBECONFIG set")
    make = command("build", "make every program that is not in the cache yet", named=False)
    make.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(binaries.BY_NAME))
    fault = command("fault", "pause, resume, kill, start or restart a component of a cluster")
    fault.add_argument("action", choices=tuple(faults.ACTIONS))
    fault.add_argument("component", help="etcd, kube-apiserver, kubelet, node-1-kubelet, ...: as `status` shows them")
    hostcommands.add(commands)
    archive = command("pack", "write one archive that starts a cluster where nothing can be installed", named=False)
    archive.add_argument("-o", "--output", type=Path, default=Path(pack.DEFAULT_FILE), help="default: %(default)s")
    archive.add_argument(
        "--profile", action="append", default=[], choices=profiles.NAMES, help="a cache for clusters of these instead"
    )
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    archive.add_argument("--python", default=version, help="of that machine, for the cache (default: %(default)s)")
    clean = command("clean", "remove what killed test runs left", named=False)
    clean.add_argument("--all", action="store_true", help="also clusters in use")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        result: int = globals()[f"do_{arguments.command}"](arguments)
        return result
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("testbed: interrupted", file=sys.stderr)
        return 130


def do_up(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    parts = profiles.combine(arguments.profile, arguments.nodes)
    cluster = up(arguments.name, parts)
    print(f"{cluster.name}: {', '.join(cluster.profiles)} ready at {cluster.server}, {time.monotonic() - began:.1f} s",
          file=sys.stderr)  # fmt: skip
    print(cluster.kubeconfig)
    return 0


def do_down(arguments: argparse.Namespace) -> int:
    there = cleanup.down(arguments.name)
    print(f"{arguments.name}: {'removed' if there else 'not there'}", file=sys.stderr)
    return 0


def do_status(arguments: argparse.Namespace) -> int:
    for folder in clusters.folders():
        cluster = clusters.load_folder(folder)
        if cluster is None:
            print(f"{folder.name}\tbroken\t{folder}")
            continue
        state = "starting or left over" if not cluster.ready else "ready" if answers(cluster) else "does not answer"
        server = cluster.server if cluster.ports else "-"
        print(f"{cluster.name}\t{state}\t{','.join(cluster.profiles)}\t{server}")
        for process in processes.recorded(cluster.processes).values():
            life = f"pid {process.pid}" if processes.is_alive(process) else "ended"
            print(f"  {process.name}\t{life}\t{process.log}")
    return 0


def answers(cluster: clusters.Cluster) -> bool:
    if not cluster.ports:  # hosts have no API; `hosts status` asks each
        return True
    with_api = api.Api(cluster, timeout_s=3.0)
    try:
        return with_api.is_ready()
    finally:
        with_api.close()


def do_kubeconfig(arguments: argparse.Namespace) -> int:
    print(clusters.get(arguments.name).kubeconfig)
    return 0


def kubectl_environment(name: str) -> dict[str, str]:
    programs = binaries.find(("kubernetes",))
    path = f"{programs['kubectl'].parent}:{os.environ.get('PATH', '')}"
    return {**os.environ, "KUBECONFIG": str(clusters.get(name).kubeconfig), "PATH": path}


def do_kubectl(arguments: argparse.Namespace) -> int:
    rest = arguments.arguments[1:] if arguments.arguments[:1] == ["--"] else arguments.arguments
    os.execvpe("kubectl", ["kubectl", *rest], kubectl_environment(arguments.name))


def do_shell(arguments: argparse.Namespace) -> int:
    shell = os.environ.get("SHELL") or "/bin/sh"
    print(f"testbed: kubectl speaks to {arguments.name!r}; leave with exit", file=sys.stderr)
    os.execvpe(shell, [shell], kubectl_environment(arguments.name))


def do_build(arguments: argparse.Namespace) -> int:
    unknown = sorted(set(arguments.targets) - set(binaries.BY_NAME))
    if unknown:
        raise TestbedError(f"no target {', '.join(unknown)}; there are {', '.join(binaries.BY_NAME)}")
    wanted = [binaries.BY_NAME[name] for name in arguments.targets] or list(binaries.TARGETS)
    missing = [target for target in wanted if binaries.lookup(target) is None]
    if missing:
        build.make(missing)
    for target in wanted:
        for program, path in (binaries.lookup(target) or {}).items():
            print(f"{program}\t{path}")
    return 0


def do_fault(arguments: argparse.Namespace) -> int:
    faults.ACTIONS[arguments.action](clusters.get(arguments.name), arguments.component)
    return 0


def do_pack(arguments: argparse.Namespace) -> int:
    if arguments.profile:
        size = pack_cache.pack_cache(arguments.output, profiles.combine(arguments.profile), arguments.python)
    else:
        size = pack.pack(arguments.output)
    print(f"testbed pack: {size / (1 << 20):.1f} MiB", file=sys.stderr)
    print(arguments.output)
    return 0


def do_clean(arguments: argparse.Namespace) -> int:
    for line in cleanup.clean(everything=arguments.all):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
