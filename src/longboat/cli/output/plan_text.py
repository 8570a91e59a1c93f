"""Plans as text: the job, how it is laid out, what would be done and why."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from longboat.cli.output.formats import plain, write
from longboat.cli.output.tables import print_table
from longboat.cli.output.terminal import clean, note
from longboat.core.jobs import Command, Job
from longboat.core.layouts import Layout, NodeLayout
from longboat.core.plans import Plan
from longboat.engines.engine import Engine, Submission
from longboat.engines.shared.secret_urls import redacted_job
from longboat.specs.dump import job_to_mapping, to_yaml


def plan_record(plan: Plan, notices: Sequence[str]) -> dict[str, object]:
    return {
        "job": job_to_mapping(redacted_job(plan.job)),
        "framework_reason": plan.job.framework_reason,
        "layout": plain(plan.layout),
        "actions": plain(plan.actions),
        "notices": [*notices, *plan.notices],
    }


def show_plan(plan: Plan, notices: Sequence[str], output: str | None, *, env: bool = False) -> int:
    """Print the plan of a dry run and return the exit code."""
    if output in ("json", "yaml"):
        write(plan_record(plan, notices), output)
        return 0
    if output == "name":
        print(plan.job.name)
        return 0
    print_job(plan.job)
    if plan.layout is not None:
        print()
        print_layout(plan.layout, env=env)
    if plan.actions:
        print("\n# what would be done")
        print_table(("DO", "WHAT", "WHY"), [(action.kind, action.what, action.reason) for action in plan.actions])
    for notice in (*notices, *plan.notices):
        note(notice)
    return 0


def show_manifests(place: Engine, submission: Submission, notices: Sequence[str]) -> int:
    """Print the run's Kubernetes objects, ready for `kubectl apply -f -`."""
    import sys

    import yaml

    from longboat.engines.kubernetes.engine import KubernetesEngine

    assert isinstance(place, KubernetesEngine)
    objects, manifest_notices = place.manifests(submission)
    yaml.dump_all(objects, sys.stdout, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
    for notice in (*notices, *manifest_notices):
        note(notice)
    return 0


def print_job(job: Job) -> None:
    print("# the job, as it was understood")
    print(to_yaml(job_to_mapping(redacted_job(job))), end="")
    print(f"# framework {job.framework}: {job.framework_reason}")


def print_layout(layout: Layout, *, env: bool) -> None:
    print(f"# the layout: {layout.world_size} rank{'s' * (layout.world_size != 1)}")
    print_table(
        ("NODE", "ADDRESS", "RANKS", "STARTED BY", "COMMAND"),
        [(node.name, node.address, span(node), node.starter, show_command(node.command)) for node in layout.nodes],
    )
    if env:
        for node in layout.nodes:
            print_env(node)


def span(node: NodeLayout) -> str:
    """A range of ranks: `0-3`."""
    ranks = [rank.rank for rank in node.ranks]
    if not ranks:
        return "-"
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"


def print_env(node: NodeLayout) -> None:
    """Print the environment of each rank of a node as shell assignments."""
    for rank in node.ranks:
        print(f"\n# {node.name}/{rank.rank}")
        for key, value in sorted({**node.env, **rank.env}.items()):
            print(f"{key}={shlex.quote(value)}")


def show_command(command: Command) -> str:
    return clean(command if isinstance(command, str) else shlex.join(command))
