"""What is stored about a run: the record (written once) and the state (written by its supervisor)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from longboat.core.errors import EngineError
from longboat.core.jobs import Job, Value
from longboat.core.runs import FINAL_PHASES, Attempt, Phase
from longboat.engines.local.files import read_value, write_value
from longboat.engines.local.processes import ProcessId

KEPT_VARIABLES = (
    "PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "TZ", "LONGBOAT_GPUS", "LONGBOAT_SLOTS",
)  # fmt: skip
"""Variables of the submitter that a later supervisor must see too. None of them is a place for secrets."""


class Record(Value, frozen=True):
    """What was submitted. Never changes."""

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
    checkpoint_store: str | None = None  # their address in an object store; the folder is then a copy
    resume_from: str | None = None  # the checkpoint of another run to begin with


class State(Value, frozen=True):
    """Where the run stands. Only the process that holds the run's supervisor lock writes it."""

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

    @property
    def is_final(self) -> bool:
        return self.phase in FINAL_PHASES


class StopRequest(Value, frozen=True):
    at: float
    grace_s: float | None = None


class RunFiles:
    """The files of one run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = directory / "supervisor.lock"
        self.wake = directory / "wake"
        self.stop = directory / "stop.json"
        self.log = directory / "supervisor.log"
        self.artifacts = directory / "artifacts"
        self._state = directory / "state.json"
        self._record = directory / "record.json"

    def record(self) -> Record:
        record = read_value(self._record, Record)
        if record is None:
            raise EngineError(f"{self._record} is missing", hint="remove the run with `longboat rm --force`")
        return record

    def state(self) -> State:
        return read_value(self._state, State) or State()

    def write_record(self, record: Record) -> None:
        write_value(self._record, record)

    def write_state(self, state: State) -> None:
        write_value(self._state, state)

    def state_ns(self) -> int:
        """When the state was last written; 0 when never."""
        try:
            return self._state.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def stop_request(self) -> StopRequest | None:
        return read_value(self.stop, StopRequest)

    def attempt_dir(self, attempt: int) -> Path:
        return self.directory / "attempts" / str(attempt)

    def attempts(self) -> list[int]:
        """Numbers of the attempts that have a folder, ascending."""
        try:
            names = [entry.name for entry in (self.directory / "attempts").iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if name.isdigit())


def replace(state: State, **changes: object) -> State:
    return msgspec.structs.replace(state, **changes)
