"""The status of a run, observed from its files."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from longboat.bundles.disk import full_disk
from longboat.core.errors import EngineError
from longboat.core.runs import RunStatus, latest_step
from longboat.engines.lifecycle.timeline import AttemptMarks, with_timeline
from longboat.engines.local.records import LocalRecord, LocalState, at_present
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.attempt_files import Heartbeat, rank_statuses, reports_of
from longboat.engines.shared.files import log_line, read_value
from longboat.engines.shared.home import Home
from longboat.engines.shared.run_summary import brief, with_digest
from longboat.engines.shared.secret_urls import redacted_job

ENGINE = "local"
SETTLED_NS = 100_000_000
"""File systems tell times in ticks of some milliseconds: a folder that changed just now may change again unseen."""


class EndedRuns:
    """Statuses of ended runs, for a process that lists runs again and again: each of them is read once or twice.

    Nothing is written to a run after its end but by its removal, which changes the folder of all runs.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._names: list[str] = []
        self._changed_ns = -1
        self._known: dict[str, tuple[tuple[int, int], RunStatus]] = {}
        self._looks = 0

    def look(self) -> tuple[list[RunStatus], list[str]]:
        """What is known already, and the names of runs that are to be read."""
        self._looks += 1
        try:
            changed_ns = os.stat(self._home.runs).st_mtime_ns
        except OSError:
            changed_ns = -1
        if changed_ns != self._changed_ns or changed_ns == -1:
            self._names = self._home.run_names()
            self._known = {
                name: entry
                for name in self._names
                if (entry := self._known.get(name)) is not None and entry[0] == self._folder(name)
            }
            self._changed_ns = changed_ns if time.time_ns() - changed_ns > SETTLED_NS else -1
        known = self._known
        return [status for _, status in known.values()], [name for name in self._names if name not in known]

    def keep(self, status: RunStatus) -> RunStatus:
        """Remember an ended run. Not at the first look: most commands list runs once."""
        if self._looks > 1 and (folder := self._folder(status.name)) is not None:
            self._known[status.name] = (folder, status)
        return status

    def _folder(self, name: str) -> tuple[int, int] | None:
        """Tells a folder from another of the same name."""
        try:
            folder = os.stat(self._home.runs / name)
        except OSError:
            return None
        return folder.st_ino, folder.st_ctime_ns


def brief_status(record: LocalRecord, state: LocalState, files: RunFiles | None = None) -> RunStatus:
    """Status for lists; `files`: read the step of a run that has not ended."""
    import msgspec

    record = at_present(record, state)  # it may have been read while the run had another size
    if files is not None and state.started is not None and not state.is_final:
        step, metrics = latest_step(rank_statuses(files, record, state))
    else:
        step, metrics = state.step, state.metrics
    priority = record.job.priority if state.priority is None else state.priority
    return msgspec.structs.replace(brief(ENGINE, record, state), step=step, metrics=metrics, priority=priority)


def _newest_in(folder: str) -> Path | None:
    with contextlib.suppress(OSError):
        if os.listdir(folder):  # most runs save nothing
            from longboat.storage.checkpoints import newest_complete

            return newest_complete(Path(folder))
    return None


def full_status(files: RunFiles, record: LocalRecord, state: LocalState) -> RunStatus:
    import msgspec

    record = at_present(record, state)
    ranks = rank_statuses(files, record, state)
    step, metrics = latest_step(ranks)
    newest: Path | str | None = None
    if record.checkpoint_store is not None:
        newest = sent_checkpoint(files)
    else:
        with contextlib.suppress(EngineError):  # a folder that cannot be read takes nothing else of the status away
            newest = _newest_in(record.checkpoint_dir)
    status = msgspec.structs.replace(
        brief_status(record, state),
        reason=state.reason if state.is_final else "; ".join(filter(None, (state.reason, problem_of(files, state)))),
        step=step,
        metrics=metrics,
        checkpoint=str(newest) if newest else None,
        checkpoint_dir=record.checkpoint_store or record.checkpoint_dir,
        artifacts_dir=str(files.artifacts),
        directory=str(files.directory),
        ranks=tuple(ranks),
        drill=read_value(files.drill, str) or "",
        findings=_forgotten(files, state),
        images=_images(files, record),
        spec=redacted_job(record.job),
    )
    return with_timeline(status, {attempt: _marks(files, attempt) for attempt in files.attempts()})


def _forgotten(files: RunFiles, state: LocalState) -> tuple[str, ...]:
    """That attempts have fewer variables than the submission had."""
    since = read_value(files.forgotten, float)
    number = None if since is None else next((each.number for each in state.attempts if each.started > since), None)
    if number is None:
        return ()
    return (
        f"since attempt {number + 1} it has only the variables of its submission that are on disk (PATH, HOME, "
        "VIRTUAL_ENV, ...): the others are kept in memory, and a restart of the machine empties that; what it needs of "
        "them belongs in `env` or `secrets` of the job file",
    )


def notify(home: Home, record: LocalRecord, state: LocalState) -> None:
    """Tell whoever wants to know that a run has ended."""
    from longboat.engines.lifecycle.notices import send_detached

    try:
        send_detached(home, brief_status(record, state))
    except OSError as error:
        log_line(f"no notice of the end was sent: {error.strerror}")


def _images(files: RunFiles, record: LocalRecord) -> dict[str, str]:
    """By role the image that the latest attempt ran, with its digest or id; none without containers."""
    ids = (read_value(files.images, dict[str, str]) or {}) if record.containers is not None else {}
    return {
        role.name: with_digest(role.image, ids[role.image])
        for role in record.job.roles
        if role.image and ids.get(role.image)
    }


def _marks(files: RunFiles, attempt: int) -> AttemptMarks:
    """When the first rank of an attempt was started: its ranks' reports tell it, once they have ended."""
    starts = [report.started for node in files.attempt_dir(attempt).glob("*-*") for report in reports_of(node)]
    return AttemptMarks(trained=min((start for start in starts if start), default=None))


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
