"""`longboat autoscaler`: what the autoscaler would do, and why."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from longboat.cli.input.arguments import PATH
from longboat.cli.input.engine_option import complete_contexts, named_context
from longboat.core.errors import NotFound, UsageError

if TYPE_CHECKING:
    from longboat.autoscaler.model.plan import ScalingPlan
    from longboat.autoscaler.model.snapshot_file import SavedSnapshot

F = TypeVar("F", bound=Callable[..., Any])

ON = click.option(
    "--on",
    "context",
    metavar="CONTEXT",
    callback=named_context,
    shell_complete=complete_contexts,
    help="The cluster of this kubeconfig context.",
)
HOME = click.option("--home", metavar="NAMESPACE", help="Namespace of the autoscaler's Lease and state.")

INPUT_OPTIONS = (
    ON,
    HOME,
    click.option(
        "--objects", type=PATH, metavar="FILE", help="Cluster objects, as kubectl get ... -o json prints them."
    ),
    click.option("--pools", type=PATH, metavar="FILE", help="The pools and settings, as YAML."),
    click.option("--snapshot", type=PATH, metavar="FILE", help="A snapshot written by --save."),
    click.option("--now", metavar="TIME", help="Decide as of this time: 2026-11-15T12:00:00Z."),
)


def input_options(function: F) -> F:
    for option in reversed(INPUT_OPTIONS):
        function = option(function)
    return function


@click.group("autoscaler", short_help="Grow and shrink pools of machines; say why.")
def command() -> None:
    """Grow pools when runs wait for machines, shrink them when machines idle, and say why.

    run does it. plan and explain change nothing: they print what would be done.
    """


@command.command("plan", short_help="Print what would be done now, and why.")
@input_options
@click.option("--save", type=PATH, metavar="FILE", help="Save the snapshot of the cluster, for --snapshot.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def plan(output: str, save: str | None, **where: str | None) -> None:
    """Print what would be done now, for whom, and why everything else is left as it is.

    Looks at the cluster at hand (--on names another), or at files.

    --objects takes the List that kubectl get nodes,pods,jobs,poddisruptionbudgets -A -o json prints.
    """
    from longboat.autoscaler.decide.decide import decide
    from longboat.cli.output.terminal import clean, say

    saved = look(**where)
    if save:
        from longboat.autoscaler.model.snapshot_file import write_saved

        write_saved(saved, save)
    for text in saved.snapshot.odd:
        say(f"longboat: {clean(text)}")
    scaling_plan = decide(saved.snapshot, saved.settings, saved.now)
    if output == "table":
        print_plan(scaling_plan)
        return
    from longboat.autoscaler.report.plan_json import plain_plan
    from longboat.cli.output.formats import write

    write(plain_plan(scaling_plan), output)


@command.command("simulate", short_help="Replay a trace of jobs, beside other autoscalers.")
@click.argument("trace", required=False, metavar="[TRACE]")
@click.option("--pools", type=PATH, metavar="FILE", help="The pools and settings, as YAML.")
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="Policy to simulate, or all. Repeatable.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option("--picture", type=PATH, metavar="FILE", help="Draw the result: an .svg or .html file.")
@click.option("--from-cluster", type=PATH, metavar="PATH", help="Replay saved snapshots (file or folder).")
@click.option("--tune", is_flag=True, help="Try settings and show cost against waiting time.")
@click.option(
    "--seed", type=int, metavar="N", default=0, show_default=True, help="Seed of generated traces and failures."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 10_000_000),
    metavar="N",
    default=5000,
    show_default=True,
    help="Number of jobs to generate.",
)
@click.option("--write-trace", type=PATH, metavar="FILE", help="Write the trace as CSV.")
@click.option("--interval", default="10s", show_default=True, metavar="TIME", help="Time between Longboat's loops.")
@click.option("--scheduler", metavar="RANKING", help="Ranking of nodes: packed, least-allocated, most-allocated.")
@click.option("--checkpoint", default="30m", show_default=True, metavar="TIME", help="How often jobs save their work.")
@click.option("--protect/--no-protect", default=True, help="Trainings carry other autoscalers' do-not-evict marks.")
@click.option(
    "--elastic", type=click.FloatRange(0, 1), metavar="SHARE", default=0.0,
    help="Share of jobs with several GPUs that may also run with half or a quarter of them.",
)  # fmt: skip
@click.option(
    "--stockouts", type=click.FloatRange(0, 1), metavar="SHARE", default=0.0, help="Share of orders that are refused."
)
@click.option(
    "--never-join", type=click.FloatRange(0, 1), metavar="SHARE", default=0.0, help="Share of machines that never join."
)
def simulate(**given: Any) -> None:
    """Replay a trace of jobs: cost and waiting times, beside other autoscalers.

    TRACE is a CSV file (timestamp, duration, num_gpus), or generate:philly, generate:bursts, generate:diurnal,
    generate:sweeps, generate:even, generate:waves. Policies: longboat, cluster-autoscaler, karpenter, ec2-autoscaler,
    static, oracle.
    """
    from longboat.cli.admin.simulate import command_of, run

    run(*command_of(given))


@command.command("explain", short_help="Say why a node, run, pod or pool is (not) scaled.")
@click.argument("name", metavar="NODE|RUN|POD|POOL")
@input_options
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
def explain(name: str, output: str, **where: str | None) -> None:
    """Say why a node, run, pod or pool is (not) scaled, and when it will be."""
    from longboat.autoscaler.decide.decide import decide
    from longboat.autoscaler.decide.explain import explain as explain_name
    from longboat.autoscaler.decide.explain import names_in

    saved = look(**where)
    scaling_plan = decide(saved.snapshot, saved.settings, saved.now)
    explanation = explain_name(name, scaling_plan, saved.snapshot, saved.settings, saved.now)
    if explanation is None:
        from longboat.core.words import nearest

        near = nearest(name, names_in(scaling_plan))
        hint = f"did you mean {near[0]}?" if near else "longboat autoscaler plan lists them all"
        raise NotFound(f"no node, run, pod or pool is called {name}", hint=hint)
    if output == "text":
        from longboat.cli.output.terminal import clean

        print(clean(explanation.headline))
        for fact in explanation.facts:
            print(f"  {clean(fact)}")
        return
    from longboat.cli.output.formats import plain, write

    write(plain(explanation), output)


@command.command("run")
@ON
@HOME
@click.option("--pools", type=PATH, metavar="FILE", required=True, help="The pools and settings, as YAML.")
@click.option("--interval", default="10s", show_default=True, metavar="TIME", help="Longest time between two loops.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Decide in every loop, change nothing.")
@click.option("--once", is_flag=True, help="End after one loop.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve /metrics, /healthz and /readyz on this port.",
)
@click.option("--log", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Log format.")
def run(context: str | None, home: str | None, pools: str, interval: str, **how: Any) -> int:
    """Grow and shrink the pools of a cluster until interrupted.

    Only the leader acts, others stand by. The state of every node is printed every loop. Messages go to the webhook (in
    Slack's format) whose address is in LONGBOAT_AUTOSCALER_WEBHOOK.
    """
    from longboat.autoscaler.service import RunOptions
    from longboat.cli.admin.autoscaler_live import run as run_live
    from longboat.core.resources import parse_duration

    try:
        interval_s = parse_duration(interval)
    except ValueError:
        raise UsageError(f"--interval: not a time: {interval!r}", hint="write it like 10s or 1m") from None
    return run_live(context, home, pools, RunOptions(interval_s=max(interval_s, 0.1), **how))


@command.command("status", short_help="Show the leader, pools, waiting runs and actions.")
@ON
@HOME
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def status(context: str | None, home: str | None, output: str) -> None:
    """Show the leader, the state of each pool, waiting runs and the latest actions."""
    from longboat.cli.admin.autoscaler_live import print_report, read_status

    report, holder, now = read_status(context, home)
    if report is None:
        raise NotFound("no autoscaler has ever worked here", hint="longboat autoscaler run --pools pools.yaml")
    if output == "table":
        print_report(report, holder, now)
        return
    from longboat.cli.output.formats import plain, write

    write({"leader": holder, **plain(report)}, output)


@command.command("retry", short_help="Ask pools again that are off or in backoff.")
@click.argument("pools", nargs=-1, metavar="[POOL]...")
@ON
@HOME
def retry(pools: tuple[str, ...], context: str | None, home: str | None) -> None:
    """Retry pools that are off or in backoff at once: the pools named, or all.

    Use it after permissions were granted, a quota was raised, or a missing node group was created.
    """
    from longboat.cli.admin.autoscaler_live import retry as forget
    from longboat.cli.output.terminal import say

    forgotten = forget(context, home, pools)
    for name in forgotten:
        print(name)
    if not forgotten:
        say("longboat: no pool is in backoff")


def look(
    *,
    objects: str | None = None,
    pools: str | None = None,
    snapshot: str | None = None,
    now: str | None = None,
    context: str | None = None,
    home: str | None = None,
) -> SavedSnapshot:
    """Read the snapshot to decide on, from files or from a cluster."""
    import msgspec

    from longboat.autoscaler.model.snapshot_file import SavedSnapshot

    moment = moment_of(now)
    if context is not None and (objects is not None or snapshot is not None):
        raise UsageError("--on excludes --objects and --snapshot", hint="name a cluster or files")
    if snapshot is not None:
        if objects is not None:
            raise UsageError("--objects and --snapshot exclude each other", hint="name one of them")
        return replayed(snapshot, pools, moment)
    if objects is None:
        from longboat.cli.admin.autoscaler_live import look_live, need_pools

        live = look_live(context, home, need_pools(pools))
        return live if moment is None else msgspec.structs.replace(live, now=moment)
    if pools is None:
        hint = "longboat autoscaler plan --objects objects.json --pools pools.yaml, or --snapshot FILE"
        raise UsageError("the option --pools is missing", hint=hint)
    from longboat.autoscaler.model.pools_file import read_pools
    from longboat.autoscaler.observe.from_objects import read_objects, snapshot_of

    pool_list, settings = read_pools(pools)
    seen = snapshot_of(read_objects(objects), pool_list)
    return SavedSnapshot(now=time.time() if moment is None else moment, snapshot=seen, settings=settings)


def replayed(snapshot: str, pools: str | None, moment: float | None) -> SavedSnapshot:
    """Read a saved snapshot, with another time or other pools where these are given."""
    import msgspec

    from longboat.autoscaler.model.snapshot_file import read_saved

    saved = read_saved(snapshot)
    if moment is not None:
        saved = msgspec.structs.replace(saved, now=moment)
    if pools is not None:
        from longboat.autoscaler.model.pools_file import read_pools

        pool_list, settings = read_pools(pools)
        seen = msgspec.structs.replace(saved.snapshot, pools=pool_list)
        saved = msgspec.structs.replace(saved, snapshot=seen, settings=settings)
    return saved


def moment_of(text: str | None) -> float | None:
    if text is None:
        return None
    from longboat.core.times import parse_time

    moment = parse_time(text.strip())
    if moment is None or not re.search(r"([zZ]|[+-][0-9]{2}:?[0-9]{2})$", text.strip()):
        problem = "not a time" if moment is None else "a time without a zone"
        raise UsageError(f"--now: {problem}: {text!r}", hint="write it like 2026-11-15T12:00:00Z")
    return moment


def print_plan(scaling_plan: ScalingPlan) -> None:
    from longboat.cli.output.tables import print_table
    from longboat.core.times import format_time

    if scaling_plan.actions:
        rows = [
            (
                action.kind,
                action.node or action.pool or action.machine,
                action.count,
                _zones(action.zones),
                action.reason,
            )
            for action in scaling_plan.actions
        ]
        print_table(("ACTION", "NODE/POOL", "COUNT", "ZONES", "REASON"), rows)
    else:
        print("nothing to do")
    if scaling_plan.waiting:
        print()
        waiting = [
            (item.run or item.pod, format_time(item.expected) if item.expected is not None else None, item.reason)
            for item in scaling_plan.waiting
        ]
        print_table(("WAITING", "EXPECTED", "REASON"), waiting)
    if scaling_plan.nodes:
        print()
        print_table(
            ("NODE", "POOL", "STATE", "REASON"),
            [(node.node, node.pool, node.state, node.reason) for node in scaling_plan.nodes],
        )
    if scaling_plan.pools:
        print()
        pools = [(pool.pool, pool.size, pool.coming, pool.reason) for pool in scaling_plan.pools]
        print_table(("POOL", "MACHINES", "COMING", "REASON"), pools)


def _zones(zones: dict[str, int]) -> str:
    return ", ".join(f"{zone}: {count}" for zone, count in sorted(zones.items()))
