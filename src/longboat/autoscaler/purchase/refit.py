"""A cheaper purchase for a small demand: machines are left out or exchanged and everything is packed anew. Pure.

Filling machines one after the other can miss the best; with a handful of pods every exchange can be tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longboat.autoscaler.model.daemonsets import daemon_pods
from longboat.autoscaler.model.machines import template
from longboat.autoscaler.purchase.offers import PoolOffer
from longboat.autoscaler.purchase.purchase import CapacityBudget, DemandGroup, MachineGroup, Purchase, price_key
from longboat.fitting.eligibility import admits
from longboat.fitting.fleet import Fleet
from longboat.fitting.packing import Placement, take

MOST_PODS = 16  # an exact search: its time is exponential in all three
MOST_MACHINES = 12  # as above
MOST_POOLS = 8  # as above


def refit(purchase: Purchase, kinds: Sequence[DemandGroup], names: Sequence[str], budget: CapacityBudget) -> Purchase:
    """The cheapest that exchanges lead to. `budget` is what was there before the purchase was paid for."""
    offers = budget.offers
    left = [len(kind.pods) for kind in kinds]
    pods = sum(left)
    machines = [group.pool for group in purchase.groups for _ in range(group.count)]
    able = [name for name in names if not offers[name].pool.zero_or_max]
    able = [name for name in able if all(_is_plain(kind, offers[name]) for kind in kinds)]
    is_small = pods <= MOST_PODS and len(machines) <= MOST_MACHINES and len(able) <= MOST_POOLS
    if not is_small or not purchase.is_complete or not set(machines) <= set(able):
        return purchase
    best = purchase
    again = True
    while again:
        again = False
        for candidate in sorted(_exchanges(machines, able, budget), key=lambda names: (_price(names, budget), names)):
            if _price(candidate, budget) >= _price(machines, budget) - 1e-12:
                break
            packed = _packed(candidate, kinds, budget)
            if packed is not None:
                best, machines, again = packed, list(candidate), True
                break
    return best


def _is_plain(kind: DemandGroup, offer: PoolOffer) -> bool:
    """Whether the pool takes the kind in every zone, or its machines could not hold it.

    A pod that needs no GPU may fit on a machine that is not meant for it: such pools are left out.
    """
    zones = kind.zones.get(offer.name)
    if zones is not None:
        return zones == offer.zones
    shape = template(offer.pool, offer.zones[0], "new")
    fits = offer.machine(offer.zones[0], "new").states["new"].fits(kind.shape) > 0
    return not (fits and admits(kind.shape.placing, shape))


def _price(machines: Sequence[str], budget: CapacityBudget) -> float:
    return sum(price_key(budget.offers[name]) for name in machines)


def _exchanges(machines: Sequence[str], able: Sequence[str], budget: CapacityBudget) -> Iterable[tuple[str, ...]]:
    """One machine left out, one or two exchanged for others, or two for one."""
    candidates: set[tuple[str, ...]] = set()
    for number in range(len(machines)):
        rest = [*machines[:number], *machines[number + 1 :]]
        candidates.add(tuple(sorted(rest)))
        for name in able:
            candidates.add(tuple(sorted([*rest, name])))
            candidates.update(tuple(sorted([*rest, name, other])) for other in able)
    allowed = []
    for candidate in candidates:
        mine = budget.copy()
        if all(_pays(mine, name) for name in candidate):
            allowed.append(candidate)
    return allowed


def _pays(budget: CapacityBudget, name: str) -> bool:
    if budget.affords(name, 1) < 1:
        return False
    budget.pay(name, 1)
    return True


def _packed(machines: Sequence[str], kinds: Sequence[DemandGroup], budget: CapacityBudget) -> Purchase | None:
    """The kinds on exactly these machines, if they fit."""
    shapes, held, pools = [], [], {}
    for number, pool in enumerate(machines):
        name, offer = f"new-{number:03d}", budget.offers[pool]
        shapes.append(template(offer.pool, offer.zones[0], name))
        held += daemon_pods(offer.daemons, name, set())
        pools[name] = pool
    pods = [pod for kind in kinds for pod in kind.pods]
    placement = take(pods, Fleet(shapes, held), explain=False)
    if not isinstance(placement, Placement):
        return None
    numbers = [number for number, kind in enumerate(kinds) for _ in kind.pods]
    contents: dict[str, dict[int, int]] = {}
    for number, name in zip(numbers, placement.nodes):
        mine = contents.setdefault(name, {})
        mine[number] = mine.get(number, 0) + 1
    purchase = Purchase([0] * len(kinds))
    for name, counts in sorted(contents.items()):
        pool = pools[name]
        purchase.groups.append(MachineGroup(pool, budget.offers[pool].zones, tuple(sorted(counts.items())), 1))
    return purchase
