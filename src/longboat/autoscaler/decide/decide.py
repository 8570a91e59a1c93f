"""Decides what the autoscaler does next: a Snapshot, settings and the time in, a Plan out. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from longboat.autoscaler.model.daemonsets import daemons_by_pool
from longboat.autoscaler.model.machines import Machine, machines_of, pods_by_node
from longboat.autoscaler.model.plan import NodeNote, PoolNote, ScalingPlan
from longboat.autoscaler.model.snapshot import AutoscalerSettings, ClusterSnapshot
from longboat.autoscaler.purchase.offers import PoolOffer, limits_left, machines_within, offers_of
from longboat.autoscaler.scale_down.scale_down import ScaleDown
from longboat.autoscaler.scale_up.demand import demand_of
from longboat.autoscaler.scale_up.fleets import Fleets
from longboat.autoscaler.scale_up.headroom import ScaleUp
from longboat.autoscaler.scale_up.scale_up import grow
from longboat.autoscaler.scale_up.using_min import using_min


def decide(snapshot: ClusterSnapshot, settings: AutoscalerSettings, now: float) -> ScalingPlan:
    """What to do, and for everything that is left as it is, why."""
    pods = pods_by_node(snapshot)
    machines = machines_of(snapshot, settings, now)
    daemons = daemons_by_pool(snapshot, machines, pods)
    offers = offers_of(snapshot.pools, machines, snapshot.failures, daemons, settings, now)
    limits = limits_left(settings.limits, machines)

    def growing(offers: Mapping[str, PoolOffer]) -> tuple[ScaleUp, Fleets]:
        fleets = Fleets(machines, pods, daemons, settings, snapshot.namespaces)
        return grow(demand_of(snapshot, settings), fleets, offers, limits, settings, now), fleets

    growth, fleets = using_min(growing, offers)
    actions, notes = ScaleDown(snapshot, fleets, growth, pods, settings, now).run()
    return ScalingPlan(
        actions=(*growth.actions, *actions),
        waiting=tuple(growth.waiting),
        nodes=tuple(notes),
        pools=tuple(_pool_note(offer, machines, growth, limits) for offer in offers.values()),
        next_s=_next(snapshot, machines, offers, [*_ends_of_idling(notes, growth, settings)], now),
    )


def _pool_note(offer: PoolOffer, machines: list[Machine], growth: ScaleUp, limits: tuple[int | None, ...]) -> PoolNote:
    mine = [machine for machine in machines if machine.pool is not None and machine.pool.name == offer.name]
    coming = sum(1 for machine in mine if machine.condition == "booting")
    bought = growth.bought.get(offer.name, 0)
    within = machines_within(offer.pool, limits)
    if bought:
        reason = f"grows by {bought}" + (f", a little later: {offer.delay.reason}" if offer.delay else "")
    elif offer.blocked and not offer.zones:
        reason = f"does not grow: {offer.blocked[0].reason}"
    elif not offer.room:
        reason = f"at its max of {offer.pool.max}"
    elif within == 0:
        reason = "the limits of all pools leave no room for a machine"
    else:
        reason = "nobody waits for more machines of it"
    if offer.zones:
        reason += "".join(
            f"; zone {window.zone}: {window.reason}" for window in offer.blocked if window.zone is not None
        )
    shut = (*offer.blocked, *((offer.delay,) if offer.delay else ()))
    is_off = any(closed.until is None for closed in shut)
    until = None if is_off else max((closed.until for closed in shut if closed.until is not None), default=None)
    return PoolNote(
        pool=offer.name,
        reason=reason,
        size=len(mine),
        coming=coming,
        ordered=sum(1 for machine in mine if machine.order is not None and machine.condition == "booting"),
        blocked_until=until,
        backoffs=shut,
    )


def _ends_of_idling(notes: list[NodeNote], growth: ScaleUp, settings: AutoscalerSettings) -> Iterator[float]:
    for note in notes:
        yield from (since + settings.idle_s for since in (note.idle_since, note.underused_since) if since)
        if note.idle_since and note.node in growth.kept:
            yield note.idle_since + growth.kept[note.node][1]


def _next(
    snapshot: ClusterSnapshot,
    machines: list[Machine],
    offers: Mapping[str, PoolOffer],
    moments: list[float],
    now: float,
) -> float | None:
    """Seconds until something changes by time alone; `moments`: those that are known already."""
    moments += [moment for machine in machines for moment in (machine.expected, machine.deadline) if moment is not None]
    moments += [window.until for offer in offers.values() for window in offer.blocked if window.until is not None]
    moments += [
        pool_offer.delay.until
        for pool_offer in offers.values()
        if pool_offer.delay is not None and pool_offer.delay.until is not None
    ]
    moments += [
        machine.node.kept_until
        for machine in machines
        if machine.node is not None and machine.node.kept_until is not None
    ]
    moments += [pod.kept_until for pod in snapshot.pods if pod.kept_until is not None]
    ahead = [moment - now for moment in moments if moment > now]
    return min(ahead, default=None)
