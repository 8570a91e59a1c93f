"""What is kept of a service of this machine: what is wanted (written by commands) and its state (by its supervisor)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from longboat.core.errors import NotFound, ServiceDamaged, UsageError
from longboat.core.guards.formats import Stored
from longboat.core.jobs import Command, Job, Serve, Value
from longboat.engines.engine import Submission
from longboat.engines.local.supervise.processes import ProcessId
from longboat.engines.shared.files import is_locked, is_own_folder, read_stored, write_value
from longboat.engines.shared.home import Home
from longboat.engines.shared.stop_request import StopRequest

ReplicaPhase = Literal["starting", "ready", "unready", "draining", "ended"]


class Version(Value, frozen=True):
    """One checkpoint with the code and the environment that serve it. Immutable."""

    number: int
    run: str  # that trained it
    step: int | None
    checkpoint: str | None  # a folder of the service's own; None: it is served without one
    command: Command
    job: Job
    base: str
    code: str | None = None
    outside: dict[str, str] = {}
    root: str = ""
    in_place: bool = False
    serve: Serve | None = None  # how its replicas are asked; None: as the service says

    @property
    def shown(self) -> str:
        return self.run if self.step is None else f"{self.run}:{self.step}"

    def moved(self, before: Path, after: Path) -> Version:
        """The same where the folder of its service has another name."""
        if self.checkpoint is None:
            return self
        return msgspec.structs.replace(self, checkpoint=str(after / Path(self.checkpoint).relative_to(before)))

    def submission(self, environment: dict[str, str]) -> Submission:
        """As the run was submitted; `replica_job` makes the job of a replica of it."""
        return Submission(
            job=self.job,
            base=self.base,
            code=self.code,
            outside=self.outside,
            root=self.root,
            in_place=self.in_place,
            environment=environment,
        )


class WantedService(Stored, frozen=True):
    """What the user asked for."""

    name: str
    uid: str
    created: float
    user: str
    host: str
    port: int
    serve: Serve
    versions: tuple[Version, ...]
    current: int  # number of the version that serves, or is being rolled out
    canary: int | None = None
    weight: int = 0  # of the canary, in per cent
    environment: dict[str, str] = {}  # as runs keep it: no secrets

    def version(self, number: int) -> Version:
        return next(version for version in self.versions if version.number == number)

    def settings_of(self, number: int) -> Serve:
        """How replicas of a version are asked: those of an older one go on as they were begun."""
        return self.version(number).serve or self.serve


class ReplicaState(Value, frozen=True):
    name: str  # of its run
    version: int
    port: int
    phase: ReplicaPhase = "starting"
    reason: str = ""
    in_flight: int = 0


class ServiceState(Stored, frozen=True):
    supervisor: ProcessId | None = None
    replicas: tuple[ReplicaState, ...] = ()
    next_number: int = 1  # of the next replica
    desired: int = 0
    good: int | None = None  # the newest version that had a ready replica
    failed: dict[int, str] = {}  # versions that never take requests, and why
    problem: str = ""
    follow_problem: str = ""  # why the last look at the checkpoints of its run showed nothing
    answered: int = 0
    lost: int = 0  # requests that the proxy could not get an answer for


class ServiceFolder:
    """The files of one service."""

    def __init__(self, home: Home, name: str) -> None:
        self.home = home
        self.name = name
        self.directory = home.root / "services" / name

    @property
    def lock(self) -> Path:
        return self.directory / "supervisor.lock"

    @property
    def log(self) -> Path:
        return self.directory / "supervisor.log"

    @property
    def stop(self) -> Path:
        return self.directory / "stop.json"

    @property
    def wanted_file(self) -> Path:
        return self.directory / "service.json"

    def wanted(self) -> WantedService | None:
        return read_stored(self.wanted_file, WantedService, f"the service {self.name}")

    def is_damaged(self) -> bool:
        """Whether its file is there and says nothing. In a folder that is being removed there is none."""
        return self.wanted() is None and self.wanted_file.is_file()

    def change_lock(self) -> Path:
        """Held while what is wanted is changed."""
        return self.directory / "change.lock"

    def write_wanted(self, wanted: WantedService) -> None:
        write_value(self.wanted_file, wanted, is_durable=True)

    def state(self) -> ServiceState:
        return read_stored(self.directory / "state.json", ServiceState, f"the service {self.name}") or ServiceState()

    def write_state(self, state: ServiceState) -> None:
        write_value(self.directory / "state.json", state)

    def version_dir(self, number: int) -> Path:
        return self.directory / "versions" / str(number)

    def request_stop(self, grace_s: float | None = None) -> None:
        write_value(self.stop, StopRequest(at=0.0, grace_s=grace_s), is_durable=True)

    def is_stopping(self) -> bool:
        return self.stop.exists()

    def is_own(self) -> bool:
        """Whether the caller made this service."""
        return is_own_folder(self.directory)

    def is_supervised(self) -> bool:
        """Whether a supervisor holds the service's lock."""
        return is_locked(self.lock)


def service_names(home: Home) -> list[str]:
    try:
        names = [entry.name for entry in os.scandir(home.root / "services") if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(names)


def existing(home: Home, name: str) -> tuple[ServiceFolder, WantedService]:
    """A service by its name. Raises NotFound, ServiceDamaged."""
    folder = ServiceFolder(home, name)
    wanted = folder.wanted() if name in service_names(home) else None
    if wanted is None and folder.is_damaged():
        raise ServiceDamaged(
            f"the service {name} is damaged: {folder.wanted_file} cannot be understood",
            hint=f"longboat serve stop {name} ends it, with its replicas; then make it again",
        )
    if wanted is None:
        raise NotFound(f"no service named {name!r}", hint="`longboat serve ls` lists them")
    return folder, wanted


def own(home: Home, name: str) -> tuple[ServiceFolder, WantedService]:
    """A service that the caller may change. Raises NotFound, ServiceDamaged, UsageError."""
    folder, wanted = existing(home, name)
    _check_own(folder)
    return folder, wanted


def own_or_damaged(home: Home, name: str) -> tuple[ServiceFolder, WantedService | None]:
    """A service that the caller may end; None: what was wanted of it cannot be read. Raises NotFound, UsageError."""
    try:
        return own(home, name)
    except ServiceDamaged:
        folder = ServiceFolder(home, name)
        _check_own(folder)
        return folder, None


def _check_own(folder: ServiceFolder) -> None:
    if not folder.is_own():
        raise UsageError(f"{folder.name} is a service of another user", hint="only its owner changes it")
