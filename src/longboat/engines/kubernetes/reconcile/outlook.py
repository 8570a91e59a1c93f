"""A run as the next turn would show it; nothing is changed. Taking turns is in `reconciler`."""

from __future__ import annotations

import msgspec

from longboat.engines.kubernetes.observe.observe import observe
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.reconcile.actions import Decision
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.kubeapi.client import Client

MOST_TURNS = 12
"""Turns that follow from one another without anything having changed; more than any run needs."""
AGAIN_S = 2.0
"""When to do again what had no effect: ask a closed gate, tell somebody who does not listen."""


class Reconciled(msgspec.Struct, frozen=True):
    """A run after a turn, and when to look again although nothing changes."""

    snapshot: RunSnapshot
    again_at: float | None = None


def look(client: Client, run: str) -> Reconciled:
    """The run as a turn would show it; nothing is changed. Raises NotFound."""
    return predicted(observe(client, run, client.now()), client.now())


def predicted(snapshot: RunSnapshot, now: float) -> Reconciled:
    """The run with the state that turns would write before the next action. Pure."""
    decided = Decision()
    for _ in range(MOST_TURNS):
        decided = decide(snapshot, now)
        if decided.state is None:
            break
        snapshot = msgspec.structs.replace(snapshot, state=decided.state)
        if decided.actions:
            break
    again_at = decided.again_at
    # What others have to do, or what is due already, is looked at again and not waited for.
    return Reconciled(
        snapshot, None if again_at is None and not decided.actions else max(again_at or now, now + AGAIN_S)
    )
