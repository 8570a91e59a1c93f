"""Replicas of a service on this machine: each is a run of the embedded engine, with a port of its own."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence

import msgspec

from longboat.core.errors import LongboatError
from longboat.core.runs import REPLICA_OF, unowned
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.queue.slots import Ports
from longboat.engines.local.records import LocalState
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.shared.files import is_current, open_lock, remove_tree, try_lock
from longboat.engines.shared.home import Home
from longboat.serving.local.records import ReplicaPhase, ReplicaState, ServiceFolder, Version, WantedService
from longboat.serving.proxy.backends import Backend
from longboat.serving.replica_job import replica_job

HOST = "127.0.0.1"
"""Replicas are asked by the proxy; programs of this machine can reach them too."""


class Replica:
    """One replica in the care of the supervisor."""

    def __init__(self, state: ReplicaState, ports: Ports | None = None) -> None:
        self.name = state.name
        self.version = state.version
        self.port = state.port
        self.phase: ReplicaPhase = state.phase
        self.reason = state.reason
        self.backend = Backend(state.name, state.version, HOST, state.port)
        self.was_ready = state.phase in ("ready", "unready")
        self.ready_since: float | None = None
        # A proxy that was killed has nothing in flight: what it was draining ends at once.
        self.drain_until: float | None = time.monotonic() if state.phase == "draining" else None
        self.stop_after = 0.0  # when to try again to end its run
        self.pending_since: float | None = None  # its run waits, or is being started
        self.is_bad = False  # its answers are not the golden ones
        self.failures = 0  # probes in a row
        self.over: str | None = None  # why it is to be restarted
        self.is_told = False  # to end, for that reason
        self._ports = ports

    def state(self) -> ReplicaState:
        return ReplicaState(
            name=self.name,
            version=self.version,
            port=self.port,
            phase=self.phase,
            reason=self.reason,
            in_flight=self.backend.in_flight,
        )

    def release(self) -> None:
        self.backend.close()
        if self._ports is not None:
            self._ports.release()
            self._ports = None


class ReplicaRuns:
    """The engine's side of replicas. Every call may block."""

    def __init__(self, home: Home, environment: dict[str, str]) -> None:
        self._home = home
        self._environment = environment
        self._engine = LocalEngine(home.root, environment=environment)

    def reserve(self, name: str, version: Version) -> Replica:
        """A replica that has a port and no run yet."""
        ports = Ports()
        try:
            port = ports.take(self._home, [1])[0][0]
        except BaseException:
            ports.release()
            raise
        return Replica(ReplicaState(name=name, version=version.number, port=port), ports)

    def start(self, replica: Replica, service: WantedService, version: Version) -> None:
        """Submit the replica's run. Raises LongboatError."""
        submission = version.submission(self._environment)
        job = replica_job(
            version.job, service.serve, name=replica.name, command=version.command, host=HOST, port=replica.port
        )
        checkpoints = msgspec.structs.replace(job.checkpoints, resume=version.checkpoint)
        job = msgspec.structs.replace(
            job, checkpoints=checkpoints, labels={**unowned(version.job.labels), REPLICA_OF: service.uid}
        )
        self._engine.submit(msgspec.structs.replace(submission, job=job, run_id=replica.name))

    def look(self, replica: Replica) -> LocalState | None:
        """The state of the replica's run; None: it is gone."""
        files = RunFiles(self._home.runs / replica.name)
        if not files.directory.is_dir():
            return None
        state = files.state()
        if not state.is_final:
            state = self._revived(replica, files)
        return state

    def _revived(self, replica: Replica, files: RunFiles) -> LocalState:
        """The run of a killed supervisor of its own is looked after, as any command does."""
        from longboat.engines.local.supervise.spawn import take_over

        try:
            take_over(files, files.record(), self._environment, lambda text: None)
        except LongboatError:
            pass
        return files.state()

    def stop(self, replica: Replica, grace_s: float | None = None) -> None:
        self._engine.stop(replica.name, grace_s=grace_s)

    def remove(self, name: str) -> None:
        """Stop it if it runs, and remove it."""
        if (self._home.runs / name).is_dir():
            self._engine.delete(name)

    def of_service(self, service: WantedService) -> list[str]:
        """Names of all runs that are replicas of a service."""
        return [name for name, uid in self.of_name(service.name).items() if uid == service.uid]

    def of_name(self, service: str) -> dict[str, str]:
        """The runs that are replicas of services of this name, each with the uid of its service."""
        services = {}
        for name in self._home.run_names():
            if re.fullmatch(rf"{re.escape(service)}-r\d+", name) is None:
                continue  # labels are the user's to set too
            record = RunFiles(self._home.runs / name).stored_record()
            if record is not None and (uid := record.job.labels.get(REPLICA_OF)):
                services[name] = uid
        return services

    def last_lines(self, name: str, most: int = 5) -> list[str]:
        """The end of a replica's log."""
        from longboat.core.runs import LogQuery

        try:
            lines = [
                line.data.decode(errors="replace").rstrip() for line in self._engine.logs(name, LogQuery(tail=most))
            ]
        except LongboatError:
            return []
        return [line for line in lines if line][-most:]


def is_there(folder: ServiceFolder, uid: str | None) -> bool:
    """Whether the folder still is that of this service, and not of a later one of the same name. None: it is damaged,
    and its uid not known."""
    now = folder.wanted()
    return folder.directory.exists() and (now is None or now.uid == uid)


def clean_up(folder: ServiceFolder, uid: str | None, runs: ReplicaRuns) -> bool:
    """Remove what a killed supervisor left of a service. False: one lives, and does it."""
    with contextlib.suppress(LongboatError):
        lock = open_lock(folder.lock)
        try:
            if not try_lock(lock) or not is_current(lock, folder.lock):
                return False
            if not is_there(folder, uid):
                return True  # another of the same name has been made since
            for name, service in runs.of_name(folder.name).items():
                if uid in (None, service):
                    runs.remove(name)
            remove_tree(folder.directory)
            return True
        finally:
            os.close(lock)
    return False


def ended_reason(state: LocalState | None) -> str:
    """Why a replica's run ended, in a few words."""
    if state is None:
        return "its run was removed"
    return state.reason or f"ended with exit code {state.exit_code}"


def with_last_line(reason: str, lines: Sequence[str]) -> str:
    """The reason with the last words of the log, unless they are the same, from a launcher's own line perhaps."""
    return "; ".join([reason, *(line for line in lines[-1:] if line.removeprefix("longboat: ") not in reason)])
