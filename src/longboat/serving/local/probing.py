"""Probing of replicas beside the supervisor's loop: one probe per replica at a time, each in a thread."""

from __future__ import annotations

import asyncio
import http.client
import time
from concurrent.futures import ThreadPoolExecutor

from longboat.serving.golden import DamagedCases, GoldenCases, read_cases
from longboat.serving.local.records import WantedService
from longboat.serving.local.replicas import HOST, Replica
from longboat.serving.probe import check_answers, check_golden, reason_of

STARTING_S = 0.1
"""Between two probes of a replica that starts."""
RUNNING_S = 2.0
"""Between two probes of a replica that is ready: it may be slow for so long unnoticed."""
MOST_FAILED = 3
"""Failed probes in a row after which a replica that was ready is restarted."""
MOST_AT_ONCE = 64
"""Threads for probes: one that hangs takes its thread for minutes (golden cases), and nothing else may wait for it."""

NOT_YET = "not ready yet: "


class Prober:
    """Probes of all replicas. What they show is written into the replica."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="probe")
        self._running: dict[str, asyncio.Future[None]] = {}
        self._due: dict[str, float] = {}

    def watch(self, replica: Replica, service: WantedService, started: float | None) -> None:
        """See that the replica is probed when it is time; returns at once."""
        if replica.name in self._running or time.monotonic() < self._due.get(replica.name, 0.0) or replica.is_bad:
            return
        settings = service.settings_of(replica.version)
        late = started is not None and not replica.was_ready and time.time() - started > settings.start_s
        if late:
            replica.over = f"not ready after {settings.start_s:g} s: {replica.reason.removeprefix(NOT_YET)}"
            return
        probe = self._first if not replica.was_ready or replica.phase == "starting" else self._again
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.run_in_executor(self._pool, probe, replica, service)
        self._running[replica.name] = future
        future.add_done_callback(lambda _: self._done(replica))

    def forget(self, replica: Replica) -> None:
        self._due.pop(replica.name, None)

    def _done(self, replica: Replica) -> None:
        del self._running[replica.name]
        self._due[replica.name] = time.monotonic() + (RUNNING_S if replica.phase == "ready" else STARTING_S)

    def _first(self, replica: Replica, service: WantedService) -> None:
        """Until it is ready: it answers, and its answers are the golden ones."""
        settings = service.settings_of(replica.version)
        problem = check_answers(HOST, replica.port, settings.ready)
        if problem is not None:
            replica.reason = f"{NOT_YET}{problem}"
            return
        try:
            golden = self._golden(replica, service)
            problem = check_golden(HOST, replica.port, golden, settings.tolerance) if golden else None
        except DamagedCases as error:
            problem = str(error)
        except (OSError, http.client.HTTPException) as error:
            replica.reason = f"{NOT_YET}{reason_of(error, replica.port)}"
            return
        if replica.phase != "starting":
            return
        if problem is not None:
            replica.reason, replica.is_bad = problem, True
            return
        replica.reason, replica.phase = "", "ready"

    def _golden(self, replica: Replica, service: WantedService) -> GoldenCases | None:
        folder = service.version(replica.version).checkpoint
        return read_cases(folder) if folder is not None and service.settings_of(replica.version).golden else None

    def _again(self, replica: Replica, service: WantedService) -> None:
        """While it runs: readiness takes it out of use and back, liveness restarts it."""
        settings = service.settings_of(replica.version)
        problem = check_answers(HOST, replica.port, settings.ready)
        if replica.phase not in ("ready", "unready"):
            return
        replica.phase, replica.reason = ("ready", "") if problem is None else ("unready", problem)
        live = settings.live
        if live is not None and live != settings.ready:
            problem = check_answers(HOST, replica.port, live)
        replica.failures = 0 if problem is None else replica.failures + 1
        if replica.failures >= MOST_FAILED:
            replica.over = f"{MOST_FAILED} probes failed: {problem}"
