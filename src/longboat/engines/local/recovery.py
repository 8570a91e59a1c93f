"""Recovery from a supervisor that vanished: noticed by its free lock, replaced by another one that carries on from the
files."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from longboat.core.errors import RUN_LOST_EXIT
from longboat.core.jobs import Value
from longboat.engines.local.records import LocalRecord, LocalState, replace
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_files import began_before_restart, is_started, read_ending
from longboat.engines.local.supervise.attempt_outcome import AttemptEnd
from longboat.engines.local.supervise.launchers import live_launchers
from longboat.engines.local.supervise.pipes import close_held, drain, hold
from longboat.engines.local.supervise.processes import descendants, kill_until_gone, marked
from longboat.engines.shared.files import last_lines_of, read_value, write_value

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
    words = last_lines_of(files.log)
    reason = f"its supervisor died {RESPAWNS} times at once: {words[-1] if words else 'no reason was given'}"
    state = files.state()
    files.write_state(
        replace(state, phase="failed", exit_code=RUN_LOST_EXIT, cause="lost", reason=reason, ended=time.time())
    )
    return False


def ending_of_files(
    files: RunFiles, record: LocalRecord, state: LocalState, secrets: Sequence[str] = ()
) -> AttemptEnd | None:
    """Wait for the launchers that the old supervisor left (they end by themselves), sweep, and read how it ended.

    None when the attempt had not started. `secrets`: values that must not get into logs.
    """
    folder = files.attempt_dir(state.attempt)
    nodes = [path.parent for path in folder.glob("*/plan.json")]
    held = hold(folder.glob("*/pipes/*"))
    deadline = time.monotonic() + record.job.grace_s + 10.0  # in which launchers write how ranks ended
    while live_launchers(nodes) and time.monotonic() < deadline:
        time.sleep(0.02)
    drain(held, secrets)
    kill_until_gone(lambda: marked(record.uid))
    if record.containers is not None:  # one that was just being made has no process with the run's mark yet
        from longboat.engines.local.containers.program import remove_containers

        remove_containers(record.containers, record.uid, os.environ)
    kill_until_gone(lambda: [*marked(record.uid), *descendants(os.getpid())])
    drain(held, secrets)
    close_held(held)
    if not is_started(files, state.attempt) and not began_before_restart(state):
        return None
    return read_ending(folder, record, state)
