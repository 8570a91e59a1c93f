"""Scale up: which pools grow by how much, and for whom; who waits for what. Pure.

What is bought for demand is decided in `serve`; minimum, spare machines, over-provision, pools of all or nothing and
room for elastic runs come on top, each only in the pools they concern and only within the limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longboat.autoscaler.model.machines import Machine
from longboat.autoscaler.model.plan import PendingItem, ScalingAction
from longboat.autoscaler.model.snapshot import POOL_LABEL, AutoscalerSettings
from longboat.autoscaler.purchase.offers import Fits, PoolOffer
from longboat.autoscaler.purchase.optimize import zones_of
from longboat.autoscaler.purchase.purchase import CapacityBudget
from longboat.autoscaler.scale_up.demand import Demand, PendingWorkload
from longboat.autoscaler.scale_up.elastic_growth import ElasticGrowth
from longboat.autoscaler.scale_up.fleets import Fleets
from longboat.autoscaler.scale_up.headroom import ExtraMachines, Headroom, ScaleUp
from longboat.autoscaler.scale_up.placement import where, withdraw
from longboat.autoscaler.scale_up.reasons import ReasonWriter
from longboat.autoscaler.scale_up.serve import DemandServer, ServeResult
from longboat.autoscaler.scale_up.upcoming_demand import pools_needed_soon
from longboat.core.words import listing
from longboat.fitting.fleet import Fleet

MOST_NAMED = 5  # one line of reasons


def grow(
    demand: Demand,
    fleets: Fleets,
    offers: Mapping[str, PoolOffer],
    limits: Sequence[int | None],
    settings: AutoscalerSettings,
    now: float,
) -> ScaleUp:
    fits = Fits(dict(offers))
    outcome = _serve(demand.units, fleets, fits, CapacityBudget(offers, limits))
    growth = ScaleUp()
    budget = outcome.budget.copy()
    budget.pay_all(outcome.purchase.groups)
    pools = {name: ExtraMachines() for name in offers}
    for group in outcome.groups:
        pools[group.pool].count += group.count
    going = _buyers(outcome)
    _add_sharers(going, demand, fleets)
    for name, extra in pools.items():
        if extra.count:
            extra.runs = [unit.name for unit in demand.units if name in going.get(id(unit), ())]
            extra.reasons.append(_for_whom(extra.runs, extra.count))
    placed = _placed(demand, fleets)
    _note_served(demand, placed, growth)
    groups = [*outcome.groups, *Headroom(pools, fleets, budget, settings, growth).groups()]
    groups += ElasticGrowth(demand, fleets, fits, budget, now).groups(pools, growth)
    zones = zones_of(groups, {name: offer.by_zone for name, offer in offers.items()})
    growth.actions = [
        _action(name, extra, zones.get(name, {}))
        for name, extra in sorted(pools.items())
        if extra.count and offers[name].delay is None
    ]
    growth.budget, growth.fits = budget, fits
    growth.bought = {name: extra.count for name, extra in pools.items() if extra.count}
    growth.soon = pools_needed_soon(outcome, fleets, fits, limits, now + settings.idle_s)
    words = ReasonWriter(fits, offers, limits, settings, now)
    growth.waiting = [*demand.held, *_waiting(demand, outcome, placed, going, words)]
    return growth


def _serve(units: Sequence[PendingWorkload], fleets: Fleets, fits: Fits, budget: CapacityBudget) -> ServeResult:
    """Serve all, in order; who comes after a gang that is refused is refused with it."""
    left, refused = list(units), list[PendingWorkload]()
    while True:
        fleets.bought = Fleet((), namespaces=fleets.namespaces)
        outcome = _share(DemandServer(fleets, fits, budget).serve(left), left, fleets, fits)
        lost = {unit.name for unit in outcome.refused if unit.is_run}
        followers = [unit for unit in left if unit.after in lost]
        if not followers:
            outcome.refused += refused
            return outcome
        refused += followers
        for unit in left:
            withdraw(unit.pods, fleets.all)
        left = [unit for unit in left if unit.after not in lost]


def _share(outcome: ServeResult, units: Sequence[PendingWorkload], fleets: Fleets, fits: Fits) -> ServeResult:
    """What is left on machines that are bought for those who look at their neighbours is there for the others."""
    again = {id(unit) for unit, _ in outcome.buyers} | {id(unit) for unit in outcome.refused}
    rest = [unit for unit in units if id(unit) in again]
    nodes = [pair for new in outcome.new_machines for pair in new.nodes]
    if not rest or not nodes:
        return outcome
    kept = {pool for unit in rest for pod in unit.pods for pool in fits.ever(pod) if pool not in fits.allowed(pod)}
    for shape, pods in nodes:
        if shape.labels[POOL_LABEL] not in kept:  # its GPUs are for those who need them
            fleets.bought.add_node(shape)
            for pod in pods:
                fleets.bought.add(pod, fleets.bought.states[shape.name])
    for unit in rest:
        withdraw(unit.pods, fleets.all)
    result = DemandServer(fleets, fits, outcome.budget).serve(rest)
    result.new_machines = [*outcome.new_machines, *result.new_machines]
    return result


def _action(pool: str, extra: ExtraMachines, zones: dict[str, int]) -> ScalingAction:
    reason = "; ".join(extra.reasons)
    return ScalingAction(kind="grow", pool=pool, count=extra.count, reason=reason, zones=zones, runs=tuple(extra.runs))


def _for_whom(runs: list[str], count: int) -> str:
    return f"{count} for {listing(runs, MOST_NAMED)}: no room on machines that are there or on their way"


def _buyers(outcome: ServeResult) -> dict[int, dict[str, int]]:
    """Places on new machines of each pool by demand (its id); identical pods in the order of the demand."""
    places: list[list[list[object]]] = [[] for _ in outcome.kinds]
    for group in outcome.purchase.groups:
        for kind, count in group.contents:
            places[kind].append([group.pool, count * group.count])
    number = {id(pod): index for index, kind in enumerate(outcome.kinds) for pod in kind.pods}
    buyers: dict[int, dict[str, int]] = {}
    for unit, pods in outcome.buyers:
        mine = buyers.setdefault(id(unit), {})
        for pod in pods:
            queue = places[number[id(pod)]]
            while queue and not queue[0][1]:
                queue.pop(0)
            if queue:
                queue[0][1] -= 1  # type: ignore[operator]
                pool = str(queue[0][0])
                mine[pool] = mine.get(pool, 0) + 1
    for new in outcome.new_machines:
        pools = sorted({group.pool for group in new.groups})
        for unit in new.units:
            buyers.setdefault(id(unit), {}).update(dict.fromkeys(pools, 1))
    return buyers


def _add_sharers(going: dict[int, dict[str, int]], demand: Demand, fleets: Fleets) -> None:
    """Add demand that is placed on machines bought for other demand."""
    for unit in demand.units if fleets.bought.states else ():
        for pod in unit.pods if id(unit) not in going else ():
            state = fleets.bought.where(pod)
            if state is not None:
                mine = going.setdefault(id(unit), {})
                pool = state.shape.labels[POOL_LABEL]
                mine[pool] = mine.get(pool, 0) + 1


def _placed(demand: Demand, fleets: Fleets) -> dict[int, list[Machine]]:
    """For every unit (by its place in the demand) the machines it was put on."""
    filled = [fleet for fleet in fleets.all if fleet.states]
    placed: dict[int, list[Machine]] = {}
    for number, unit in enumerate(demand.units) if filled else ():
        names: dict[str, None] = {}
        for pod in unit.pods:
            state = where(pod, filled)
            if state is not None and state.name in fleets.machines:
                names[state.name] = None
        if names:
            placed[number] = [fleets.machines[name] for name in names]
    return placed


def _note_served(demand: Demand, placed: Mapping[int, list[Machine]], growth: ScaleUp) -> None:
    """Nodes that the demand was put on are needed; those with our cordon get it lifted."""
    for number, machines in placed.items():
        name = demand.units[number].name
        for machine in machines:
            growth.needed.setdefault(machine.name, name)
            if machine.cordon == "ours":
                growth.uncordons.setdefault(machine.name, f"needed by {name}: cheaper than a new machine")


def _waiting(
    demand: Demand,
    outcome: ServeResult,
    placed: Mapping[int, list[Machine]],
    going: Mapping[int, Mapping[str, int]],
    words: ReasonWriter,
) -> list[PendingItem]:
    refused = {id(unit) for unit in outcome.refused}
    lost = {unit.name for unit in outcome.refused if unit.is_run}
    items = []
    for number, unit in enumerate(demand.units):
        if id(unit) in refused:
            items.append(unit.waits(unit.after_whom() if unit.after in lost else words.refusal(unit)))
            continue
        machines, bought = placed.get(number, []), going.get(id(unit), {})
        expected, reason = words.promise(unit, machines, bought)
        pools = [*bought, *(machine.pool.name for machine in machines if machine.pool is not None)]
        items.append(unit.waits(reason, pool=pools[0] if pools else None, expected=expected))
    return items
