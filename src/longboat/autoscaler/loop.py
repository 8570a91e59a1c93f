"""observe -> decide -> act, again and again: whenever something changes, and when time alone changes something.

A turn keeps nothing that the next could not find in the cluster or at the provider. Who may work (the leader) is told
from outside. Not here: deciding (`decide`), doing (`act`), showing (`report.turn_log`, `metrics`, `report.events`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from longboat.autoscaler.act.actuator import ActionResult, Actuator
from longboat.autoscaler.decide.decide import decide
from longboat.autoscaler.model.config import AutoscalerConfig
from longboat.autoscaler.model.plan import ScalingPlan
from longboat.autoscaler.model.snapshot import ClusterSnapshot
from longboat.autoscaler.observe.instances import list_instances
from longboat.autoscaler.observe.orders import OrdersChanged, OrderStore, orphans, reconcile
from longboat.autoscaler.observe.watch import ClusterWatcher, joined_in, snapshot_from
from longboat.autoscaler.providers.provider import Provider
from longboat.core.errors import LongboatError
from longboat.core.jobs import Value
from longboat.kubeapi.client import Client

PATIENCE_S = 30.0
"""The longest pause after turns that failed."""


class LoopTurn(Value, frozen=True):
    """One loop, for whoever shows it."""

    now: float
    snapshot: ClusterSnapshot
    plan: ScalingPlan
    deeds: tuple[ActionResult, ...] = ()
    decide_s: float = 0.0
    total_s: float = 0.0
    warnings: tuple[str, ...] = ()  # what a person should look at


class TurnListener(Protocol):
    """Told of every turn and of every one that failed; must not raise."""

    def turned(self, turn: LoopTurn) -> None: ...

    def failed(self, message: str) -> None: ...


class AutoscalerLoop:
    def __init__(
        self,
        client: Client,
        charge: AutoscalerConfig,
        providers: Mapping[str, Provider],
        *,
        listeners: tuple[TurnListener, ...] = (),
        may_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client, self.charge, self._providers = client, charge, providers
        self._listeners, self._may_work = listeners, may_work
        self._store = OrderStore(client, charge.home)
        self._actor = Actuator(client, charge, providers, self._store, may_work=may_work)
        self._watcher: ClusterWatcher | None = None

    def run(self, ending: threading.Event) -> None:
        """Until it is told to end or may not work any more."""
        with_watcher = self._watcher = ClusterWatcher(self._client)
        pause, is_synced = 0.0, False
        try:
            while not ending.is_set() and self._may_work():
                try:
                    if not is_synced:
                        with_watcher.sync(PATIENCE_S)
                        is_synced = True
                    wait_s = self._wait_s(self.turn())
                    pause = 0.0
                except OrdersChanged:
                    wait_s = 0.0  # another has written: what it wrote is read at once
                except Exception as error:  # what nobody foresaw in one object must not end the work for all others
                    known = isinstance(error, LongboatError)
                    self._tell_failure(str(error) if known else f"{type(error).__name__}: {error}")
                    pause = wait_s = min(PATIENCE_S, max(self.charge.pace.least_s, pause * 2, 0.5))
                self._rest(ending, wait_s)
        finally:
            with_watcher.close()

    def _wait_s(self, turn: LoopTurn) -> float:
        pace = self.charge.pace
        if any(deed.action.kind == "grow" and deed.trouble for deed in turn.deeds):
            return 0.0  # the next pool is taken at once
        ahead = turn.plan.next_s
        return pace.interval_s if ahead is None else min(pace.interval_s, max(ahead, 0.0) + 0.05)

    def _rest(self, ending: threading.Event, wait_s: float) -> None:
        assert self._watcher is not None
        ending.wait(min(self.charge.pace.least_s, max(wait_s, 0.05)))
        until = time.monotonic() + wait_s - self.charge.pace.least_s
        while not ending.is_set() and self._may_work() and time.monotonic() < until:
            if self._watcher.wait(min(1.0, max(until - time.monotonic(), 0.01))):
                return

    def turn(self) -> LoopTurn:
        """Raises a LongboatError when the cluster cannot be seen or written: nothing more is done then."""
        assert self._watcher is not None
        started = time.monotonic()
        blind_spots = self._watcher.blind_spots()
        if blind_spots:
            raise LongboatError("; ".join(blind_spots[:3]))
        self._store.load()
        deeds = [] if self.charge.is_dry else self._actor.resume()
        joined = joined_in(self._watcher.objects())
        sight = list_instances(self._providers, self.charge, self._store.memory, self._client.now(), joined)
        seen, blind = sight.seen, sight.blind
        objects, now = self._watcher.objects(), self._client.now()
        memory = reconcile(sight.memory, seen, joined_in(objects), self.charge, now)
        if not self.charge.is_dry:
            self._store.save(memory)
            deeds += self._actor.finish(objects.get("Node", []), seen, blind)
        snapshot = snapshot_from(objects, self.charge.pools, memory, seen, now, sight.blocked)
        before = time.process_time()
        plan = decide(snapshot, self.charge.settings, now)
        decide_s = time.process_time() - before
        if not self.charge.is_dry:
            deeds += self._actor.perform(plan, snapshot, seen, blind)
        total_s = time.monotonic() - started
        turn = LoopTurn(
            now=now,
            snapshot=snapshot,
            plan=plan,
            deeds=tuple(deeds),
            decide_s=decide_s,
            total_s=total_s,
            warnings=orphans(memory, self.charge.setups),
        )
        for listener in self._listeners:
            listener.turned(turn)
        return turn

    def _tell_failure(self, message: str) -> None:
        for listener in self._listeners:
            listener.failed(message)
