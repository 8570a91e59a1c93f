"""What the embedded engine stores about a run: the record (written once) and the state (written by its supervisor).

The state is in two files. `state.json` is synced to the disk and has what is promised: attempts that began and ended,
how the run ended. `progress.json` has the same fields and is written more often: what the run waits for, since when it
runs. A power loss may take the second one; the first holds then.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from longboat.bundles import durable
from longboat.core.elastic.sizes import at_attempt, is_elastic
from longboat.core.errors import EngineError
from longboat.core.guards.formats import FORMAT, NewerFormat, Stored
from longboat.core.jobs import Job
from longboat.core.runs import FINAL_PHASES, Attempt, Phase
from longboat.engines.lifecycle.predecessors import Predecessor
from longboat.engines.local.settings import Isolation
from longboat.engines.local.supervise.processes import ProcessId
from longboat.engines.shared.files import disk_error, is_newer_file, overwrite, read_value, write_value
from longboat.engines.shared.stop_request import StopRequest

S = TypeVar("S", bound=Stored)

KEPT_VARIABLES = (
    "PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "TZ", "LONGBOAT_GPUS", "LONGBOAT_SLOTS", "LONGBOAT_SYNC",
)  # fmt: skip
"""Variables of the submitter that a later supervisor must see too. None of them is a place for secrets."""


class LocalRecord(Stored, frozen=True):
    """The submitted job. Immutable."""

    name: str
    uid: str
    job: Job
    base: str
    created: float
    user: str
    number: int = 0  # in the queue: who was submitted first is served first
    bundle: str | None = None  # hash of the code, None when no code travels
    commit: str | None = None
    dirty: bool = False
    environment: dict[str, str] = {}  # KEPT_VARIABLES of the submitter
    path_append: tuple[str, ...] = ()  # folders after PATH, for a `python` where the user has none
    checkpoint_dir: str = ""
    made_folder: str | None = None  # it, or the topmost above it that this run makes: who made it may remove it
    checkpoint_store: str | None = None  # their address in an object store; the folder is then a copy
    resume_from: str | None = None  # the checkpoint of another run to begin with
    root: str = ""  # the folder that the code was taken of
    python_folders: tuple[str, ...] = ()  # of the working copy, that the ranks' Python imports from
    in_place: str | None = None  # the folder that the ranks run in, where there is no working copy
    outside: dict[str, str] = {}  # links of the code that lead out of its folder: path in the working copy -> target
    after: tuple[Predecessor, ...] = ()  # runs that must have succeeded before it starts
    containers: str | None = None  # podman or docker: what runs roles that have an image; None: they run without it
    gpu_isolation: Isolation = "auto"  # whether its nodes can open the device files of its own GPUs only
    mounts: dict[str, str] = {}  # what containers have at other paths: target -> folder of this machine

    def image_of(self, role: str) -> str | None:
        """The image that nodes of this role run in; None: they run on this machine itself."""
        return self.job.role(role).image if self.containers is not None else None


class LocalState(Stored, frozen=True):
    """State of the run. Only the process that holds the supervisor's lock writes it."""

    phase: Phase = "pending"
    reason: str = ""
    exit_code: int | None = None
    cause: str | None = None
    started: float | None = None
    ended: float | None = None
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()
    supervisor: ProcessId | None = None
    gpus: tuple[str, ...] = ()  # ids held
    step: int | None = None  # at its end; while it runs the heartbeats tell
    metrics: dict[str, float] = {}
    priority: int | None = None  # where it is another than the job's
    succeeded: tuple[str, ...] = ()  # of the runs that it starts after, those that were seen to have succeeded
    size: int | None = None  # of an elastic run: nodes of its elastic role
    size_reason: str = ""  # why it has no more, or what it waits for to have another number
    resizes: int = 0  # attempts so far that only changed the size
    target: int | None = None  # the attempt is being ended for this size; 0: for what fits then
    serial: int = 0  # counts what was written: of two files the one with the higher number holds

    @property
    def is_final(self) -> bool:
        return self.phase in FINAL_PHASES


