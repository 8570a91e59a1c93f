"""`longboat doctor`: is this machine, or a cluster, fit for runs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from longboat.cli.input.arguments import output_option
from longboat.cli.input.engine_option import engine_options, open_engine, same_place
from longboat.cli.output.formats import plain, write
from longboat.cli.output.terminal import clean, is_terminal, note, paint, say
from longboat.core.errors import EngineError, UsageError

if TYPE_CHECKING:
    from longboat.doctor.examine import ClusterTarget, Diagnosis
    from longboat.doctor.findings import Finding

COLOURS = {"ok": "green", "warning": "yellow", "broken": "red", "skipped": "dim"}


@click.command("doctor", short_help="Check this machine, or a cluster.")
@click.option("--cluster", "file", metavar="FILE", help="The hosts of a cluster file, over SSH, and their cluster.")
@click.option("--fix", is_flag=True, help="Mend what is safe to mend; each finding says what that is.")
@click.option("--no-pods", is_flag=True, help="Of a cluster: look only, make no pods and no claim.")
@click.option("--bandwidth", is_flag=True, help="Of a cluster: measure between pods, and between GPUs of a node.")
@click.option(
    "--bundle", metavar="FILE", help="Write findings and facts, without secrets, to a .tar.gz for a bug report."
)
@output_option("table", "wide", "json", "yaml", "name")
@engine_options
def command(file: str | None, bundle: str | None, output: str, **switches: bool) -> int:
    """Check what runs need on this machine (or, with --on, in a cluster), and say how to mend what is missing.

    A cluster is examined from the kubeconfig to a pod that trains for one step; pods of the doctor are removed again.
    Exit code 205 if something is broken; 0 otherwise, also with warnings and with checks that could not be made.
    """
    if switches["bandwidth"] and switches["no_pods"]:
        raise UsageError("--bandwidth needs pods, and --no-pods makes none", hint="leave one of them out")
    target, diagnosis = examined(file, switches)
    if bundle is not None:
        from longboat.doctor.bundle import contents, write_bundle

        write_bundle(Path(bundle), contents(target, diagnosis, os.environ))
        say(f"longboat: wrote {bundle}; look into it before you send it")
    show(diagnosis.findings, output)
    return EngineError.exit_code if any(finding.status == "broken" for finding in diagnosis.findings) else 0


def examined(file: str | None, switches: dict[str, bool]) -> tuple[ClusterTarget | None, Diagnosis]:
    if file is not None:
        return of_file(file, switches)
    engine = open_engine()
    if engine.name == "kubernetes":
        from longboat.doctor.examine import ClusterTarget

        target = ClusterTarget(engine.client, engine.settings, engine.environment)  # type: ignore[attr-defined]
        return target, of_cluster(target, switches)
    for option in ("no_pods", "bandwidth", "fix"):
        if switches[option]:
            shown = f"--{option.replace('_', '-')}"
            raise UsageError(f"{shown} is for a cluster", hint=f"longboat doctor --on CONTEXT {shown}")
    return None, of_machine()


def of_machine() -> Diagnosis:
    from longboat.doctor.examine import examine_machine
    from longboat.engines.shared.home import Home
    from longboat.sdk.engines import local_settings

    return examine_machine(Home(), os.environ, local_settings())


def of_file(file: str, switches: dict[str, bool]) -> tuple[ClusterTarget | None, Diagnosis]:
    """The hosts of a cluster file, and the cluster where the kubeconfig has its context."""
    from longboat.cli.input.sudo_password import ask_password
    from longboat.clusters.cluster_file import read_cluster
    from longboat.clusters.hosts.pool import connect
    from longboat.clusters.hosts.settings import LoginSettings
    from longboat.clusters.spec_store import load_spec
    from longboat.doctor.examine import ClusterTarget, examine_hosts, joined
    from longboat.doctor.fixes import fix_hosts
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.engines.shared.home import Home
    from longboat.kubeapi.errors import KubeconfigError

    if same_place():
        raise UsageError("--cluster names the cluster already", hint="leave --on, --engine and --namespace out")
    spec = read_cluster(file)
    kept = load_spec(spec.name, Home())
    with connect(spec.hosts, LoginSettings(ask_password=ask_password)) as hosts:
        diagnosis = examine_hosts(spec, hosts, kept)
        if switches["fix"] and (done := fix_hosts(hosts, diagnosis)):
            for text in done.values():
                say(f"longboat: fixed {clean(text)}")
            diagnosis = examine_hosts(spec, hosts, kept)
    engine = KubernetesEngine(context=spec.context or spec.name)
    try:
        target = ClusterTarget(engine.client, engine.settings, engine.environment)
    except KubeconfigError as error:
        note(f"only the hosts were examined: {error.message}")
        return None, diagnosis
    return target, joined(diagnosis, of_cluster(target, switches))


def of_cluster(target: ClusterTarget, switches: dict[str, bool]) -> Diagnosis:
    from longboat.doctor.examine import examine_cluster, with_new
    from longboat.doctor.fixes import fix_cluster

    if is_terminal(sys.stderr):
        pods = "" if switches["no_pods"] else "; pods that look around may take a minute"
        say(f"longboat: examining {target.client.context}{pods}")
    diagnosis = examine_cluster(target, with_pods=not switches["no_pods"], notice=note)
    done = fix_cluster(target, diagnosis) if switches["fix"] else {}
    for name, text in done.items():
        say(f"longboat: fixed {name}: {clean(text)}")
    if done:
        diagnosis = with_new(diagnosis, examine_cluster(target, with_pods=False), set(done))
    return with_bandwidth(target, diagnosis) if switches["bandwidth"] else diagnosis


def with_bandwidth(target: ClusterTarget, diagnosis: Diagnosis) -> Diagnosis:
    from longboat.doctor.bandwidth import measure
    from longboat.doctor.facts import CLUSTER

    cluster = diagnosis.seen.values.get(CLUSTER)
    if cluster is None:  # out of reach
        return diagnosis
    return msgspec.structs.replace(diagnosis, findings=(*diagnosis.findings, *measure(target, cluster)))


def show(findings: Sequence[Finding], output: str) -> None:
    if output in ("json", "yaml"):
        write([plain(finding) for finding in findings], output)
    elif output == "name":
        for finding in findings:
            print(finding.name)
    else:
        print_findings(findings)


def print_findings(findings: Sequence[Finding]) -> None:
    width = max((len(finding.name) for finding in findings), default=0)
    for finding in findings:
        word = paint(finding.status.ljust(7), COLOURS[finding.status], sys.stdout)
        print(f"{word} {finding.name.ljust(width)}  {clean(finding.detail)}".rstrip())
        for label, text in (("hint", finding.hint), ("--fix", finding.fix)):
            if text:
                print(f"        {' ' * width}  {label}: {clean(text)}")
    counts = Counter(finding.status for finding in findings)
    say(", ".join(f"{counts[status]} {status}" for status in COLOURS if counts[status]))
