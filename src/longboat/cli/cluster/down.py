"""`longboat cluster down`: everything that `up` added is taken away, and shown to be gone."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence

import click
import msgspec

from longboat.cli.cluster.addons import remove_from, remove_from_existing
from longboat.cli.cluster.progress import ProgressTable, failure_lines
from longboat.cli.cluster.session import ClusterSession, login_options, open_session
from longboat.cli.cluster.target import chosen_file, spec_of, target_options
from longboat.cli.input.arguments import seconds
from longboat.cli.output.terminal import clean, is_terminal, say
from longboat.clusters.apply.etcd_members import remove_member
from longboat.clusters.apply.undo import HostAudit
from longboat.clusters.down import ClusterDown, DownResult
from longboat.clusters.fields.rules import Login
from longboat.clusters.plan.kubeadm import ADMIN
from longboat.clusters.spec import ClusterSpec
from longboat.clusters.spec_store import forget_spec, load_spec
from longboat.core.errors import EngineError, Refused, UsageError
from longboat.core.words import counted, listing
from longboat.engines.shared.home import Home

MOST_SHOWN = 10  # the rest is like these: a folder that was forgotten


@click.command("down", short_help="Take the cluster down; the hosts are as they were before.")
@target_options
@login_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--purge-data", is_flag=True, help="Delete data of users too: volumes, and objects of add-ons' kinds.")
@click.option("--forget", multiple=True, metavar="HOST", help="A host that is gone for good: go on without it.")
@click.option(
    "--grace",
    default="60s",
    show_default=True,
    metavar="TIME",
    callback=seconds,
    help="Trainings have so long to save.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: an event per line.")
def command(
    yes: bool, purge_data: bool, forget: tuple[str, ...], grace: float, output: str, accept_new_host_keys: bool
) -> int:
    """Take the cluster down: nodes are drained, changes undone in reverse order, and every host is compared with its
    state before `up`. Exit code 0 only if nothing of ours is left.
    """
    spec = spec_of()
    if spec.cloud is not None:
        return down_in_cloud(spec, yes=yes, purges=purge_data, output=output)
    kept = load_spec(spec.name, Home()) if spec.kind != "existing" else None
    is_apart = chosen_file() is None and is_of_others(spec, kept)
    if not is_apart:
        spec = with_left_behind(spec, kept)
    if is_apart and purge_data:
        raise UsageError(f"--purge-data: the cluster {spec.name} goes on without these hosts")
    unknown = sorted(set(forget) - {host.name for host in spec.hosts})
    if unknown:
        raise UsageError(f"--forget {unknown[0]}: no such host in {spec.name}")
    if not yes:
        confirm(spec, purges=purge_data)
    if spec.kind == "existing":
        return remove_from_existing(spec, purge=purge_data)
    with open_session(spec, accept_new_host_keys, changes=True) as session:
        progress = ProgressTable([host.name for host in spec.hosts], output, session.logs)
        check_members(session)
        session = take_lost_out(session, forget)
        # The control plane of a host that was forgotten may lead to those that go on, with their add-ons and volumes.
        purged = () if is_apart else remove_from(session, purge=purge_data)
        work = ClusterDown(
            session.spec, session.hosts.connections, session.facts, progress.listen, grace_s=grace, purged=purged
        )
        return finish(session, work.run(), forget, is_apart=is_apart)


def down_in_cloud(spec: ClusterSpec, *, yes: bool, purges: bool, output: str) -> int:
    if spec.kind == "azure":
        from longboat.cli.cluster.cloud.azure import down_azure

        return down_azure(spec, yes=yes, purges=purges, output=output)
    if spec.kind == "gcp":
        from longboat.cli.cluster.cloud.gcp import down_gcp

        return down_gcp(spec, yes=yes, purges=purges, output=output)
    from longboat.cli.cluster.cloud.down import down_cloud

    return down_cloud(spec, yes=yes, purges=purges, output=output)


def is_of_others(spec: ClusterSpec, kept: ClusterSpec | None) -> bool:
    """Whether these hosts are none of the cluster as it is kept here: forgotten ones that are back, or a cluster of the
    same name. Which of the two, their journals say; what is kept stays.
    """
    names = {host.name for host in spec.hosts}
    return kept is not None and bool(kept.hosts) and not any(host.name in names for host in kept.hosts)


def with_left_behind(spec: ClusterSpec, before: ClusterSpec | None) -> ClusterSpec:
    """Add hosts that were removed from the file since the last `up`: they are still part of the cluster. Refuses a file
    that has none of its hosts: whoever wrote it means another cluster, of the same name.
    """
    names = {host.name for host in spec.hosts}
    left = tuple(host for host in (before.hosts if before else ()) if host.name not in names)
    if is_of_others(spec, before):
        kept = listing([host.name for host in left], MOST_SHOWN)
        hint = f"longboat cluster down {spec.name} takes that one down; --name is for others without a file"
        raise Refused(f"the cluster {spec.name} that was made from here has other hosts: {kept}", hint=hint)
    return msgspec.structs.replace(spec, hosts=(*spec.hosts, *left)) if left else spec


def confirm(spec: ClusterSpec, *, purges: bool) -> None:
    if not is_terminal(sys.stdin):
        raise UsageError("taking a cluster down is asked for twice", hint="--yes says so without a question")
    if spec.kind == "existing":
        question = f"take the add-ons out of {spec.context}"
    else:
        names = listing([host.name for host in spec.hosts], MOST_SHOWN)
        question = f"take down {spec.name} ({names}), and all that runs there"
    if purges:
        question += ", and DELETE the volumes of its users"
    click.confirm(f"{question}?", abort=True, err=True)


def check_members(session: ClusterSession) -> None:
    """Refuse, before any change, hosts that are part of another cluster."""
    name = session.spec.name
    others = {facts.name: facts.journal_cluster for facts in session.facts.values()}
    wrong = [f"{host} is part of {cluster}" for host, cluster in others.items() if cluster not in ("", name)]
    if wrong:
        hint = "longboat cluster down NAME, or its file"
        if any(cluster.startswith(f"{name} (") for cluster in others.values()):
            kept = session.home.root / "clusters" / f"{name}.json"
            hint = f"another cluster has this name; if this one was made anew elsewhere, remove {kept}"
        raise Refused(f"not hosts of {name}: {', '.join(wrong)}", hint=hint)


def audit_lines(audits: Sequence[HostAudit]) -> Iterator[str]:
    """How hosts differ from what they were before `up`."""
    for report in audits:
        for text in report.ours[:MOST_SHOWN]:
            yield f"{report.host}: left: {clean(text)}"
        if len(report.ours) > MOST_SHOWN:
            yield f"{report.host}: left: and {len(report.ours) - MOST_SHOWN} more"
        if report.others:
            yield f"{report.host}: changed by others since `up`: {clean(listing(report.others, 3))}"


def take_lost_out(session: ClusterSession, forget: Sequence[str]) -> ClusterSession:
    """The same with lost hosts at the end, and before them control planes that never joined, so that one that is part
    of the cluster speaks for it. Lost ones are taken out of etcd: the others leave it one by one, which needs a
    majority of its members each time.
    """
    spec = session.spec
    lost = [host for host in spec.hosts if host.name in forget and host.name in session.unreachable]
    if not lost:
        return session
    planes = [host.name for host in spec.control_planes if has_joined(session, host.name)]
    apart = [host for host in spec.control_planes if host not in lost and host.name not in planes] if planes else []
    hosts = (*(host for host in spec.hosts if host not in lost and host not in apart), *apart, *lost)
    take_out_of_etcd(session, planes, [host.name for host in lost if host.role == "control-plane"])
    return dataclasses.replace(session, spec=msgspec.structs.replace(spec, hosts=hosts))


def has_joined(session: ClusterSession, name: str) -> bool:
    facts = session.facts.get(name)
    return facts is not None and facts.journal_cluster == session.spec.name and bool(facts.file(ADMIN))


def take_out_of_etcd(session: ClusterSession, planes: Sequence[str], lost: Sequence[str]) -> None:
    """One that cannot do it is not asked again while there are others: its own member may never have started."""
    left = list(planes)
    for name in lost if left else ():
        while True:
            try:
                remove_member(session.hosts[left[0]], name)
                break
            except EngineError as error:
                if len(left) == 1:
                    say(f"warning: {clean(error.message)}")
                    break
            del left[0]


def finish(session: ClusterSession, result: DownResult, forget: tuple[str, ...], *, is_apart: bool = False) -> int:
    """`is_apart`: the cluster that is kept here under this name goes on without these hosts."""
    from longboat.clusters.kubeconfig_file import leave_context

    spec = session.spec
    for line in failure_lines(result.failures, session.logs):
        say(line)
    for line in audit_lines(result.audits):
        say(line)
    for each in result.kept:
        names = clean(listing(each.names, MOST_SHOWN))
        say(f"longboat: kept: volumes of users in {spec.storage.folder} on {each.host}: {names}")
    if result.kept:
        say(
            "hint: --purge-data deletes the volumes of the cluster that goes; others are deleted on their host, by hand"
        )
    missing = [error for name, error in session.unreachable.items() if name not in forget]
    for error in missing:
        say(f"error: {clean(error.message)}")
    for host in spec.hosts:
        if host.name in forget and host.name in session.unreachable:
            login = Login(host.address, host.user, host.port).text
            say(f"longboat: {host.name} is forgotten; what `up` changed there is still there")
            say(f"hint: when it is back: longboat cluster down --hosts {login} --name {spec.name}")
    if missing or not result.is_clean:
        raise EngineError(
            f"{spec.name} is not all gone",
            hint="the same command again tries what is left; --forget HOST goes on without a host that is lost",
        )
    if is_apart:
        say(f"longboat: nothing of {spec.name} is left on {counted(len(session.facts), 'host')}")
        return 0
    leave_context(spec.name, os.environ, lambda text: say(clean(text)))
    forget_spec(spec.name, session.home)
    say(f"longboat: {gone_words(session, result)}")
    return 0


def gone_words(session: ClusterSession, result: DownResult) -> str:
    if result.audits:
        return f"{session.spec.name} is gone; nothing of it is left on {counted(len(result.audits), 'host')}"
    if session.facts:
        return f"nothing of {session.spec.name} is on {counted(len(session.facts), 'host')}"
    return f"{session.spec.name} is forgotten: none of its hosts answers"
