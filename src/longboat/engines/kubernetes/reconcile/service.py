"""The controller as a service: leader election, work while it leads, answers to probes.

The work is `controller.Controller`; signals, parsing and printing are the command line's.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from longboat.core.guards.background_call import BackgroundCall
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.observe.run_gauges import RunGauges
from longboat.engines.kubernetes.reconcile.controller import Controller
from longboat.engines.kubernetes.reconcile.listing import activity_of, list_runs
from longboat.engines.kubernetes.slim_objects import RunObject
from longboat.engines.kubernetes.status import MOST_ASKED
from longboat.engines.shared.probe_server import TextPage, serve
from longboat.kubeapi.client import Client
from longboat.kubeapi.leases import Leader, process_identity
from longboat.kubeapi.watch import Change
from longboat.metrics.prometheus import TEXT

LOOK_S = 0.2
"""Between two looks at whether it still leads: so soon it ends when it is told to or another may lead."""
PACE_S = 30.0
"""Between two looks at what runs use, if somebody wants to know."""
PLACES_AT_ONCE = 8
"""Namespaces in one look; the others come in the next ones."""
MOST_PACE = 128 << 10
"""Bytes of a launcher's answer, of which there are many at once: those of 400 ranks. The controller has little memory,
and a pod says what it likes."""
REPORT_S = 10.0
"""Between two looks at what its watches cannot see, which is told."""


class _Worker(Protocol):
    def start(self) -> None: ...

    def close(self) -> None: ...

    def blind_spots(self) -> list[str]: ...

    def why_unhealthy(self) -> str: ...


class Companion(_Worker, Protocol):
    """What works beside the controller of runs, while that leads."""

    def note_record(self, change: Change[RunObject], phase: str) -> None: ...


class ControllerService:
    """Stands by until it leads, works while it leads. `say` is told what a person should read, `where` it works.

    `companions`: make what works beside it, with the arguments of a Controller."""

    def __init__(
        self,
        client: Client,
        home: str,
        served: Sequence[str],
        *,
        where: str,
        say: Callable[[str], None],
        companions: Sequence[Callable[..., Companion]],
    ) -> None:
        self.make_companions = companions
        self.companions: Sequence[Companion] = ()
        self.client = client
        self.served = served
        self.where = where
        self.say = say
        self.leader = Leader(client, home, process_identity())
        self.ending = threading.Event()
        self.controller: Controller | None = None
        self.said: set[str] = set()

    def run(self, ending: threading.Event, health_port: int | None) -> None:
        """Serve until `ending` is set."""
        self.ending = ending
        if health_port is not None:
            checks = {"/healthz": self.why_unhealthy, "/readyz": self.why_not_ready}
            pages = {"/metrics": TextPage(self.metrics, TEXT)}
            serve(health_port, checks, option="--health-port", pages=pages)
        self.leader.start()
        try:
            self.work()
        finally:
            self.leader.stop()

    def metrics(self) -> str:
        """The page for Prometheus; one that stands by knows of no runs."""
        controller = self.controller if self.leader.is_leader else None
        return (controller.gauges if controller is not None else RunGauges()).text(lambda: self.leader.is_leader)

    def why_unhealthy(self) -> str:
        """Problems that a restart may fix: ended threads, watches that have been stale for long. Empty: none."""
        if not self.leader.is_alive:
            return "a thread that keeps the Lease has ended"
        workers = (self.controller, *self.companions) if self.leader.is_leader else ()
        return "; ".join(text for worker in workers if worker is not None and (text := worker.why_unhealthy()))

    def why_not_ready(self) -> str:
        """Empty: it leads and sees what there is, or stands by. An update waits for this before it ends the old one."""
        controller = self.controller
        if self.leader.trouble:
            return self.leader.trouble
        if not self.leader.is_leader:
            return ""
        if controller is None:
            return "it has only begun to lead"
        return "" if controller.is_ready else "; ".join(controller.blind_spots()) or "not everything was seen yet"

    def work(self) -> None:
        while not self.ending.is_set():
            if self.leader.wait(1.0):
                self.lead()
            else:
                self.report([self.leader.trouble] if self.leader.trouble else [])

    def lead(self) -> None:
        """Take turns until told to end, or until another leads."""
        left_s = self.leader.remaining_term()

        def may_work() -> bool:
            return left_s() > 0 and not self.ending.is_set()

        self.say(f"{self.leader.identity} leads" + (f", in {self.where}" if self.where else ""))
        client = self.client.within(left_s)
        options: dict[str, Any] = {"namespaces": self.served or None, "say": self.say}
        companions = [make(client, may_work=may_work, **options) for make in self.make_companions]

        def note_record(change: Change[RunObject], phase: str) -> None:
            for companion in companions:
                companion.note_record(change, phase)

        controller = Controller(client, may_work=may_work, on_record=note_record, **options)
        self.controller, self.companions = controller, companions
        workers: list[_Worker] = [controller, *companions]
        for worker in workers:
            worker.start()
        pace = threading.Thread(target=self.ask_pace, args=(client, controller.gauges, may_work), daemon=True)
        pace.start()
        try:
            since = 0.0
            while may_work():
                self.ending.wait(LOOK_S)
                since += LOOK_S
                if since >= REPORT_S:
                    since = 0.0
                    self.report([text for worker in workers for text in worker.blind_spots()])
        finally:
            for closing in [BackgroundCall(worker.close) for worker in workers]:  # each may wait for turns that hang
                closing.result()
        if not self.ending.is_set():
            self.say("another leads now")

    def ask_pace(self, client: Client, gauges: RunGauges, may_work: Callable[[], bool]) -> None:
        """While somebody scrapes: ask launchers for step, pace and use, of a few namespaces at a time."""
        place = 0
        while may_work():
            running = gauges.running() if gauges.pace.is_wanted else []
            chosen = [running[(place + index) % len(running)] for index in range(min(PLACES_AT_ONCE, len(running)))]
            place += len(chosen)
            for namespace in chosen:
                own = copy.copy(client)
                own.namespace = namespace
                with contextlib.suppress(Exception):  # what others write there may fail anywhere; others have figures
                    runs = list_runs(own, lambda text: None, labels=f"!{names.ENDED}")
                    asked: dict[str, Any] = {"most": MOST_ASKED // len(chosen), "most_bytes": MOST_PACE}
                    gauges.pace.note(namespace, activity_of(own, runs, **asked, with_free=False).runs)
            self.ending.wait(PACE_S)

    def report(self, troubles: list[str]) -> None:
        """Each once, and again only after it was over."""
        for text in troubles:
            if text not in self.said:
                self.say(text)
        self.said = set(troubles)
