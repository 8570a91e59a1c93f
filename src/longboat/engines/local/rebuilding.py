"""Repair of a run whose own files are damaged: its record and state from its attempts' files. Changes no file.

A disk that lost a file, or half of one, must not make a run unreadable: the launchers' files (`plan.json`,
`outcome.json`, `rank-<r>.json`, `beat.json`) tell nearly the same story. What is rebuilt is never tried again: nobody
knows whether the run had ended long ago. Where the files do not tell how it ended, the run is lost, with the reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from longboat.core.errors import RUN_LOST_EXIT
from longboat.core.jobs import PASSIVE_ROLES, Job, Role
from longboat.core.runs import Attempt, Failure, Phase
from longboat.engines.local.records import LocalRecord, LocalState, RunFolder
from longboat.engines.local.supervise.attempt_files import Heartbeat, is_started, read_ending
from longboat.engines.local.supervise.attempt_outcome import AttemptEnd, judge, stop_code
from longboat.engines.shared.files import is_locked, read_value
from longboat.engines.shared.retry_policy import describe

UNKNOWN = "unknown"
DAMAGED = "its state.json was damaged"
DAMAGED_RECORD = "its record.json was damaged"


def rebuilt_record(files: RunFolder) -> LocalRecord:
    """As much of what was submitted as the newest attempt's plans tell."""
    plans = _plans(files)
    first: Mapping[str, Any] = plans[0] if plans else {}
    roles = _roles(plans) or (Role(name="worker", run=f"({UNKNOWN}: {DAMAGED_RECORD})"),)
    deciding = tuple(role.name for role in roles if role.name not in PASSIVE_ROLES)
    folder = first.get("checkpoint_dir") or files.directory.parent.parent / "checkpoints" / files.directory.name
    job = Job(name=files.directory.name, roles=roles, ends=deciding or (roles[0].name,), workdir=None)
    return LocalRecord(
        name=files.directory.name,
        uid=str(first.get("uid") or UNKNOWN),
        job=job,
        base="/",
        created=_changed(files.lock) or _changed(files.directory),
        user=_owner(files.directory),
        checkpoint_dir=str(folder),
        checkpoint_store=first.get("checkpoint_store"),
    )


def _plans(files: RunFolder) -> list[Mapping[str, Any]]:
    """Plans of the newest attempt that has any, in the order of the nodes."""
    for attempt in reversed(files.attempts()):
        read = [read_value(path, dict[str, Any]) for path in files.attempt_dir(attempt).glob("*/plan.json")]
        plans = [plan for plan in read if plan and plan.get("role") and isinstance(plan.get("node_rank"), int)]
        if plans:
            return sorted(plans, key=lambda plan: int(plan["node_rank"]))
    return []


def _roles(plans: list[Mapping[str, Any]]) -> tuple[Role, ...]:
    roles: dict[str, Role] = {}
    for plan in plans:
        name, command = str(plan["role"]), plan.get("command")
        known = roles.get(name)
        run = tuple(map(str, command)) if isinstance(command, list) else str(command)
        ranks = plan.get("ranks")
        procs = len(ranks) if isinstance(ranks, list) and ranks else 1
        roles[name] = Role(name=name, run=run, nodes=known.nodes + 1 if known else 1, procs=procs)
    return tuple(roles.values())


def rebuilt_state(
    files: RunFolder, record: LocalRecord, progress: LocalState | None, *, is_alone: bool, damaged: str = DAMAGED
) -> LocalState:
    """Where the run stands by its attempts' files. Final, unless its supervisor lives.

    `progress` is what was last noted beside the damaged file: the times and the attempts that had ended are in it.
    """
    known = progress or LocalState()
    numbers = files.attempts()
    number = max([known.attempt, *numbers])
    attempts = tuple(_attempt(files, record, known, each) for each in numbers)
    started = known.started or min((each.started for each in attempts if each.started), default=None)
    state = msgspec.structs.replace(known, attempt=number, attempts=attempts, started=started)
    if not is_alone and is_locked(files.lock):
        return msgspec.structs.replace(state, phase=_phase(files, number, record), reason=f"{damaged}; the run goes on")
    ended = max((each.ended for each in attempts if each.ended), default=None) or _changed(files.directory)
    phase, exit_code, failure = _ending(files, record, state, damaged)
    return msgspec.structs.replace(
        state,
        phase=phase,
        exit_code=exit_code,
        cause=failure.cause if failure and phase == "failed" else None,
        reason=f"{describe(failure)} ({damaged})" if failure else f"{damaged}; its launchers' files tell how it ended",
        ended=ended,
        gpus=(),
    )


def _ending(
    files: RunFolder, record: LocalRecord, state: LocalState, damaged: str
) -> tuple[Phase, int | None, Failure | None]:
    if not is_started(files, state.attempt):
        if files.stop_request() is not None:
            return "stopped", None, None
        return (
            "failed",
            RUN_LOST_EXIT,
            Failure(cause="lost", exit_code=RUN_LOST_EXIT, message="no file tells how it ended"),
        )
    ending = read_ending(files.attempt_dir(state.attempt), record, state)
    failure = judge(_with_lost_message(ending, "no file tells how it ended"))
    if failure is not None:
        return ("stopped" if ending.reason == "stop" else "failed"), failure.exit_code, failure
    return ("stopped", stop_code(ending), None) if ending.reason == "stop" else ("succeeded", 0, None)


def _with_lost_message(ending: AttemptEnd, words: str) -> AttemptEnd:
    """The end with this message for a missing outcome: it is unknown, not a kill."""
    return msgspec.structs.replace(ending, lost_message=words)


def _attempt(files: RunFolder, record: LocalRecord, known: LocalState, number: int) -> Attempt:
    noted = next((attempt for attempt in known.attempts if attempt.number == number), None)
    if noted is not None and noted.ended is not None:
        return noted
    folder = files.attempt_dir(number)
    outcomes = [_changed(path) for path in folder.glob("*/outcome.json")]
    launchers = [_changed(path) for path in folder.glob("*/launcher.json")]
    plans = [read_value(path, dict[str, Any]) or {} for path in sorted(folder.glob("*/plan.json"))]
    resumed = next((str(plan["resume_from"]) for plan in plans if plan.get("resume_from")), None)
    is_over = len(outcomes) == record.job.nodes or number != max(files.attempts())
    failure = judge(read_ending(folder, record, known)) if is_over and is_started(files, number) else None
    return noted or Attempt(
        number=number,
        started=min(launchers, default=_changed(folder)),
        ended=max(outcomes, default=None) if is_over else None,
        failure=failure,
        resumed_from=resumed,
    )


def _phase(files: RunFolder, number: int, record: LocalRecord) -> Phase:
    beats = [read_value(path, Heartbeat) for path in files.attempt_dir(number).glob("*/beat.json")]
    running = [beat for beat in beats if beat is not None and beat.phase in ("running", "ending")]
    if len(running) == record.job.nodes:
        return "running"
    return "starting" if beats else "pending"


def _changed(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _owner(path: Path) -> str:
    import pwd

    try:
        return pwd.getpwuid(path.stat().st_uid).pw_name
    except (OSError, KeyError):
        return UNKNOWN
