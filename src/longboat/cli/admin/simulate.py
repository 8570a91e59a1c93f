"""`longboat autoscaler simulate`: a trace replayed against policies. Parsing and showing; the work is `simulator`'s."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from longboat.core.errors import UsageError
from longboat.core.jobs import Value
from longboat.core.words import counted

if TYPE_CHECKING:
    from longboat.autoscaler.model.snapshot import AutoscalerSettings, Pool
    from longboat.simulator.results import PolicyOutcome
    from longboat.simulator.traces import Trace
    from longboat.simulator.tuning import Trial
    from longboat.simulator.world import Conditions

GENERATE = "generate:"
ROWS = (
    ("GPU-hours provisioned", "gpu_hours_provisioned"),
    ("GPU-hours requested", "gpu_hours_requested"),
    ("held by partial gangs", "gpu_hours_held_by_partial_gangs"),
    ("GPU-hours lost", "gpu_hours_lost"),
    ("cost", "cost"),
    ("wait p50 (s)", "wait_p50_s"),
    ("wait p99 (s)", "wait_p99_s"),
    ("gang wait p99 (s)", "gang_wait_p99_s"),
    ("turnaround mean (s)", "turnaround_mean_s"),
    ("training evictions", "training_evictions"),
    ("evictions", "evictions"),
    ("flaps", "flaps"),
    ("decide CPU (s)", "decide_cpu_s"),
    ("jobs finished", "jobs_finished"),
)


class SimulateOptions(Value, frozen=True):
    """Options of `longboat autoscaler simulate`."""

    trace: str | None
    pools: str | None
    policies: tuple[str, ...]
    output: str
    picture: str | None
    from_cluster: str | None
    tune: bool
    seed: int
    jobs: int
    interval_s: float
    write_trace: str | None


def command_of(given: dict[str, Any]) -> tuple[SimulateOptions, Conditions]:
    """Validate the options before heavy modules are imported."""
    from longboat.cli.output.times import parse_duration
    from longboat.simulator.scheduler import RANKINGS
    from longboat.simulator.world import Conditions

    ranking = given.pop("scheduler")
    if ranking is not None and ranking not in RANKINGS:
        raise UsageError(f"--scheduler: no such ranking: {ranking}", hint=f"one of {', '.join(RANKINGS)}")
    interval_s = parse_duration(given.pop("interval"))
    if interval_s <= 0:
        raise UsageError("--interval: a loop takes time", hint="--interval 10s")
    conditions = Conditions(
        ranking=ranking,
        checkpoint_s=parse_duration(given.pop("checkpoint")),
        stockouts=given.pop("stockouts"),
        never_join=given.pop("never_join"),
        elastic=given.pop("elastic"),
        is_protected=given.pop("protect"),
        seed=given["seed"],
    )
    policies = tuple(given.pop("policies"))
    return SimulateOptions(policies=policies, interval_s=interval_s, **given), conditions


def run(asked: SimulateOptions, conditions: Conditions) -> None:
    policies = _policies(asked.policies)
    if asked.picture is not None:
        from longboat.simulator.svg import check_name

        check_name(asked.picture)
    trace, real = _trace(asked)
    if asked.write_trace is not None:
        from longboat.simulator.traces import write_trace

        write_trace(trace, asked.write_trace)
        if asked.pools is None and asked.from_cluster is None:
            return
    pools, settings = _pools(asked)
    if trace.without_gpus:
        _tell(f"{counted(trace.without_gpus, 'job')} without GPUs left out")
    if asked.tune:
        _tune(asked, trace, pools, settings, conditions)
        return
    from longboat.simulator.comparing import simulate

    outcomes = [real] if real is not None else []
    for name in policies:
        outcomes.append(simulate(trace, pools, settings, name, conditions, asked.interval_s))
    _notes(outcomes)
    _show(outcomes, asked.output)
    if asked.picture is not None:
        from longboat.simulator.svg import demand_picture, write_picture

        title = f"{trace.name}: {counted(len(trace.jobs), 'job')}"
        write_picture(demand_picture(outcomes, title), asked.picture, title)


def _policies(names: Sequence[str]) -> list[str]:
    from longboat.core.words import nearest
    from longboat.simulator.policies import NAMES

    chosen = list(dict.fromkeys(part.strip() for name in names for part in name.split(",") if part.strip()))
    if "all" in chosen:
        return list(NAMES)
    for name in chosen:
        if name not in NAMES:
            near = nearest(name, NAMES)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(NAMES)}, or all"
            raise UsageError(f"no such policy: {name}", hint=hint)
    return chosen or ["longboat"]


def _trace(asked: SimulateOptions) -> tuple[Trace, PolicyOutcome | None]:
    """The trace to replay; of a recorded cluster also its real outcome."""
    if asked.from_cluster is not None:
        if asked.trace is not None:
            raise UsageError("TRACE and --from-cluster exclude each other", hint="name one of them")
        from longboat.simulator.recorded import read_recording, recorded

        return recorded(read_recording(asked.from_cluster))
    if asked.trace is None:
        hint = "longboat autoscaler simulate jobs.csv --pools pools.yaml, or generate:philly instead of a file"
        raise UsageError("the argument TRACE is missing", hint=hint)
    if asked.trace.startswith(GENERATE):
        from longboat.core.words import nearest
        from longboat.simulator.generators import GENERATORS, generate

        kind = asked.trace.removeprefix(GENERATE)
        near = [] if kind in GENERATORS else nearest(kind, list(GENERATORS))
        if near:
            raise UsageError(f"no such generator: {kind}", hint=f"did you mean {GENERATE}{near[0]}?")
        return generate(kind, seed=asked.seed, jobs=asked.jobs), None
    from longboat.simulator.traces import read_trace

    return read_trace(asked.trace), None


def _pools(asked: SimulateOptions) -> tuple[Sequence[Pool], AutoscalerSettings]:
    if asked.pools is not None:
        from longboat.autoscaler.model.pools_file import read_pools

        return read_pools(asked.pools)
    if asked.from_cluster is not None:
        from longboat.simulator.recorded import read_recording

        last = read_recording(asked.from_cluster).saved[-1]
        if last.snapshot.pools:
            return last.snapshot.pools, last.settings
    raise UsageError("the option --pools is missing", hint="it names the file with the pools that may be used")


def _notes(outcomes: Sequence[PolicyOutcome]) -> None:
    """Print the limits of the comparison to stderr."""
    from longboat.simulator.policies import MODELS

    models = [policy_outcome.policy for policy_outcome in outcomes if policy_outcome.policy in MODELS]
    if models:
        _tell(f"{', '.join(models)}: models made from documented rules, not the programs themselves")
    if any(outcome.policy == "oracle" for outcome in outcomes):
        _tell("oracle: a lower bound with all knowledge, no boot, no idle machine and free moves; it cannot be run")
    for result in outcomes:
        if result.unfinished:
            _tell(
                f"{result.policy}: {counted(result.unfinished, 'job')} never ran to their end: the pools are too small"
            )


def _tell(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _show(outcomes: Sequence[PolicyOutcome], output: str) -> None:
    if output != "table":
        from longboat.cli.output.formats import write

        by_policy = {outcome.policy: _plain(outcome) for outcome in outcomes}
        write(next(iter(by_policy.values())) if len(by_policy) == 1 else by_policy, output)
        return
    from longboat.cli.output.tables import print_table

    rows: list[tuple[object, ...]] = []
    for label, field in ROWS:
        rows.append((label, *(_cell(getattr(outcome.figures, field)) for outcome in outcomes)))
    for name in ("cluster-autoscaler", "oracle"):
        least = next((outcome.figures.gpu_hours_provisioned for outcome in outcomes if outcome.policy == name), 0.0)
        if least and len(outcomes) > 1:
            ratios = (f"{policy_outcome.figures.gpu_hours_provisioned / least:.3f}" for policy_outcome in outcomes)
            rows.append((f"GPU-hours, x {name}", *ratios))
    from longboat.simulator.policies import MODELS

    names = [f"{outcome.policy} (model)" if outcome.policy in MODELS else outcome.policy for outcome in outcomes]
    print_table(("", *names), rows)


def _plain(outcome: PolicyOutcome) -> dict[str, Any]:
    import msgspec

    return msgspec.structs.asdict(outcome.figures)


def _cell(value: float | int | None) -> str | None:
    if value is None:
        return None
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _tune(
    asked: SimulateOptions, trace: Trace, pools: Sequence[Pool], settings: AutoscalerSettings, conditions: Conditions
) -> None:
    from longboat.simulator.tuning import marked, trials

    tried = marked(list(trials(trace, pools, settings, conditions, asked.interval_s)))
    if asked.output != "table":
        from longboat.cli.output.formats import write

        write([_plain_trial(trial) for trial in tried], asked.output)
    else:
        from longboat.cli.output.tables import print_table
        from longboat.cli.output.times import show_duration

        rows = [
            (
                show_duration(trial.idle_s),
                trial.spare,
                *(_cell(value) for value in (trial.figures.gpu_hours_provisioned, trial.figures.cost)),
                *(_cell(value) for value in (trial.figures.wait_p50_s, trial.figures.wait_p99_s, trial.figures.flaps)),
                "*" if trial.is_best else "",
            )
            for trial in sorted(tried, key=lambda trial: trial.figures.gpu_hours_provisioned)
        ]
        print_table(("IDLE", "SPARE", "GPU-HOURS", "COST", "WAIT P50 (s)", "WAIT P99 (s)", "FLAPS", "BEST"), rows)
    if asked.picture is not None:
        from longboat.simulator.svg import curve_picture, write_picture

        title = f"{trace.name}: what less waiting costs"
        write_picture(curve_picture(tried, title), asked.picture, title)


def _plain_trial(trial: Trial) -> dict[str, Any]:
    import msgspec

    tried = {"idle_s": trial.idle_s, "spare": trial.spare}
    return {"settings": tried, "is_best": trial.is_best, **msgspec.structs.asdict(trial.figures)}
