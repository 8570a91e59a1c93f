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

MOST_PODS = 16
MOST_MACHINES = 12
MOST_POOLS = 8


def refit(basket: Purchase, kinds: Sequence[DemandGroup], names: Sequence[str], purse: CapacityBudget) -> Purchase:
    """The cheapest that exchanges lead to. `purse` is what was there before the basket was paid for."""
    offers = purse.offers
    left = [len(kind.pods) for kind in kinds]
    pods = sum(left)
    machines = [lot.pool for lot in basket.lots for _ in range(lot.count)]
    able = [name for name in names if not offers[name].pool.zero_or_max]
    able = [name for name in able if all(_is_plain(kind, offers[name]) for kind in kinds)]
    is_small = pods <= MOST_PODS and len(machines) <= MOST_MACHINES and len(able) <= MOST_POOLS
    if not is_small or not basket.is_complete or not set(machines) <= set(able):
        return basket
    best = basket
    again = True
    while again:
        again = False
        for candidate in sorted(_exchanges(machines, able, purse), key=lambda one: (_price(one, purse), one)):
            if _price(candidate, purse) >= _price(machines, purse) - 1e-12:
                break
            found = _packed(candidate, kinds, purse)
            if found is not None:
                best, machines, again = found, list(candidate), True
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


def _price(machines: Sequence[str], purse: CapacityBudget) -> float:
    return sum(price_key(purse.offers[name]) for name in machines)


def _exchanges(machines: Sequence[str], able: Sequence[str], purse: CapacityBudget) -> Iterable[tuple[str, ...]]:
    """One machine left out, one or two exchanged for others, or two for one."""
    found: set[tuple[str, ...]] = set()
    for number in range(len(machines)):
        rest = [*machines[:number], *machines[number + 1 :]]
        found.add(tuple(sorted(rest)))
        for name in able:
            found.add(tuple(sorted([*rest, name])))
            found.update(tuple(sorted([*rest, name, other])) for other in able)
    allowed = []
    for one in found:
        mine = purse.copy()
        if all(_pays(mine, name) for name in one):
            allowed.append(one)
    return allowed


def _pays(purse: CapacityBudget, name: str) -> bool:
    if purse.affords(name, 1) < 1:
        return False
    purse.pay(name, 1)
    return True


def _packed(machines: Sequence[str], kinds: Sequence[DemandGroup], purse: CapacityBudget) -> Purchase | None:
    """The kinds on exactly these machines, if they fit."""
    shapes, held, pools = [], [], {}
    for number, pool in enumerate(machines):
        name, offer = f"new-{number:03d}", purse.offers[pool]
        shapes.append(template(offer.pool, offer.zones[0], name))
        held += daemon_pods(offer.daemons, name, set())
        pools[name] = pool
    pods = [pod for kind in kinds for pod in kind.pods]
    found = take(pods, Fleet(shapes, held), explain=False)
    if not isinstance(found, Placement):
        return None
    numbers = [number for number, kind in enumerate(kinds) for _ in kind.pods]
    contents: dict[str, dict[int, int]] = {}
    for number, name in zip(numbers, found.nodes):
        mine = contents.setdefault(name, {})
        mine[number] = mine.get(number, 0) + 1
    basket = Purchase([0] * len(kinds))
    for name, counts in sorted(contents.items()):
        pool = pools[name]
        basket.lots.append(MachineGroup(pool, purse.offers[pool].zones, tuple(sorted(counts.items())), 1))
    return basket
