"""`longboat cluster up`: bare machines become a cluster, or a cluster becomes what its file says."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

import click
import msgspec

from longboat.cli.cluster.addons import install_into, pools_of, print_addons
from longboat.cli.cluster.down import audit_lines
from longboat.cli.cluster.progress import ProgressTable, failure_lines
from longboat.cli.cluster.session import ClusterSession, login_options, open_session
from longboat.cli.cluster.target import spec_of, target_options
from longboat.cli.input.arguments import seconds
from longboat.cli.output.terminal import clean, say
from longboat.clusters.apply.etcd_members import remove_member
from longboat.clusters.apply.gpu_verification import GpuVerification
from longboat.clusters.apply.nodes import delete_node, read_nodes
from longboat.clusters.cluster_file import bundle_source
from longboat.clusters.down import ClusterDown
from longboat.clusters.fields import rules
from longboat.clusters.fields.rules import Login
from longboat.clusters.observe.facts import HostProblem
from longboat.clusters.offline.addon_files import with_manifests
from longboat.clusters.offline.flannel_program import flanneld_of, unpinned
from longboat.clusters.offline.load import cache_folder, load_software
from longboat.clusters.offline.manifest import host_problems
from longboat.clusters.plan.steps import ClusterPlan, HostPlan
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.clusters.spec_store import load_spec, save_spec
from longboat.clusters.up import ClusterUp, UpResult
from longboat.core.errors import EngineError, Refused, UsageError
from longboat.core.words import counted
from longboat.engines.shared.home import Home

NOTHING = "nothing to do"


@click.command("up", short_help="Make the cluster, or change it to what its file says.")
@target_options
@login_options
@click.option(
    "--from", "bundle", metavar="FILE",
    help="Programs and images from this bundle (a file, folder or URL): hosts need no network.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Look at the hosts, print the plan and stop.")
@click.option(
    "--grace", default="5m", show_default=True, metavar="TIME", callback=seconds,
    help="Time trainings have to save on a host that leaves.",
)  # fmt: skip
@click.option(
    "--forget", multiple=True, metavar="HOST", help="Host that is lost and out of the file; continue without it."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: an event per line.")
def command(
    dry_run: bool, bundle: str | None, forget: tuple[str, ...], grace: float, output: str, accept_new_host_keys: bool
) -> int:
    """Make a cluster of machines: container runtime, kubeadm, network, and a context for --on.

    Steps that are done already are skipped; after any interruption the same command continues. Every change on a host
    is recorded there with its undo, which longboat cluster down carries out.
    """
    spec = from_bundle(spec_of(), bundle)
    if spec.cloud is not None:
        return up_in_cloud(spec, dry_run=dry_run, output=output)
    pools_of(spec)  # a mistake in it is told before anything is touched
    if spec.kind == "existing":
        if dry_run:
            return print_addons(spec, output)
        save_spec(spec, Home())
        install_into(spec, spec.context or spec.name, output)
        return 0
    gone = leaving_hosts(load_spec(spec.name, Home()), spec)
    check_forgotten(spec, forget)
    leaving = [host for host in gone if host.name not in forget]
    software = load_software(spec, Home())
    if software is not None:
        spec = with_manifests(spec, software, cache_folder(Home()))
    with open_session(spec, accept_new_host_keys, leaving, changes=not dry_run) as session:
        spec = session.spec
        seen = {host.name: session.facts[host.name] for host in spec.hosts if host.name in session.facts}
        more = host_problems(software.manifest, seen) if software else []
        session.check([*more, *lost_problems(session, leaving)])
        check_machines(session, leaving)
        check_context(session)
        progress = ProgressTable([host.name for host in (*spec.hosts, *leaving)], output, session.logs)
        programs = {} if dry_run else flanneld_of(spec, seen, cache_folder(Home()))
        for line in unpinned(spec, programs):
            say(f"longboat: {line}")
        work = ClusterUp(spec, session.hosts.connections, session.facts, progress.listen, software, programs)
        plan = work.plan()  # what it refuses is refused before a host leaves
        if dry_run:
            print_plan(plan, leaving, output, spec.addons)
            return 0
        for name in forget:
            forget_host(session, name, gone)
        if leaving:
            take_away(session, leaving, progress, grace_s=grace)
        save_spec(spec, session.home)
        return finish(session, work.run(plan), progress, output)


def up_in_cloud(spec: ClusterSpec, *, dry_run: bool, output: str) -> int:
    if spec.kind == "azure":
        from longboat.cli.cluster.cloud.azure import up_azure

        return up_azure(spec, dry_run=dry_run, output=output)
    if spec.kind == "gcp":
        from longboat.cli.cluster.cloud.gcp import up_gcp

        return up_gcp(spec, dry_run=dry_run, output=output)
    from longboat.cli.cluster.cloud.up import up_cloud

    return up_cloud(spec, dry_run=dry_run, output=output)


def from_bundle(spec: ClusterSpec, location: str | None) -> ClusterSpec:
    """`--from` in place of the file's `source`."""
    if location is None:
        return spec
    if spec.kind == "existing" or spec.cloud is not None:
        raise UsageError("--from: nothing is installed on hosts of this kind of cluster")
    return msgspec.structs.replace(spec, source=bundle_source(location))


