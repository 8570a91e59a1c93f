"""Drives all sweeps of a cluster or of some namespaces, beside the controller of runs, which takes their trials' turns.

It keeps nothing that it could not read again: watches tell whose turn it is, and every turn reads its sweep anew.
Several may drive one sweep at once; of two that decide, one is too late and looks again.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import msgspec

from longboat.core.runs import SWEEP_UID
from longboat.engines.kubernetes.reconcile.workqueue import RunKey, WatchedTurns
from longboat.engines.kubernetes.slim_objects import RunObject
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP
from longboat.kubeapi.watch import Change, Reflector
from longboat.sweeps.drive import SweepDriver
from longboat.sweeps.kubernetes.store import SWEEPS, ClusterSweep, SweepChanged
from longboat.sweeps.kubernetes.sweep_objects import SUFFIX
from longboat.sweeps.kubernetes.trial_runs import ClusterTrials
from longboat.sweeps.record import needs_submitter

WORKERS = 2
"""Turns are few: a sweep has one when its trials begin or end."""
SETTLE_S = 0.5
"""Trials begin and end in bursts; one turn serves all of a burst."""
LOOK_S = 30.0
"""So often every sweep is looked at, whatever the watches tell."""
COMPARED_S = 5.0
"""So often where asha compares running trials: their steps are not watched."""


class SweepObject(msgspec.Struct):
    """The ConfigMap of a sweep with what is kept of it here: the state may be large."""

    metadata: RunObject.Meta = msgspec.field(default_factory=RunObject.Meta)


class SweepController(WatchedTurns):
    """Drives sweeps. `options`: those of WatchedTurns."""

    def __init__(self, client: Client, **options: Any) -> None:
        super().__init__(self._take_turn, title=_title, longest_s=LOOK_S, threads=("sweeps", WORKERS), **options)
        self._client = client
        self._drivers: dict[RunKey, SweepDriver] = {}
        self._phases: dict[str, str] = {}  # uid of a trial's record: what was last heard of it

    def watch(self, namespace: str | None) -> Reflector[SweepObject]:
        where: dict[str, Any] = {"namespace": namespace, "everywhere": namespace is None}
        return Reflector(
            self._client, CONFIG_MAP, labels=SWEEPS, into=SweepObject, on_change=self._sweep_changed, **where
        )

    def note_record(self, change: Change[RunObject], phase: str) -> None:
        """Called by the controller of runs: one of them has changed, perhaps a trial."""
        meta = change.object.metadata
        sweep = meta.labels.get("sweep", "")
        if SWEEP_UID not in meta.labels or not sweep:
            return
        before = self._phases.pop(meta.uid, None)
        if change.type != "DELETED":
            self._phases[meta.uid] = phase
        if before != phase or change.type == "DELETED":
            self._workers.queue.note(RunKey(meta.namespace, sweep), time.monotonic() + SETTLE_S)

    def _sweep_changed(self, change: Change[SweepObject]) -> None:
        meta = change.object.metadata
        key = RunKey(meta.namespace, meta.name.removesuffix(SUFFIX))
        driver = self._drivers.get(key)
        stored = driver.store.stored if driver is not None and isinstance(driver.store, ClusterSweep) else None
        if stored is None or stored.version != meta.resource_version:  # else it is what our own turn has written
            self._workers.queue.note(key, time.monotonic() + SETTLE_S)

    def _take_turn(self, key: RunKey) -> float | None:
        try:
            return self._turn(key)
        except SweepChanged:  # somebody else was quicker
            return SETTLE_S

    def _turn(self, key: RunKey) -> float | None:
        """Seconds until the sweep is looked at again although nothing changes; None: it has ended, or is gone."""
        driver = self._drivers.pop(key, None)
        if driver is None or driver.advance() is None:
            driver = self._open(key)  # new to us; or the one that ended has a successor of its name
            if driver is None or driver.advance() is None:
                return None
        self._drivers[key] = driver
        return COMPARED_S if driver.sweep.method == "asha" else LOOK_S

    def _open(self, key: RunKey) -> SweepDriver | None:
        client = copy.copy(self._client)
        client.namespace = key.namespace
        store = ClusterSweep(client, key.run)
        if not store.exists() or store.state().is_final or needs_submitter(store.record()):
            return None
        return SweepDriver(ClusterTrials(store), store)


def _title(key: RunKey) -> str:
    return f"sweep {key.namespace}/{key.run}"
