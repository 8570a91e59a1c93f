"""`longboat doctor`: is this machine, or a cluster, fit for runs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from longboat.cli.input.arguments import output_option
from longboat.cli.input.engine_option import engine_options, open_engine
from longboat.cli.output.formats import plain, write
from longboat.cli.output.terminal import clean, note, paint, say
from longboat.core.errors import EngineError, UsageError

if TYPE_CHECKING:
    from longboat.doctor.examine import ClusterTarget, Diagnosis
    from longboat.doctor.findings import Finding

COLOURS = {"ok": "green", "warning": "yellow", "broken": "red", "skipped": "dim"}


@click.command("doctor", short_help="Check this machine, or a cluster.")
@click.option("--fix", is_flag=True, help="Mend what is safe to mend; each finding says what that is.")
@click.option("--no-pods", is_flag=True, help="Of a cluster: look only, make no pods and no claim.")
@click.option("--bandwidth", is_flag=True, help="Of a cluster: measure between pods, and between GPUs of a node.")
@output_option("table", "wide", "json", "yaml", "name")
@engine_options
def command(fix: bool, no_pods: bool, bandwidth: bool, output: str) -> int:
    """Check what runs need on this machine (or, with --on, in a cluster), and say how to mend what is missing.

    A cluster is examined from the kubeconfig to a pod that trains for one step; pods of the doctor are removed again.
    Exit code 205 if something is broken, 0 otherwise: warnings and what could not be looked at are said.
    """
    engine = open_engine()
    if engine.name == "kubernetes":
        from longboat.doctor.examine import ClusterTarget

        target = ClusterTarget(engine.client, engine.settings, engine.environment)  # type: ignore[attr-defined]
        if bandwidth and no_pods:
            raise UsageError("--bandwidth needs pods, and --no-pods makes none", hint="leave one of them out")
        diagnosis = of_cluster(target, fix=fix, with_pods=not no_pods)
        diagnosis = with_bandwidth(target, diagnosis) if bandwidth else diagnosis
    else:
        if no_pods or bandwidth:
            option = "--no-pods" if no_pods else "--bandwidth"
            raise UsageError(f"{option} is for a cluster", hint=f"longboat doctor --on CONTEXT {option}")
        diagnosis = of_machine()
    show(diagnosis.findings, output)
    return EngineError.exit_code if any(finding.status == "broken" for finding in diagnosis.findings) else 0


def of_machine() -> Diagnosis:
    from longboat.doctor.examine import examine_machine
    from longboat.engines.shared.home import Home
    from longboat.sdk.engines import local_settings

    return examine_machine(Home(), os.environ, local_settings())


def of_cluster(target: ClusterTarget, *, fix: bool, with_pods: bool) -> Diagnosis:
    from longboat.doctor.examine import examine_cluster, with_new
    from longboat.doctor.fixes import fix_cluster

    diagnosis = examine_cluster(target, with_pods=with_pods, notice=note)
    done = fix_cluster(target, diagnosis) if fix else {}
    for name, text in done.items():
        say(f"longboat: fixed {name}: {clean(text)}")
    return with_new(diagnosis, examine_cluster(target, with_pods=False), set(done)) if done else diagnosis


def with_bandwidth(target: ClusterTarget, diagnosis: Diagnosis) -> Diagnosis:
    import msgspec

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
