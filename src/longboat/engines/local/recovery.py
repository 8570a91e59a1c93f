"""A supervisor that vanished: noticed by its free lock, replaced by another one that carries on from the files."""

from __future__ import annotations

import os
import time
from pathlib import Path

from longboat.core.errors import RUN_LOST_EXIT
from longboat.core.jobs import Value
from longboat.engines.local.decisions import Ending, Outcome
from longboat.engines.local.files import read_value, write_value
from longboat.engines.local.gang import drain, hold, let_go, live_launchers, reports_of
from longboat.engines.local.processes import boot_id, descendants, kill_until_gone, marked
from longboat.engines.local.records import Record, RunFiles, State, replace

RESPAWNS = 5
"""How many supervisors in a row may die without having changed the run's state."""


class Respawns(Value, frozen=True):
    count: int
    state_ns: int  # when the state was last written


def may_respawn(files: RunFiles) -> bool:
    """Whether another supervisor is worth a try. The caller holds the run's lock.

    One that dies again and again before it has done anything ends the run, with the reason, instead of for ever.
    """
    path = files.directory / "respawns.json"
    before = read_value(path, Respawns)
    state_ns = files.state_ns()
    count = before.count + 1 if before is not None and before.state_ns == state_ns else 1
    if count <= RESPAWNS:
        write_value(path, Respawns(count=count, state_ns=state_ns))
        return True
    kill_until_gone(lambda: marked(files.record().uid))
    words = files.log.read_text(errors="replace").splitlines() if files.log.exists() else []
    reason = f"its supervisor died {RESPAWNS} times at once: {words[-1] if words else 'no reason was given'}"
    state = files.state()
    files.write_state(
        replace(state, phase="failed", exit_code=RUN_LOST_EXIT, cause="lost", reason=reason, ended=time.time())
    )
    return False


def is_started(files: RunFiles, attempt: int) -> bool:
    """Whether any launcher of this attempt ever ran."""
    return any(files.attempt_dir(attempt).glob("*/launcher.json"))


def ending_of_files(files: RunFiles, record: Record, state: State) -> Ending | None:
    """Wait for the launchers that the old supervisor left (they end by themselves), sweep, and read how it ended.

    None when the attempt had not started.
    """
    folder = files.attempt_dir(state.attempt)
    nodes = [path.parent for path in folder.glob("*/plan.json")]
    held = hold(folder.glob("*/pipes/*"))
    deadline = time.monotonic() + record.job.grace_s + 10.0
    while live_launchers(nodes) and time.monotonic() < deadline:
        time.sleep(0.02)
    drain(held)
    kill_until_gone(lambda: [*marked(record.uid), *descendants(os.getpid())])
    drain(held)
    let_go(held)
    if not is_started(files, state.attempt):
        return None
    return read_ending(folder, record, state)


def read_ending(folder: Path, record: Record, state: State) -> Ending:
    nodes = {f"{role.name}-{index}": role.name for role in record.job.roles for index in range(role.nodes)}
    outcomes = {name: read_value(folder / name / "outcome.json", Outcome) for name in nodes}
    restarted = state.supervisor is not None and state.supervisor.boot_id not in (None, boot_id())
    return Ending(
        outcomes={name: outcome for name, outcome in outcomes.items() if outcome is not None},
        reports=[report for name in nodes for report in reports_of(folder / name)],
        nodes=list(nodes),
        deciding=[name for name, role in nodes.items() if role in record.job.ends and not _follows(folder / name)],
        reason="stop" if files_stopped(folder) else None,
        lost_message="the machine restarted" if restarted else "the run's supervisor was killed",
    )


def _follows(node: Path) -> bool:
    """Whether the node only served a remote mpirun: it ends when it is told to."""
    plan = read_value(node / "plan.json", dict[str, object]) or {}
    return plan.get("starter") == "follower"


def files_stopped(folder: Path) -> bool:
    """Whether a stop had been asked for before."""
    return (folder.parent.parent / "stop.json").exists()
