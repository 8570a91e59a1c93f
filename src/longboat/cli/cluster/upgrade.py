"""`longboat cluster upgrade`: another version of Kubernetes, one node after the other, trainings respected."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import click
import msgspec

from longboat.cli.cluster.progress import ProgressTable, failure_lines
from longboat.cli.cluster.session import ClusterSession, login_options, open_session
from longboat.cli.cluster.target import chosen_file, spec_of, target_options
from longboat.cli.cluster.up import host_lines, plan_record
from longboat.cli.input.arguments import seconds
from longboat.cli.output.terminal import clean, is_terminal, say
from longboat.clusters.apply.nodes import read_nodes, read_trainings
from longboat.clusters.apply.upgrade import ClusterUpgrade, Patience, UpgradeResult
from longboat.clusters.cluster_file import with_version
from longboat.clusters.offline.addon_files import archive_references
from longboat.clusters.plan.steps import ClusterPlan
from longboat.clusters.plan.upgrade_plan import UpgradePlan, plan_upgrade
from longboat.clusters.spec import ClusterSpec, Versions
from longboat.clusters.spec_store import save_spec
from longboat.clusters.up import image_archive, load_keys
from longboat.clusters.versions import combination, tested_lines
from longboat.core.errors import EngineError, UsageError
from longboat.core.words import counted, listing
from longboat.engines.shared.files import disk, write_bytes


@click.command("upgrade", short_help="Upgrade Kubernetes, one node after the other.")
@target_options
@login_options
@click.option(
    "--to", metavar="VERSION", help="The new version; it is written into the file. Default: what the file has."
)
@click.option("--dry-run", is_flag=True, help="Look at the hosts, print the plan and stop.")
@click.option("--now", is_flag=True, help="Do not wait for trainings: they are told to save and end.")
@click.option(
    "--wait", default="24h", show_default=True, metavar="TIME", callback=seconds,
    help="Wait so long for the trainings on a node.",
)  # fmt: skip
@click.option(
    "--grace", default="5m", show_default=True, metavar="TIME", callback=seconds,
    help="Pods that have to go have so long to save.",
)  # fmt: skip
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: an event per line.")
def command(
    to: str | None, dry_run: bool, now: bool, wait: float, grace: float, yes: bool, output: str,
    accept_new_host_keys: bool,
) -> int:  # fmt: skip
    """Upgrade Kubernetes to the version in the cluster file: control planes first, one node at a time, one minor
    version at a time.

    A node is cordoned, its trainings end or are waited for, it gets the new version and takes pods again. The first
    failure stops; after that, or any interruption, the same command goes on.
    """
    spec = spec_of()
    if spec.kind == "existing":
        raise UsageError(f"{spec.name} is an existing cluster: whoever made it upgrades it")
    if spec.cloud is not None:
        hint = "write `version` into its file, then longboat cluster up"
        raise UsageError(f"{spec.name} is upgraded by its cloud", hint=hint)
    if to is not None:
        spec = msgspec.structs.replace(spec, versions=_versions(spec, to))
    with open_session(spec, accept_new_host_keys, changes=not dry_run) as session:
        spec = session.spec
        session.check()
        plan, trainings = look(session)
        if dry_run or plan.is_empty:
            show(spec, plan, trainings, output)
            return 0
        patience = Patience(wait_s=0.0 if now else wait, grace_s=grace)
        if not yes:
            patience = confirm(spec, plan, trainings, patience)
        if to is not None:
            write_version(spec)
        save_spec(spec, session.home)
        progress = ProgressTable([host.name for host in spec.hosts], output, session.logs)
        work = ClusterUpgrade(
            plan, session.hosts.connections, progress.listen, control=spec.control_planes[0].name,
            images=lambda: image_archive(spec), patience=patience,
        )  # fmt: skip
        return finish(session, plan, work.run())


def _versions(spec: ClusterSpec, to: str) -> Versions:
    kept = spec.versions
    versions = combination(kubernetes=to.removeprefix("v"), containerd=kept.containerd, flannel=kept.flannel)
    if versions is None:
        raise UsageError(f"--to {to}: not a version that is tested with the rest", hint=f"tested: {tested_lines()}")
    return versions


def look(session: ClusterSession) -> tuple[UpgradePlan, Mapping[str, Sequence[str]]]:
    """The upgrade plan, and the trainings on nodes that would be drained."""
    spec = session.spec
    control = session.hosts[spec.control_planes[0].name]
    keys = load_keys(spec, list(session.facts.values()))
    # Where no host is a member yet, there is nobody to ask for nodes; the plan says so.
    is_made = any("kubernetes" in dict(facts.done) for facts in session.facts.values())
    nodes = read_nodes(control) if is_made else ()
    plan = plan_upgrade(spec, session.facts, nodes, keys, archive_references(spec))
    return plan, read_trainings(control, plan.drained) if plan.drained else {}


def show(spec: ClusterSpec, plan: UpgradePlan, trainings: Mapping[str, Sequence[str]], output: str) -> None:
    if output == "json":
        record = {
            "from": plan.before,
            "to": plan.version,
            "prepare": plan_record(plan.prepare),
            "nodes": plan_record(ClusterPlan(hosts=plan.nodes)),
            "trainings": trainings,
        }
        print(msgspec.json.encode(record).decode())
        return
    for line in lines(spec, plan, trainings):
        print(line)


def lines(spec: ClusterSpec, plan: UpgradePlan, trainings: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if plan.is_empty:
        yield f"{spec.name}: all nodes have Kubernetes {plan.version}: nothing to do"
        return
    yield f"{spec.name}: Kubernetes {plan.before} -> {plan.version}"
    if plan.prepare.steps:
        yield "all hosts side by side:"
        for host in plan.prepare.hosts:
            yield from host_lines(host)
    yield "then one node after the other:"
    for host in plan.nodes:
        yield from host_lines(host)
        if host.host in trainings:
            yield f"    runs there now: {clean(listing(trainings[host.host], 3))}"


def confirm(
    spec: ClusterSpec, plan: UpgradePlan, trainings: Mapping[str, Sequence[str]], patience: Patience
) -> Patience:  # fmt: skip
    """Ask for confirmation, and whether to wait for trainings; on a terminal only."""
    if not is_terminal(sys.stdin):
        raise UsageError("an upgrade is asked for twice", hint="--yes says so without a question")
    for line in lines(spec, plan, trainings):
        say(line)
    click.confirm(f"upgrade {counted(len(plan.nodes), 'node')} of {spec.name}?", abort=True, err=True)
    if not trainings or not patience.wait_s:
        return patience
    pods = sum(map(len, trainings.values()))
    answer = click.prompt(
        f"{counted(pods, 'pod')} of trainings: wait for their end, or tell them now to save and end?",
        type=click.Choice(["wait", "now"]), default="wait", err=True,
    )  # fmt: skip
    return msgspec.structs.replace(patience, wait_s=0.0) if answer == "now" else patience


def write_version(spec: ClusterSpec) -> None:
    """Write the new version into the cluster file before any change, so that an interrupted upgrade can continue."""
    path = chosen_file()
    if path is None:
        return
    path = path.resolve()  # a link stays a link
    with disk(f"write {path}", is_home=False):
        before, mode = path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777
        after = with_version(before, spec.versions.kubernetes)
        if after is None:
            raise UsageError(
                f"{path}: the version cannot be written into this file",
                hint=f"write `versions: {spec.versions.kubernetes}` into it, then leave out --to",
            )
        if after != before:
            write_bytes(path, after.encode(), is_durable=True)
            path.chmod(mode)
            say(f"longboat: {path} has versions: {spec.versions.kubernetes} now")


def finish(session: ClusterSession, plan: UpgradePlan, result: UpgradeResult) -> int:
    spec = session.spec
    for line in failure_lines(result.failures, session.logs):
        say(line)
    if result.failures:
        left = len(plan.nodes) - len(result.upgraded)
        raise EngineError(
            f"{spec.name}: the upgrade to {plan.version} stopped: {counted(left, 'node')} of {len(plan.nodes)} left",
            hint="mend what is named above; longboat cluster upgrade goes on from there, and kubectl uncordon NODE "
            "lets a node take pods meanwhile",
        )
    say(f"longboat: {spec.name}: {counted(len(result.upgraded), 'node')} upgraded to Kubernetes {plan.version}")
    return 0
