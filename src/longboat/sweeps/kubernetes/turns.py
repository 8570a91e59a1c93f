"""Turns of a sweep's trials, for whoever drives a sweep where no controller takes them.

All trials are listed at once; a turn, which reads its run anew, is taken only of those where there is something to do.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from longboat.core.errors import NotFound
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.reconcile.listing import listed_snapshots
from longboat.engines.kubernetes.reconcile.reconciler import turn_or_look
from longboat.engines.kubernetes.record_store import ListedRun
from longboat.engines.kubernetes.records import State
from longboat.kubeapi.client import Client

LOOK_S = 60.0
"""So often each run is looked at in full, whatever the lists show: they do not show nodes that are lost."""


class TrialTurns:
    """Takes turns of listed runs where they are due."""

    def __init__(self) -> None:
        self._looked: dict[str, float] = {}  # uid of a run: when it was last looked at in full

    def __call__(self, client: Client, opened: Sequence[ListedRun]) -> dict[str, State]:
        if not opened:
            return {}
        snapshots = listed_snapshots(client, opened)
        states = {name: snapshot.state for name, snapshot in snapshots.items()}
        for name in due_runs(list(snapshots.values()), client.now(), self._overdue(snapshots.values())):
            try:
                states[name] = turn_or_look(client, name, lambda _: True).snapshot.state
                self._looked[snapshots[name].uid] = time.monotonic()
            except NotFound:
                continue  # the next look finds that it is gone
        return states

    def _overdue(self, snapshots: Collection[RunSnapshot]) -> set[str]:
        now = time.monotonic()
        seen = {snapshot.uid: snapshot.record.name for snapshot in snapshots}
        self._looked = {uid: at for uid, at in self._looked.items() if uid in seen}
        for uid in seen:
            self._looked.setdefault(uid, now)
        return {seen[uid] for uid, at in self._looked.items() if now - at > LOOK_S}


def due_runs(snapshots: Sequence[RunSnapshot], now: float, overdue: set[str]) -> list[str]:
    """The runs whose turns are worth taking. Pure.

    Of those who wait at the gate the first: a turn of one that waits serves all that wait beside it.
    """
    due: list[str] = []
    is_asked = False
    for snapshot in snapshots:
        decided = decide(snapshot, now)
        if decided.state is None and not decided.actions and snapshot.record.name not in overdue:
            continue
        state = snapshot.state
        if state.gate.reason and state.gate.let_in is None and snapshot.stop is None:
            if is_asked:
                continue
            is_asked = True
        due.append(snapshot.record.name)
    return due
