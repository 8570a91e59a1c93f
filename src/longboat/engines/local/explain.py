"""The post-mortem of a run on this machine: what its directory tells, in the words of `explanations`."""

from __future__ import annotations

from collections.abc import Mapping

from longboat.core.runs import Explanation, RunStatus
from longboat.engines.local.queue.machine import observe_machine
from longboat.engines.local.queue.slots import openings_of
from longboat.engines.local.records import LocalRecord
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.code_snapshot import with_missed_files
from longboat.engines.shared.explanations import explain_status, with_openings
from longboat.engines.shared.files import last_lines_of
from longboat.engines.shared.home import Home

__all__ = ["explain_run", "explain_status"]


def explain_run(
    home: Home, files: RunFiles, record: LocalRecord, status: RunStatus, environment: Mapping[str, str]
) -> Explanation:
    failures = [attempt.failure for attempt in status.attempts if attempt.failure is not None]
    setup_log = _setup_tail(files, status)
    failure = failures[-1] if failures else None
    explanation = explain_status(status, failure, setup_log)
    if status.phase == "pending":
        machine = observe_machine(home.root, environment, with_gpus=bool(record.job.gpus))
        return with_openings(explanation, openings_of(home, machine, status.name))
    if failure is None or status.phase != "failed":
        return explanation
    return with_missed_files(explanation, home, (record.bundle, record.job, failure), lines=setup_log, is_cluster=False)


def _setup_tail(files: RunFiles, status: RunStatus) -> tuple[str, ...]:
    for path in sorted(files.attempt_dir(status.attempt).glob("*/logs/setup.out")):
        lines = last_lines_of(path)
        if lines:
            return tuple(lines[-15:])
    return ()
