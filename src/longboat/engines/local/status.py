"""The status of a run, observed from its files."""

from __future__ import annotations

import contextlib
from pathlib import Path

from longboat.bundles.disk import full_disk
from longboat.core.errors import EngineError
from longboat.core.runs import RunStatus, latest_step
from longboat.engines.local.records import LocalRecord, LocalState
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_files import Heartbeat, rank_statuses
from longboat.engines.shared.files import read_value
from longboat.engines.shared.run_summary import brief
from longboat.engines.shared.secret_urls import redacted_job

ENGINE = "local"


def brief_status(record: LocalRecord, state: LocalState, files: RunFiles | None = None) -> RunStatus:
    """Status for lists; `files`: read the step of a run that has not ended."""
    import msgspec

    if files is not None and state.started is not None and not state.is_final:
        step, metrics = latest_step(rank_statuses(files, record, state))
    else:
        step, metrics = state.step, state.metrics
    priority = record.job.priority if state.priority is None else state.priority
    return msgspec.structs.replace(brief(ENGINE, record, state), step=step, metrics=metrics, priority=priority)


def full_status(files: RunFiles, record: LocalRecord, state: LocalState) -> RunStatus:
    import msgspec

    from longboat.storage.checkpoints import newest_complete

    ranks = rank_statuses(files, record, state)
    step, metrics = latest_step(ranks)
    newest: Path | str | None = None
    if record.checkpoint_store is not None:
        newest = sent_checkpoint(files)
    else:
        with contextlib.suppress(EngineError):  # a folder that cannot be read takes nothing else of the status away
            newest = newest_complete(Path(record.checkpoint_dir))
    return msgspec.structs.replace(
        brief_status(record, state),
        reason=state.reason or ("" if state.is_final else problem_of(files, state)),
        step=step,
        metrics=metrics,
        checkpoint=str(newest) if newest else None,
        checkpoint_dir=record.checkpoint_store or record.checkpoint_dir,
        artifacts_dir=str(files.artifacts),
        directory=str(files.directory),
        ranks=tuple(ranks),
        spec=redacted_job(record.job),
    )


def problem_of(files: RunFiles, state: LocalState) -> str:
    """Why output of the run cannot be written: as its launchers say; on a full disk they can not even say it."""
    for path in sorted(files.attempt_dir(state.attempt).glob("*/beat.json")):
        if (beat := read_value(path, Heartbeat)) and beat.problems:
            return beat.problems[0]
    return full_disk(str(files.directory)) or ""


def sent_checkpoint(files: RunFiles) -> str | None:
    """The newest that the object store has, as a launcher noted it."""
    for attempt in reversed(files.attempts()):
        for note in sorted(files.attempt_dir(attempt).glob("*/mirrored.json")):
            values = read_value(note, dict[str, str])
            if values and values.get("checkpoint"):
                return values["checkpoint"]
    return None
