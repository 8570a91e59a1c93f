"""The files that launchers of an attempt left, read back: heartbeats, reports of ranks, outcomes, and what they mean
together.

A file that is missing or damaged tells nothing. No file is written and no process is looked at here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from longboat.core.jobs import Value
from longboat.core.runs import RankReport, RankStatus
from longboat.engines.local.records import LocalRecord, LocalState, RunFolder
from longboat.engines.local.supervise.attempt_outcome import AttemptEnd, NodeOutcome
from longboat.engines.local.supervise.processes import boot_id
from longboat.engines.shared.files import read_value
from longboat.metrics.usage import usage_of


class Heartbeat(Value, frozen=True):
    """Heartbeat of a launcher: fields of `beat.json` that the engine reads."""

    time: float = 0.0
    phase: str = ""
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # why output cannot be written
    gpus: tuple[dict[str, object], ...] = ()
    ranks: dict[str, dict[str, object]] = {}


class Stall(Value, frozen=True):
    """`stall.json`"""

    rank: int
    silent_s: float


def outcome_of(directory: Path) -> NodeOutcome | None:
    return read_value(directory / "outcome.json", NodeOutcome)


def beat_of(directory: Path) -> Heartbeat | None:
    return read_value(directory / "beat.json", Heartbeat)


def longest_stall(nodes: Iterable[Path]) -> tuple[int, float] | None:
    """The rank that was silent for the longest time."""
    stalls = [read_value(node / "stall.json", Stall) for node in nodes]
    longest = max((stall for stall in stalls if stall), key=lambda stall: stall.silent_s, default=None)
    return (longest.rank, longest.silent_s) if longest else None


def reports_of(directory: Path) -> list[RankReport]:
    """How the ranks of a node ended, as far as they did."""
    reports = []
    for path in sorted(directory.glob("rank-*.json")):
        report = read_value(path, RankReport)
        if report is not None:
            reports.append(report)
    return reports


def rank_statuses(files: RunFolder, record: LocalRecord, state: LocalState) -> list[RankStatus]:
    """The ranks of the current attempt."""
    statuses = []
    now = time.time()
    folder = files.attempt_dir(state.attempt)
    for role in record.job.roles:
        for index in range(role.nodes):
            node = f"{role.name}-{index}"
            beat = read_value(folder / node / "beat.json", Heartbeat) or Heartbeat()
            reports = {report.rank: report for report in reports_of(folder / node)}
            for name, facts in beat.ranks.items():
                if not name.isdecimal():
                    continue
                report = reports.get(int(name))
                signs = [
                    float(t) for t in (facts.get("step_time"), facts.get("output_time")) if isinstance(t, (int, float))
                ]
                alive = report is None and bool(facts.get("alive")) and not state.is_final
                step = facts.get("step")
                metrics = facts.get("metrics")
                statuses.append(
                    RankStatus(
                        rank=int(name),
                        role=role.name,
                        node=node,
                        alive=alive,
                        step=int(step) if isinstance(step, (int, float)) else None,
                        metrics=metrics if isinstance(metrics, dict) else {},
                        silent_s=max(0.0, now - max(signs)) if signs and alive else None,
                        exit_code=report.exit_code if report else None,
                        usage=usage_of(facts.get("usage")),
                    )
                )
    return sorted(statuses, key=lambda rank: rank.rank)


def is_started(files: RunFolder, attempt: int) -> bool:
    """Whether any launcher of this attempt ever ran."""
    return any(files.attempt_dir(attempt).glob("*/launcher.json"))


def read_ending(folder: Path, record: LocalRecord, state: LocalState) -> AttemptEnd:
    nodes = {f"{role.name}-{index}": role.name for role in record.job.roles for index in range(role.nodes)}
    outcomes = {name: read_value(folder / name / "outcome.json", NodeOutcome) for name in nodes}
    restarted = has_restarted(state)
    node_outcomes = {name: outcome or _outcome_of_reports(folder / name) for name, outcome in outcomes.items()}
    is_late = any(outcome is not None and outcome.ended_by == "timeout" for outcome in node_outcomes.values())
    return AttemptEnd(
        outcomes={name: outcome for name, outcome in node_outcomes.items() if outcome is not None},
        reports=[report for name in nodes for report in reports_of(folder / name)],
        nodes=list(nodes),
        deciding=[name for name, role in nodes.items() if role in record.job.ends and not _follows(folder / name)],
        reason="stop" if files_stopped(folder) or state.target is not None else "timeout" if is_late else None,
        timeout_s=record.job.timeout_s,
        lost_message="the machine restarted" if restarted else "the run's supervisor was killed",
    )


def _outcome_of_reports(node: Path) -> NodeOutcome | None:
    """A node whose outcome was lost has succeeded all the same if each of its ranks reported so."""
    plan = read_value(node / "plan.json", dict[str, object]) or {}
    ranks = plan.get("ranks")
    reports = [report for report in reports_of(node) if report.exit_code == 0 and report.ended_by is None]
    is_whole = isinstance(ranks, list) and bool(ranks) and len(reports) == len(ranks)
    return NodeOutcome(exit_code=0) if is_whole and plan.get("starter") == "longboat" else None


def has_restarted(state: LocalState) -> bool:
    """Whether the machine has, since the last supervisor wrote the state."""
    return state.supervisor is not None and state.supervisor.boot_id not in (None, boot_id())


def began_before_restart(state: LocalState) -> bool:
    """A restart may have taken the launchers' files along; the synced state knows that the attempt had begun."""
    return has_restarted(state) and any(a.number == state.attempt and a.ended is None for a in state.attempts)


def _follows(node: Path) -> bool:
    """Whether the node only served a remote mpirun: it ends when it is told to."""
    plan = read_value(node / "plan.json", dict[str, object]) or {}
    return plan.get("starter") == "follower"


def files_stopped(folder: Path) -> bool:
    """Whether a stop had been asked for before."""
    return (folder.parent.parent / "stop.json").exists()
