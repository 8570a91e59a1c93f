"""The control loop: observe -> decide -> act, whenever something changes and when time alone changes something.

A turn keeps nothing that the next could not find in the cluster or at the provider. Who may work (the leader) is told
from outside (`service`). Not here: deciding (`decide`), doing (`act`), showing (`report`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from longboat.autoscaler.act.actuator import Actuator
from longboat.autoscaler.act.idle_marks import UnwrittenMarks
from longboat.autoscaler.act.termination_notices import taint_leaving
from longboat.autoscaler.decide.decide import decide
from longboat.autoscaler.model.config import LONGEST_LEAST_S, AutoscalerConfig
from longboat.autoscaler.model.turn import ActionResult, LoopTurn, TurnListener
from longboat.autoscaler.observe.observe import observe
from longboat.autoscaler.observe.orders import OrdersChanged, OrderStore, orphans
from longboat.autoscaler.observe.watch import ClusterWatcher
from longboat.autoscaler.providers.provider import Provider
from longboat.core.errors import LongboatError
from longboat.kubeapi.client import Client

PATIENCE_S = 30.0
"""The longest pause after turns that failed."""


class AutoscalerLoop:
    def __init__(
        self,
        client: Client,
        config: AutoscalerConfig,
        providers: Mapping[str, Provider],
        *,
        listeners: tuple[TurnListener, ...] = (),
        may_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client, self._providers = client, providers
        self._listeners, self._may_work = listeners, may_work
        self._store = OrderStore(client, config.home)
        self._marks = UnwrittenMarks()
        self._watcher: ClusterWatcher | None = None
        self.reconfigure(config)

    def reconfigure(self, config: AutoscalerConfig) -> None:
        """Go by these pools from the next turn on; providers are the same. Between turns only."""
        self.config = config
        self._actuator = Actuator(self._client, config, self._providers, self._store, may_work=self._may_work)

    def run(self, ending: threading.Event) -> None:
        """Take turns until it is closed or loses leadership."""
        watcher = self._watcher = ClusterWatcher(self._client)
        pause, is_synced = 0.0, False
        try:
            while not ending.is_set() and self._may_work():
                try:
                    if not is_synced:
                        watcher.sync(PATIENCE_S)
                        is_synced = True
                    turn = self.turn()
                    wait_s = self._wait_s(turn)
                    least_s = max(self.config.pace.least_s, min(turn.total_s, LONGEST_LEAST_S))
                    pause = 0.0
                except OrdersChanged:
                    wait_s = least_s = 0.0  # another has written: what it wrote is read at once
                except Exception as error:  # what nobody foresaw in one object must not end the work for all others
                    known = isinstance(error, LongboatError)
                    self._tell_failure(str(error) if known else f"{type(error).__name__}: {error}")
                    pause = wait_s = least_s = min(PATIENCE_S, max(self.config.pace.least_s, pause * 2, 0.5))
                self._rest(ending, wait_s, least_s)
        finally:
            watcher.close()

    def _wait_s(self, turn: LoopTurn) -> float:
        pace = self.config.pace
        if any(result.action.kind == "grow" and result.trouble for result in turn.results):
            return 0.0  # the next pool is taken at once
        ahead = turn.plan.next_s
        return pace.interval_s if ahead is None else min(pace.interval_s, max(ahead, 0.0) + 0.05)

    def _rest(self, ending: threading.Event, wait_s: float, least_s: float) -> None:
        """Until something has changed and its like have come, or the time is up."""
        assert self._watcher is not None
        ending.wait(min(least_s, max(wait_s, 0.05)))
        until = time.monotonic() + wait_s - least_s
        while not ending.is_set() and self._may_work() and time.monotonic() < until:
            if self._watcher.wait(min(1.0, max(until - time.monotonic(), 0.01))):
                self._watcher.gather(self.config.pace.quiet_s, self.config.pace.gather_s)
                return

    def turn(self) -> LoopTurn:
        """Raises a LongboatError when the cluster cannot be seen or written: nothing more is done then."""
        assert self._watcher is not None
        started = time.monotonic()
        blind_spots = self._watcher.blind_spots()
        if blind_spots:
            raise LongboatError("; ".join(blind_spots[:3]))
        self._store.load(within_s=self.config.pace.interval_s)
        results: list[ActionResult] = [] if self.config.is_dry else self._actuator.resume()
        observed = observe(self._watcher.objects, self.config, self._providers, self._store.book, self._client.now)
        if not self.config.is_dry:
            self._store.save(observed.book)
            results += self._actuator.finish(observed.objects.get("Node", []), observed.instances, observed.blind)
        before = time.process_time()
        snapshot = self._marks.filled(observed.snapshot)
        plan = decide(snapshot, self.config.settings, observed.now)
        self._marks.keep(plan, observed.snapshot)
        decide_s = time.process_time() - before
        if not self.config.is_dry:
            nodes, machines = observed.objects.get("Node", []), observed.instances
            results += taint_leaving(self._client, nodes, machines, self._may_work)  # first: every second counts
            results += self._actuator.perform(plan, observed.snapshot, machines, observed.blind)
        turn = LoopTurn(
            now=observed.now,
            snapshot=snapshot,
            plan=plan,
            results=tuple(results),
            decide_s=decide_s,
            total_s=time.monotonic() - started,
            warnings=(*orphans(observed.book, self.config.setups), *snapshot.odd),
        )
        for listener in self._listeners:
            listener.turned(turn)
        return turn

    def _tell_failure(self, message: str) -> None:
        for listener in self._listeners:
            listener.failed(message)
