"""Stored sweeps: a folder each in the home, `sweeps/NAME`, with plain files that are written atomically.

`record.json` (what trials are made of, written once), `state.json` (written by the driver), `stop.json` (a request to
end it), `driver.lock` (held by the only process that drives it).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from longboat.bundles import durable
from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.guards.formats import Stored
from longboat.core.jobs import Job
from longboat.engines.shared.files import (
    disk,
    make_folder,
    open_lock,
    read_stored,
    read_value,
    remove_tree,
    try_lock,
    write_value,
)
from longboat.engines.shared.home import STEM_LIMIT, Home, check_run_id
from longboat.engines.shared.stop_request import StopRequest
from longboat.sweeps.trials import SweepState


class SweepRecord(Stored, frozen=True):
    """What trials are made of. Immutable."""

    name: str
    uid: str
    job: Job  # with `sweep`
    base: str
    created: float
    user: str
    engine: str
    context: str | None = None  # of the kubeconfig
    namespace: str | None = None
    code: str | None = None  # hash of the snapshot that all trials share
    outside: dict[str, str] = {}
    root: str = ""
    in_place: bool = False
    environment: dict[str, str] = {}  # of the submitter: what every supervisor must see too

    def run_name(self, number: int) -> str:
        return f"{self.name}-t{number}"


def needs_submitter(record: SweepRecord) -> bool:
    """Whether only a machine of its submitter drives it: optuna is installed there, and in no controller."""
    return record.job.sweep is not None and record.job.sweep.method == "optuna"


def check_sweep_name(name: str) -> None:
    """A trial's run is called NAME-t10000."""
    check_run_id(name)
    if len(name) > STEM_LIMIT:
        raise UsageError(
            f"{name!r} is too long for a sweep: {len(name)} characters", hint=f"-n NAME, at most {STEM_LIMIT}"
        )


class SweepStore(Protocol):
    """Where a sweep is kept: a folder of this machine, or an object of a cluster."""

    name: str

    def record(self) -> SweepRecord:
        """Raises NotFound, or EngineError where it is damaged."""

    def state(self) -> SweepState: ...

    def write_state(self, state: SweepState) -> None:
        """Replace the state that was read last."""

    def stop_request(self) -> StopRequest | None: ...

    def request_stop(self, request: StopRequest) -> None: ...


class SweepFolder:
    """The files of one sweep."""

    def __init__(self, home: Home, name: str) -> None:
        self.name = name
        self.directory = home.root / "sweeps" / name

    @property
    def _title(self) -> str:
        return f"the sweep {self.name}"

    @property
    def log(self) -> Path:
        return self.directory / "driver.log"

    @property
    def _record(self) -> Path:
        return self.directory / "record.json"

    @property
    def _state(self) -> Path:
        return self.directory / "state.json"

    @property
    def _stop(self) -> Path:
        return self.directory / "stop.json"

    def exists(self) -> bool:
        return self.directory.is_dir()

    def record(self) -> SweepRecord:
        """Raises NotFound, or EngineError where it is damaged."""
        record = read_stored(self._record, SweepRecord, self._title)
        if record is None and not self.exists():
            raise NotFound(f"no sweep named {self.name!r}", hint="`longboat sweep ls` lists all sweeps")
        if record is None or record.name != self.name or record.job.sweep is None:
            raise EngineError(
                f"the record of the sweep {self.name} is damaged",
                hint=f"longboat sweep rm --force {self.name}; its runs are there: longboat ps -a -l sweep={self.name}",
            )
        return record

    def state(self) -> SweepState:
        """One that is damaged, as after a power loss, is begun anew: runs that are there are found by their names."""
        return read_stored(self._state, SweepState, self._title) or SweepState()

    def write_state(self, state: SweepState) -> None:
        write_value(self._state, state, is_durable=True)

    def stop_request(self) -> StopRequest | None:
        request = read_value(self._stop, StopRequest)
        return StopRequest(at=0.0) if request is None and self._stop.exists() else request

    def request_stop(self, request: StopRequest) -> None:
        write_value(self._stop, request, is_durable=True)

    @contextmanager
    def driving(self) -> Iterator[bool]:
        """Hold the driver's lock; False where another process has it. A process that dies gives it back."""
        if not self.exists():
            yield False
            return
        lock = open_lock(self.directory / "driver.lock")
        try:
            yield try_lock(lock)
        finally:
            os.close(lock)

    def is_driven(self) -> bool:
        with self.driving() as is_free:
            return not is_free

    def create(self, record: SweepRecord) -> bool:
        """Make the folder at once with all of its files. False when the name was taken meanwhile."""
        temporary = self.directory.with_name(f".new-{record.uid}")
        make_folder(temporary, is_durable=True)
        try:
            write_value(temporary / "record.json", record, is_durable=True)
            with disk(f"create {self.directory}"):
                try:
                    os.rename(temporary, self.directory)
                except OSError:
                    if self.exists():
                        return False
                    raise
                durable.sync_folder(os.fspath(self.directory.parent))
            return True
        finally:
            if temporary.exists():
                remove_tree(temporary)

    def remove(self) -> None:
        trash = self.directory.with_name(f".gone-{os.urandom(6).hex()}")
        with disk(f"remove {self.directory}"):
            self.directory.rename(trash)
            durable.sync_folder(os.fspath(trash.parent))
        remove_tree(trash)


def sweep_names(home: Home) -> list[str]:
    """All sweeps of this home, the newest first."""
    try:
        with os.scandir(home.root / "sweeps") as entries:
            named = [(entry.stat().st_ctime, entry.name) for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for _, name in sorted(named, reverse=True)]


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    from longboat.engines.local.records import KEPT_VARIABLES

    return {name: environment[name] for name in KEPT_VARIABLES if name in environment}