def leaving_hosts(before: ClusterSpec | None, spec: ClusterSpec) -> list[HostSpec]:
    """Hosts of the last `up` that are no longer in the file. Refuses a changed role or first control plane."""
    if before is None or before.kind != spec.kind:
        return []
    now = {host.name: host for host in spec.hosts}
    planes, first = [host.name for host in before.control_planes], spec.control_planes[0].name
    if first not in planes:
        raise Refused(
            f"the first control plane of {spec.name} is {planes[0]}, and the file now has {first}",
            hint=f"role: control-plane of {planes[0]} keeps it"
            + (f"; of several any other one may come first: {', '.join(planes[1:])}" if planes[1:] else "")
            + "; longboat cluster down takes all of it down",
        )
    changed = [host.name for host in before.hosts if host.name in now and now[host.name].role != host.role]
    if changed:
        raise Refused(
            f"{', '.join(changed)}: a role cannot change", hint="take the host out, `up`, then put it in again"
        )
    return [host for host in before.hosts if host.name not in now]


def lost_problems(session: ClusterSession, leaving: Sequence[HostSpec]) -> list[HostProblem]:
    """Hosts of the cluster that do not answer. Those that left the file cannot be undone, and may come back as nodes.
    Without its only control plane there is no cluster to go on with.
    """
    kept, planes = load_spec(session.spec.name, session.home), session.spec.control_planes
    names = {host.name for host in (kept.hosts if kept is not None else ())}
    staying = [host for host in session.spec.hosts if host.name in names and planes != (host,)]
    gone = (
        "it is not in the file any more",
        "bring it back; or, if it is lost for good: --forget {} goes on without it",
    )
    lost = (
        "it is part of the cluster",
        "bring it back; or, if it is lost for good, take it out of the file: --forget {} goes on",
    )
    return [
        HostProblem(
            host=host.name, check="connection", severity="warning", message=message, remedy=remedy.format(host.name)
        )
        for hosts, (message, remedy) in ((leaving, gone), (staying, lost))
        for host in hosts
        if host.name in session.unreachable
    ]


def check_machines(session: ClusterSession, leaving: Sequence[HostSpec]) -> None:
    """Refuse to remove a host that stays in the file under another name."""
    staying = {facts.machine_id: name for name, facts in session.facts.items() if name not in {h.name for h in leaving}}
    for host in leaving:
        facts = session.facts.get(host.name)
        if facts is not None and facts.machine_id and facts.machine_id in staying:
            raise Refused(
                f"{host.name} and {staying[facts.machine_id]} are the same machine", hint=f"keep the name {host.name}"
            )


def check_forgotten(spec: ClusterSpec, forget: Sequence[str]) -> None:
    for name in forget:
        if name in {host.name for host in spec.hosts}:
            raise UsageError(f"--forget {name}: take the host out of the file, then forget it")
        if not re.fullmatch(rules.NODE, name):
            raise UsageError(f"--forget {name}: expected {rules.NODE_EXPECTED}")


def forget_host(session: ClusterSession, name: str, gone: Sequence[HostSpec]) -> None:
    """`gone`: hosts of the last `up` from here that are no longer in the file; those of others the cluster knows."""
    control, known = session.hosts[session.spec.control_planes[0].name], {host.name: host for host in gone}
    is_plane = name in known and known[name].role == "control-plane"
    if is_plane or len(session.spec.control_planes) > 1:
        is_plane = remove_member(control, name) or is_plane
    if name not in known and not is_plane and name not in {node.name for node in read_nodes(control)}:
        raise UsageError(f"--forget {name}: {session.spec.name} has no such node")
    delete_node(control, name)
    say(f"longboat: {name} is forgotten; what `up` changed there is still there")
    if is_plane:  # its kubelet speaks with its own API server alone, which has no etcd any more
        host = known.get(name)
        login = Login(host.address, host.user, host.port).text if host is not None else name
        say(f"hint: when it is back: longboat cluster down --hosts {login} --name {session.spec.name}")
    else:
        say("hint: when it is back, put it into the file, up, take it out, and up once more undoes it")