class RunFolder:
    """The files of one run, as they are stored. What to do about damaged ones is decided in `runfiles`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told_to_stop: StopRequest | None = None  # by a signal, in the supervisor's process

    # Made when they are asked for: a list of a thousand runs needs two of them.

    @property
    def lock(self) -> Path:
        return self.directory / "supervisor.lock"

    @property
    def wake(self) -> Path:
        return self.directory / "wake"

    @property
    def stop(self) -> Path:
        return self.directory / "stop.json"

    @property
    def priority(self) -> Path:
        return self.directory / "priority.json"

    @property
    def drill(self) -> Path:
        """What the last recovery drill has shown."""
        return self.directory / "drill.json"

    @property
    def forgotten(self) -> Path:
        """When a supervisor took over that did not have the variables of the submission."""
        return self.directory / "forgotten.json"

    @property
    def environment(self) -> Path:
        """The name of the virtual environment that the run uses."""
        return self.directory / "environment.json"

    @property
    def log(self) -> Path:
        return self.directory / "supervisor.log"

    @property
    def artifacts(self) -> Path:
        return self.directory / "artifacts"

    @property
    def _state(self) -> Path:
        return self.directory / "state.json"

    @property
    def _progress(self) -> Path:
        return self.directory / "progress.json"

    @property
    def _record(self) -> Path:
        return self.directory / "record.json"

    def stored_record(self) -> LocalRecord | None:
        """None where it is missing, damaged or of a newer format. Without it no later attempt can be made."""
        return _known(read_value(self._record, LocalRecord))

    def stored_state(self) -> LocalState | None:
        """None where it is missing, damaged or of a newer format. What was noted beside it later holds."""
        state = _known(read_value(self._state, LocalState))
        if state is not None and state.is_final:
            return state  # nothing is noted after the end
        progress = self.stored_progress()
        return progress if state and progress and progress.serial > state.serial else state

    def stored_progress(self) -> LocalState | None:
        return _known(read_value(self._progress, LocalState))

    def check_format(self) -> None:
        """Raises NewerFormat where a newer Longboat has written one of the files."""
        if any(map(is_newer_file, (self._record, self._state, self._progress))):
            raise NewerFormat(f"run {self.directory.name}")

    def write_record(self, record: LocalRecord) -> None:
        write_value(self._record, record, is_durable=True)

    def write_state(self, state: LocalState) -> None:
        """From now on this holds, also after a power loss."""
        write_value(self._state, state, is_durable=True)

    def write_progress(self, state: LocalState) -> None:
        """Write progress that may be lost, to a file of its own: the durable state is never rewritten for it."""
        write_value(self._progress, state)

    def overwrite_progress(self, state: LocalState) -> bool:
        """The end of a run on a full disk goes into blocks that the file has already. False: it does not fit there."""
        return overwrite(self._progress, msgspec.json.encode(state))

    def sync(self) -> None:
        """Make what is readable durable: its writer may be between the rename and the sync of the folder."""
        with contextlib.suppress(OSError):
            durable.sync_folder(os.fspath(self.directory))

    def state_ns(self) -> int:
        """When the state was last written; 0 when never."""
        latest = 0
        for path in (self._state, self._progress):
            with contextlib.suppress(FileNotFoundError):
                latest = max(latest, path.stat().st_mtime_ns)
        return latest

    def stop_request(self) -> StopRequest | None:
        """Whether the user asked for the end. A damaged request is one too: only its grace is lost."""
        request = read_value(self.stop, StopRequest) or self.told_to_stop
        return StopRequest(at=0.0) if request is None and self.stop.exists() else request

    def request_stop(self, grace_s: float | None = None) -> None:
        """Ask for the end. On a full disk there is still room for a name: the empty file asks too, without a grace."""
        try:
            write_value(self.stop, StopRequest(at=time.time(), grace_s=grace_s), is_durable=True)
        except EngineError:
            try:
                self.stop.touch(mode=0o600)
            except OSError as error:
                raise disk_error(error, f"write {self.stop}") from error

    def wanted_priority(self) -> int | None:
        """The changed priority of a waiting run, if there is one."""
        return read_value(self.priority, int)

    def attempt_dir(self, attempt: int) -> Path:
        return self.directory / "attempts" / str(attempt)

    @property
    def images(self) -> Path:
        """The images of the latest attempt's containers: name -> digest or id."""
        return self.directory / "images.json"

    def attempts(self) -> list[int]:
        """Numbers of the attempts that have a folder, ascending."""
        try:
            names = [entry.name for entry in (self.directory / "attempts").iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if name.isdecimal())


def _known(value: S | None) -> S | None:
    return None if value is None or value.format > FORMAT else value


def changed_attempt(state: LocalState, **changes: object) -> tuple[Attempt, ...]:
    """The attempts, the present one with these fields; it is opened where it is not among them."""
    before = [attempt for attempt in state.attempts if attempt.number != state.attempt]
    present = next((attempt for attempt in state.attempts if attempt.number == state.attempt), None)
    present = present or Attempt(number=state.attempt, started=time.time())
    return (*before, msgspec.structs.replace(present, **changes))


def at_present(record: LocalRecord, state: LocalState) -> LocalRecord:
    """The record of an elastic run with the job as its present attempt has it; any other as it is."""
    if not is_elastic(record.job):
        return record
    job = at_attempt(record.job, state.size, resizes=state.resizes, attempts=state.attempts, attempt=state.attempt)
    return msgspec.structs.replace(record, job=job)


def replace(state: LocalState, **changes: object) -> LocalState:
    return msgspec.structs.replace(state, **changes)
