"""Nodes that a blocked gang needs before the idle timeout; exempt from scale-down. Pure.

A unit may be refused for a while only: until a backoff is over, or until idle machines of other pools are gone and the
limits have room. What it could use of what is there stays for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from longboat.autoscaler.purchase.offers import Fits, PoolOffer, uses_of
from longboat.autoscaler.purchase.optimize import Optimizer
from longboat.autoscaler.purchase.purchase import CapacityBudget, DemandGroup
from longboat.autoscaler.scale_up.demand import PendingWorkload
from longboat.autoscaler.scale_up.fleets import Fleets
from longboat.autoscaler.scale_up.placement import by_shape, settle, withdraw
from longboat.autoscaler.scale_up.serve import ServeResult
from longboat.fitting.node_state import NodeState

MOST_TRIED = 5  # each try is a whole placement; the first few units decide what is kept


def pools_needed_soon(
    outcome: ServeResult, fleets: Fleets, fits: Fits, limits: Sequence[int | None], until: float
) -> dict[str, str]:
    """Pool -> why its idle machines stay."""
    ending = {name for name, offer in fits.offers.items() if _ends(offer, until)}
    reasons: dict[str, str] = {}
    tried = 0
    for unit in outcome.refused:
        able = {pool for pod in unit.pods for pool in fits.allowed(pod)}
        reason = ""
        if able & ending:
            reason = f"{unit.name} is served when a backoff is over, sooner than a machine idles"
        elif able and tried < MOST_TRIED and any(most is not None for most in limits):
            tried += 1
            if _is_served_later(unit, able, outcome, fleets, fits, limits):
                reason = f"{unit.name} is served when idle machines of other pools are gone"
        for pool in able if reason else ():
            reasons.setdefault(pool, reason)
    return reasons


def _ends(offer: PoolOffer, until: float) -> bool:
    return any(window.until is not None and window.until <= until for window in offer.blocked)


def _is_served_later(
    unit: PendingWorkload,
    able: set[str],
    outcome: ServeResult,
    fleets: Fleets,
    fits: Fits,
    limits: Sequence[int | None],
) -> bool:
    """Whether the limits would have room for it without the idle machines of pools that it cannot use."""
    freed = list(limits)
    for machine in fleets.machines.values():
        if machine.pool is None or machine.pool.name in able or machine.condition == "booting":
            continue
        fleet = fleets.ours if machine.cordon == "ours" else fleets.ready
        state = fleet.states.get(machine.name)
        if machine.condition == "failed" or (state is not None and machine.cordon != "person" and not has_work(state)):
            each = uses_of(machine.pool)
            freed = [None if most is None else most + use for most, use in zip(freed, each)]
    if freed == list(limits):
        return False
    rest = list(unit.pods)
    for fleet in fleets.all:
        rest = settle(rest, fleet)
    withdraw(unit.pods, fleets.all)
    pods = [*rest, *(pod for _, others in outcome.buyers for pod in others)]
    kinds = [DemandGroup(alike, fits.now(alike[0])) for _, alike in by_shape(pods)]
    return Optimizer(kinds, CapacityBudget(fits.offers, freed)).buy().is_complete


def has_work(state: NodeState) -> bool:
    """Pods of DaemonSets and parts of the node are no work."""
    return any(pod.owner not in ("DaemonSet", "Node") and "@" not in pod.name for pod in state.pods.values())
