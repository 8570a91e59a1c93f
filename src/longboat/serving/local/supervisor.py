"""The supervisor of a service: one detached process that runs the proxy, watches replicas and replaces them.

It is the only writer of the service's state. It may be killed at any moment: replicas are runs of their own and go on,
and the next command that looks at services starts another supervisor (`services`), which takes them over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from longboat.core.errors import LongboatError
from longboat.core.guards.formats import NewerFormat
from longboat.engines.local.supervise.processes import identify, reap
from longboat.engines.shared.files import log_line
from longboat.serving.local import decide
from longboat.serving.local.follower import ServiceFollower
from longboat.serving.local.listening import listen
from longboat.serving.local.probing import Prober
from longboat.serving.local.records import ServiceFolder, ServiceState, WantedService
from longboat.serving.local.replicas import Replica, ReplicaRuns, ended_reason, with_last_line
from longboat.serving.proxy.backends import Backends
from longboat.serving.proxy.server import Proxy

TICK_S = 0.1
"""How often wishes and the ends of replicas are looked at: a killed replica is out of use after this long."""
SAVE_S = 1.0
"""How often figures alone are written."""
KEPT_ENDED = 3
"""Ended replicas whose logs are kept."""
PENDING_S = 5.0
"""A run that is pending for longer waits for a place on the machine, not for its own start."""
UNWELL_GRACE_S = 5.0
"""A replica that does not answer probes gets no more time than this to end."""
STOP_AGAIN_S = 5.0
"""Before a replica that could not be stopped is stopped again: a full disk is not mended sooner."""
FOLLOWER_S = 10.0
"""A version that is just being made when the service stops is waited for this long."""
BIND_S = 60.0
"""A port that somebody else has taken since is waited for this long."""


class ServiceSupervisor:
    def __init__(self, folder: ServiceFolder) -> None:
        wanted = folder.wanted()
        if wanted is None:
            raise LongboatError(f"{folder.directory}: service.json is damaged")
        self.folder = folder
        self.wanted: WantedService = wanted
        self.state = folder.state()
        self.backends = Backends()
        self.proxy = Proxy(self.backends)
        self._runs = ReplicaRuns(folder.home, dict(os.environ))
        self._replicas = {each.name: Replica(each) for each in self.state.replicas}
        self._failures: dict[int, int] = {}
        self._held_until: dict[int, float] = {}
        self._failed = dict(self.state.failed)
        self._good = self.state.good
        self._currents = {wanted.current}  # versions that took everything, unlike a canary
        self._desired = max(self.state.desired, wanted.serve.replicas)
        self._samples: deque[tuple[float, int]] = deque()
        self._wanted_ns = 0
        self._saved = 0.0
        self._problem = ""
        self._pool = ThreadPoolExecutor(32, thread_name_prefix="replica")
        self._prober = Prober()
        self._follower = ServiceFollower(folder, os.environ, self.say)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended: deque[str] = deque()

    # the life of the supervisor

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        leaving = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, leaving.set)
        if not self.folder.is_stopping():  # else one that was killed while it stopped left the rest to do
            await self.proxy.start(await self._listener())
            self._save()  # names this process: from now on the address answers
            self.say(f"serves {self.wanted.name} on {self.wanted.host}:{self.wanted.port}")
        while not self.folder.is_stopping():
            if leaving.is_set():
                return
            try:
                await self._turn()
            except (LongboatError, OSError) as error:  # a full disk, no descriptors: what serves goes on serving
                self._note(f"could not look after the replicas: {error}")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(leaving.wait(), TICK_S)
        await self._stop_all()

    def say(self, text: str) -> None:
        log_line(f"{time.strftime('%H:%M:%S')} {text}")

    async def _listener(self) -> socket.socket:
        deadline = time.monotonic() + BIND_S
        while True:
            try:
                return listen(self.wanted.host, self.wanted.port)
            except OSError as error:
                self._note(f"port {self.wanted.port} cannot be listened on: {error.strerror}")
                if time.monotonic() > deadline or self.folder.is_stopping():
                    raise
            await asyncio.sleep(TICK_S)

    async def _turn(self) -> None:
        """Observe, decide, act, once."""
        reap()
        self._read_wanted()
        await asyncio.gather(*(self._observe(replica) for replica in list(self._replicas.values())))
        self._scale()
        changes = decide.decide(self._goal(), self._views())
        for name in changes.drains:
            self._drain(self._replicas[name])
        for version in changes.starts:
            await self._start(version)
        self._finish_drains()
        self._publish()
        self._follower.turn(self.wanted, self.state)

    # observing

    def _read_wanted(self) -> None:
        try:
            changed = self.folder.wanted_file.stat().st_mtime_ns
        except OSError:
            return
        if changed == self._wanted_ns:
            return
        try:
            wanted = self.folder.wanted()
        except NewerFormat:  # what it serves goes on
            return
        if wanted is None:
            return
        self._wanted_ns = changed
        if wanted.current != self.wanted.current:
            self.say(f"rolls out version {wanted.current}")
            self._failed.pop(wanted.current, None)
            self._failures.pop(wanted.current, None)
        self.wanted = wanted
        self._currents.add(wanted.current)
        self._desired = max(wanted.serve.replicas, min(self._desired, wanted.serve.most))

    async def _observe(self, replica: Replica) -> None:
        if replica.phase == "ended":
            return
        state = await self._in_thread(self._runs.look, replica)
        if state is None or state.is_final:
            await self._note_end(replica, replica.over or ended_reason(state))
            return
        if replica.over is not None:
            if not replica.is_told and time.monotonic() >= replica.stop_after:
                replica.is_told, replica.phase = True, "unready" if replica.was_ready else "starting"
                self._later(self._end, replica, UNWELL_GRACE_S)
            return
        if state.phase != "pending":
            replica.pending_since = None
        elif replica.pending_since is None:
            replica.pending_since = time.monotonic()
        if replica.phase == "starting" and state.phase != "running":
            replica.reason = state.reason or "is being started"
            return
        if replica.phase != "draining":
            self._prober.watch(replica, self.wanted, state.started)
            if replica.is_bad:
                self._fail_version(replica.version, replica.reason)
            elif replica.phase == "ready" and not replica.was_ready:
                self._note_ready(replica)

    def _note_ready(self, replica: Replica) -> None:
        replica.was_ready = True
        replica.ready_since = time.monotonic()
        self._failures.pop(replica.version, None)
        self.say(f"{replica.name} (version {replica.version}) is ready")

    async def _note_end(self, replica: Replica, reason: str) -> None:
        was_draining = replica.phase == "draining"
        replica.phase = "ended"
        replica.release()
        if was_draining:
            self._forget(replica)
            return
        lines = await self._in_thread(self._runs.last_lines, replica.name)
        self.say("\n".join([f"{replica.name} ended: {reason}", *(f"  {line}" for line in lines)]))
        replica.reason = with_last_line(reason, lines)
        steady = replica.ready_since is not None and time.monotonic() - replica.ready_since > decide.STEADY_S
        failures = 0 if steady else self._failures.get(replica.version, 0) + 1
        self._failures[replica.version] = failures
        self._held_until[replica.version] = time.monotonic() + decide.backoff_s(failures)
        self._problem = f"{replica.name}: {replica.reason}"
        if failures >= decide.MOST_FAILURES and replica.version != self._good and not replica.was_ready:
            self._fail_version(replica.version, f"{failures} starts failed; the last: {replica.reason}")
        self._keep_log(replica)

    def _keep_log(self, replica: Replica) -> None:
        """Logs of the last ended replicas stay; those before them go."""
        del self._replicas[replica.name]
        self._ended.append(replica.name)
        while len(self._ended) > KEPT_ENDED:
            self._later(self._runs.remove, self._ended.popleft())

    def _fail_version(self, version: int, reason: str) -> None:
        if version in self._failed:
            return
        self._failed[version] = reason
        shown = next((each.shown for each in self.wanted.versions if each.number == version), f"version {version}")
        self._problem = f"{shown} takes no requests: {reason}"
        self.say(self._problem)

    # deciding

    def _scale(self) -> None:
        serve = self.wanted.serve
        now = time.monotonic()
        self._samples.append((now, decide.needed_replicas(self.backends.in_flight, serve.in_flight)))
        while len(self._samples) > 1 and now - self._samples[1][0] >= decide.DOWN_S:
            self._samples.popleft()
        desired = decide.scaled(list(self._samples), now, self._desired, serve.replicas, serve.most)
        if desired != self._desired:
            self.say(f"scales from {self._desired} to {desired}: {self.backends.in_flight} requests in flight")
            self._desired = desired

    def target(self) -> int | None:
        """The version that is to serve: the current one, or the last good one where that failed."""
        if self.wanted.current not in self._failed:
            return self.wanted.current
        known = {version.number for version in self.wanted.versions}
        return self._good if self._good in known and self._good not in self._failed else None

    def _goal(self) -> decide.Goal:
        now = time.monotonic()
        canary = self.wanted.canary if self.wanted.canary not in self._failed else None
        held = frozenset(version for version, until in self._held_until.items() if until > now)
        return decide.Goal(self.target(), self._desired, canary, self.wanted.weight if canary else 0, held)

    def _views(self) -> list[decide.ReplicaView]:
        now = time.monotonic()
        return [
            decide.ReplicaView(
                replica.name,
                replica.version,
                replica.phase == "ready",
                replica.pending_since is not None and now - replica.pending_since > PENDING_S,
                replica.backend.in_flight,
            )
            for replica in self._replicas.values()
            if replica.phase not in ("draining", "ended")
        ]

    # acting

    async def _start(self, number: int) -> None:
        version = self.wanted.version(number)
        name = f"{self.wanted.name}-r{self.state.next_number}"
        self.state = msgspec.structs.replace(self.state, next_number=self.state.next_number + 1)
        try:
            replica = await self._in_thread(self._runs.reserve, name, version)
            self._replicas[name] = replica
            self._save()  # before its run exists: whoever takes over knows of it
            await self._in_thread(self._runs.start, replica, self.wanted, version)
        except LongboatError as error:
            if name in self._replicas:
                self._replicas.pop(name).release()
            failures = self._failures.get(number, 0) + 1
            self._failures[number] = failures
            self._held_until[number] = time.monotonic() + decide.backoff_s(failures)
            self._note(f"{name} cannot be started: {error.message}")
            if failures >= decide.MOST_FAILURES and number != self._good:
                self._fail_version(number, error.message)

    def _drain(self, replica: Replica) -> None:
        self._prober.forget(replica)
        replica.phase = "draining"
        replica.drain_until = time.monotonic() + self.wanted.serve.drain_s
        replica.reason = ""

    def _finish_drains(self) -> None:
        now = time.monotonic()
        for replica in list(self._replicas.values()):
            if replica.phase == "draining" and replica.drain_until is not None and now >= replica.stop_after:
                if replica.backend.in_flight == 0 or now > replica.drain_until:
                    replica.drain_until = None
                    self._later(self._end, replica)

    def _end(self, replica: Replica, grace_s: float | None = None) -> None:
        """Stop the replica's run, in a thread; what fails is tried again."""
        try:
            self._runs.stop(replica, grace_s)
        except (LongboatError, OSError):
            replica.stop_after = time.monotonic() + STOP_AGAIN_S
            replica.is_told = False
            if replica.phase == "draining":
                replica.drain_until = time.monotonic()
            raise

    def _forget(self, replica: Replica) -> None:
        del self._replicas[replica.name]
        self._later(self._runs.remove, replica.name)

    def _publish(self) -> None:
        ready = [replica.backend for replica in self._replicas.values() if replica.phase == "ready"]
        if not ready:  # too busy for probes, perhaps: better asked than nobody
            unready = [replica for replica in self._replicas.values() if replica.phase == "unready"]
            ready = [replica.backend for replica in unready if replica.was_ready]  # others gave no golden answers yet
        good = [backend.version for backend in ready if backend.version in self._currents]
        self._good = max([self._good or 0, *good]) or None
        self.backends.set_ready(ready, self.wanted.canary, self.wanted.weight)
        before = self.state
        self.state = self._current_state()
        is_changed = _without_figures(before) != _without_figures(self.state)
        if is_changed or time.monotonic() - self._saved > SAVE_S:
            self._save()

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self.say(problem)

    def _current_state(self) -> ServiceState:
        return ServiceState(
            supervisor=identify(os.getpid()),
            replicas=tuple(replica.state() for replica in self._replicas.values()),
            next_number=self.state.next_number,
            desired=self._desired,
            good=self._good,
            failed=self._failed,
            problem=self._problem,
            follow_problem=self._follower.problem,
            answered=self.backends.answered,
            lost=self.backends.failed,
        )

    def _save(self) -> None:
        self._saved = time.monotonic()
        self.state = self._current_state()
        with contextlib.suppress(LongboatError):  # a full disk ends no service
            self.folder.write_state(self.state)

    # the end

    async def _stop_all(self) -> None:
        """Answer what is in flight, then end every replica."""
        self.say("stops")
        await self._in_thread(self._follower.close, FOLLOWER_S)
        await self.proxy.close()
        deadline = time.monotonic() + self.wanted.serve.drain_s
        while self._in_flight() and time.monotonic() < deadline:
            await asyncio.sleep(TICK_S)
        if self._tasks:
            await asyncio.wait(self._tasks)
        names = await self._in_thread(self._runs.of_service, self.wanted)
        await asyncio.gather(*(self._in_thread(self._runs.remove, name) for name in names))
        for replica in self._replicas.values():
            replica.release()

    def _in_flight(self) -> int:
        """Requests that are not answered yet, those of replicas that are being drained included."""
        return self.backends.waiting + sum(replica.backend.in_flight for replica in self._replicas.values())

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def _later(self, function: Any, *arguments: Any) -> None:
        """Do it beside the loop; what goes wrong is said."""

        async def work() -> None:
            try:
                await self._in_thread(function, *arguments)
            except (LongboatError, OSError) as error:
                self.say(str(error))

        task = asyncio.ensure_future(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _without_figures(state: ServiceState) -> ServiceState:
    replicas = tuple(msgspec.structs.replace(replica, in_flight=0) for replica in state.replicas)
    return msgspec.structs.replace(state, replicas=replicas, answered=0, lost=0)
