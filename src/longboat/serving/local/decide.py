"""Decisions about a service: which replicas start and go, how many there are, when one is started again. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

SURGE = 1
"""Replicas beyond the wanted number during an update: the old one goes when the new one is ready."""
MOST_FAILURES = 3
"""Starts in a row without readiness after which a version counts as failed."""
BACKOFF_S = (1.0, 60.0)
"""Before a replica is started again: doubling from the first to the second."""
STEADY_S = 60.0
"""A replica that was ready for this long has not failed to start: its end does not lengthen the backoff."""
UP_S = 1.0
"""Load has to last this long before replicas are added: a burst is answered sooner than a model is loaded."""
DOWN_S = 60.0
"""Load has to stay lower for this long before replicas go: starting them again costs more than keeping them."""


class ReplicaView(NamedTuple):
    """A replica that has neither ended nor is being drained."""

    name: str
    version: int
    is_ready: bool
    is_waiting: bool = False  # its run waits for a place on the machine
    in_flight: int = 0


class Goal(NamedTuple):
    target: int | None  # version; None: none may serve
    replicas: int
    canary: int | None = None
    weight: int = 0
    held: frozenset[int] = frozenset()  # versions whose backoff is not over


class ReplicaChanges(NamedTuple):
    starts: tuple[int, ...] = ()  # versions
    drains: tuple[str, ...] = ()


def canary_replicas(replicas: int, weight: int) -> int:
    return max(1, round(replicas * weight / 100)) if weight else 0


def decide(goal: Goal, replicas: Sequence[ReplicaView]) -> ReplicaChanges:
    """The next step towards the goal; called again whenever something changed."""
    current = [replica for replica in replicas if replica.version == goal.target]
    canaries = [replica for replica in replicas if goal.canary is not None and replica.version == goal.canary]
    old = [replica for replica in replicas if replica not in current and replica not in canaries]
    starts: list[int] = []
    drains: list[ReplicaView] = []
    if goal.canary is not None and goal.canary not in goal.held:
        starts += [goal.canary] * (canary_replicas(goal.replicas, goal.weight) - len(canaries))
        drains += _surplus(canaries, canary_replicas(goal.replicas, goal.weight))
    if goal.target is not None and goal.target not in goal.held:
        room = goal.replicas + (SURGE if old else 0) - len(current) - len(old)
        starts += [goal.target] * min(goal.replicas - len(current), room)
    drains += _surplus(current, goal.replicas)
    drains += _old_to_drain(goal, current, old)
    return ReplicaChanges(tuple(starts), tuple(replica.name for replica in drains))


def _old_to_drain(goal: Goal, current: Sequence[ReplicaView], old: Sequence[ReplicaView]) -> list[ReplicaView]:
    ready = sum(replica.is_ready for replica in current)
    if goal.target is None or ready >= goal.replicas:
        return list(old)
    serving = sorted((replica for replica in old if replica.is_ready), key=lambda replica: replica.in_flight)
    drained = [replica for replica in old if not replica.is_ready]  # they take no requests, and hold a place
    surplus = ready + len(serving) - goal.replicas
    if surplus <= 0 and not drained and any(replica.is_waiting for replica in current):
        surplus = 1  # the machine has no place for one more: an old one makes room
    return [*drained, *serving[: max(0, surplus)]]


def _surplus(replicas: Sequence[ReplicaView], most: int) -> list[ReplicaView]:
    """Those beyond the number: first those that are not ready, then the least busy."""
    spare = sorted(replicas, key=lambda replica: (replica.is_ready, replica.in_flight))
    return spare[: max(0, len(spare) - most)]


def backoff_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    first, longest = BACKOFF_S
    return min(longest, first * 2.0 ** max(0, failures - 1)) if failures else 0.0


def needed_replicas(in_flight: int, per_replica: int) -> int:
    return math.ceil(in_flight / per_replica)


def scaled(samples: Sequence[tuple[float, int]], now: float, current: int, least: int, most: int) -> int:
    """Replicas for the load. `samples`: (time, replicas needed), oldest first, as far back as DOWN_S."""
    recent = [needed for at, needed in samples if now - at <= UP_S]
    if recent and min(recent) > current:
        return min(most, min(recent))
    is_known = bool(samples) and now - samples[0][0] >= DOWN_S
    wanted = max(needed for _, needed in samples) if is_known else current
    return max(least, min(most, current, max(wanted, least)))