def check_context(session: ClusterSession) -> None:
    """A new cluster needs its name in the kubeconfig: told now, and not when it is made and cannot be renamed."""
    from longboat.clusters.kubeconfig_file import check_name

    if not any("kubernetes" in dict(facts.done) for facts in session.facts.values()):
        check_name(session.spec.name, os.environ)


def take_away(session: ClusterSession, leaving: Sequence[HostSpec], progress: ProgressTable, *, grace_s: float) -> None:
    """Drain and reset the hosts that leave; trainings on them have `grace_s` to save."""
    connections = session.hosts.connections
    work = ClusterDown(session.spec, connections, session.facts, progress.listen, grace_s=grace_s, leaving=leaving)
    result = work.run()
    if not result.is_clean:
        for line in (*failure_lines(result.failures, session.logs), *audit_lines(result.audits)):
            say(line)
        names = ", ".join(host.name for host in leaving)
        raise EngineError(f"{names}: could not leave the cluster", hint="the same command again tries what is left")


def finish(session: ClusterSession, result: UpResult, progress: ProgressTable, output: str) -> int:
    spec = session.spec
    for line in failure_lines(result.failures, session.logs):
        say(line)
    if result.kubeconfig:
        merge(spec, result.kubeconfig)
    if result.failures:
        raise EngineError(
            f"{spec.name}: {len({failure.host for failure in result.failures})} of {len(spec.hosts)} hosts failed",
            hint="mend what is named above, then the same command again goes on from there",
        )
    install_into(spec, spec.name, output)
    if "gpu" in spec.addons:
        verify_gpus(session, progress)
    say(closing(spec, result))
    return 0


def verify_gpus(session: ClusterSession, progress: ProgressTable) -> None:
    """Run a pod with all GPUs of each GPU host and print what it saw, whoever installed the device plugin."""
    work = GpuVerification(session.spec, session.hosts.connections, session.facts, progress.listen)
    work.run()
    for report in work.reports:
        for line in report.table.splitlines():
            say(clean(line))
        say(f"longboat: {report.host}: {counted(report.gpus, 'GPU')}{f', {report.note}' if report.note else ''}")
    for line in failure_lines(work.failures, session.logs):
        say(line)
    if work.failures:
        names = ", ".join(failure.host for failure in work.failures)
        raise EngineError(f"the GPUs of {names} do not work", hint="mend what is named above, then the same command")
    if not work.names:
        say("longboat: no host of the file has an NVIDIA GPU")


def closing(spec: ClusterSpec, result: UpResult) -> str:
    nodes = f"{len(result.nodes)} node{'s are' if len(result.nodes) != 1 else ' is'} ready"
    word = "nothing to do" if not result.changes else f"{result.changes} changes"
    return f"longboat: {spec.name}: {nodes}, {word}; longboat run --on {spec.name} -- hostname"


def merge(spec: ClusterSpec, text: str) -> None:
    from longboat.clusters.kubeconfig_file import put_context

    put_context(text, spec.name, os.environ)


def print_plan(plan: ClusterPlan, leaving: Sequence[HostSpec], output: str, addons: Sequence[str]) -> None:
    does = "leaves the cluster: drained, then everything there is undone"
    if output == "json":
        leave = [{"name": "leave", "does": does, "needs": ()}]
        records = [*plan_record(plan), *({"host": host.name, "steps": leave, "kept": ()} for host in leaving)]
        sys.stdout.write(msgspec.json.encode(records).decode() + "\n")
        return
    for host in leaving:
        print(f"{host.name}\n  - {does}")
    for line in plan_lines(plan):
        if line != NOTHING or not leaving:
            print(line)
    if addons:
        print(f"then, when the nodes are ready, what is missing of the add-ons: {', '.join(addons)}")


def plan_record(plan: ClusterPlan) -> list[dict[str, object]]:
    return [
        {
            "host": host.host,
            "steps": [{"name": step.name, "does": step.title, "needs": step.needs} for step in host.steps],
            "kept": [{"name": kept.name, "reason": kept.reason} for kept in host.kept],
        }
        for host in plan.hosts
    ]


def plan_lines(plan: ClusterPlan) -> Sequence[str]:
    lines = [line for host in plan.hosts for line in host_lines(host)]
    if plan.is_empty:
        lines.append(NOTHING)
    else:
        lines.append("then, when the hosts have joined: network between pods, labels, taints")
    return lines


def host_lines(host: HostPlan) -> Sequence[str]:
    steps = [f"  + {step.name}: {step.title}" for step in host.steps]
    return [host.host, *steps, *(f"  = {kept.name}: {kept.reason}" for kept in host.kept)]
