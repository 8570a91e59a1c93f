"""Gangs in one zone: a gang is bought machines of one pool in one zone wherever that costs no more. Pure.

The cheapest machines for the whole demand are known before. Here each gang is tried in every place that could take all
of it; the rest of the demand is bought around that, and the result is taken only if it is as cheap as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from longboat.autoscaler.purchase.balance import ZoneLoads
from longboat.autoscaler.purchase.offers import Fits, Zone, uses_of
from longboat.autoscaler.purchase.optimize import Optimizer
from longboat.autoscaler.purchase.purchase import CapacityBudget, DemandGroup, MachineGroup, Purchase, cost_of
from longboat.autoscaler.scale_up.demand import PendingWorkload
from longboat.autoscaler.scale_up.placement import by_shape
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.model.quantities import is_gpu

Buyer = tuple[PendingWorkload, list[Pod]]
Place = tuple[tuple[str, ...], Zone]
"""Pools, and the zone of theirs in which all is bought."""
Mark = tuple[tuple[PodShape, int], ...]
Rank = tuple[bool, int, float, bool, tuple[int, int], tuple[tuple[str, ...], str]]

MOST_PLACES = 32
"""Places tried for one gang; a pools file rarely has more pools times zones that a gang fits in."""
MOST_SEARCHES = 16
"""Purchases in one turn that are searched for the cheapest, at some milliseconds each; after that a quick fill does."""


class GangZones:
    def __init__(self, buyers: Sequence[Buyer], fits: Fits, budget: CapacityBudget, homes: Mapping[int, Zone]) -> None:
        """`homes`: the zone in which a gang (by id) has pods already."""
        self.buyers, self.fits, self.budget, self.homes = buyers, fits, budget, homes
        self.loads = ZoneLoads(budget.offers)
        self._known: dict[tuple[Mark, object], Purchase] = {}
        self._full: set[tuple[Mark, Place | None]] = set()
        self._searches = 0
        self._shared: Place | None = None  # of gangs that leave room on their machines, so that others can use it

    def buy(self, base: Purchase) -> tuple[list[DemandGroup], Purchase] | None:
        """Kinds and purchase with the gangs together; None: it stays as it is."""
        mine = self.budget.copy()
        chosen: dict[int, tuple[Place, Purchase]] = {}
        for unit, rest in self.buyers:
            if len(unit.pods) > 1 or unit.held:
                choice = self._choose(unit, rest, mine)
                if choice is not None:
                    chosen[id(unit)] = choice
                    mine.pay_all(choice[1].groups)
        if not chosen:
            return None
        for kinds, purchase in (self._buy_separately(chosen, mine), self._jointly(chosen)):
            if purchase.is_complete and self._is_as_good(purchase, base):
                return kinds, purchase
        return None

    def _choose(self, unit: PendingWorkload, rest: list[Pod], mine: CapacityBudget) -> tuple[Place, Purchase] | None:
        """The place for a gang, and its machines there, if it costs no more than anywhere else."""
        alike = by_shape(rest)
        places = self._places([pods for _, pods in alike])
        if len(places) < 2:
            return None
        mark = tuple((shape, len(pods)) for shape, pods in alike)
        free = self._buy_gang(mark, alike, None, mine)
        if free is None:
            return None
        able: list[tuple[Rank, Place, Purchase]] = []
        for place in places:
            if len(place[0]) > 1 and able:
                break  # pools are mixed only where none has room for all
            purchase = self._buy_gang(mark, alike, place, mine)
            if purchase is not None and self._is_as_good(purchase, free):
                able.append((self._rank(unit, rest, place, purchase), place, purchase))
        if not able:
            return None
        _, place, purchase = min(able, key=lambda ranked: ranked[0])
        if not self._is_full(rest, purchase):
            self._shared = place
        for pool, count in purchase.counts().items():
            self.loads.add((pool, place[1]), count)
        return place, purchase

    def _rank(self, unit: PendingWorkload, rest: list[Pod], place: Place, purchase: Purchase) -> Rank:
        """Beside its other pods, of one pool, cheap, and where there are fewest machines.

        Gangs that do not fill their machines go where others like them go: apart they would need more machines.
        """
        pools, zone = place
        home = self.homes.get(id(unit))
        loads = max(self.loads.rank((pool, zone)) for pool in purchase.counts())
        cost = round(cost_of(purchase, self.budget.offers), 9)
        apart = self._shared not in (None, place) and not self._is_full(rest, purchase)
        return home is not None and home != zone, len(purchase.counts()), cost, apart, loads, (pools, zone or "")

    def _is_full(self, rest: list[Pod], purchase: Purchase) -> bool:
        """Whether all GPUs that are bought are asked for."""
        offers = self.budget.offers
        names = {offers[pool].pool.gpu_resource for pool in purchase.counts()}
        asked = sum(count for pod in rest for name, count in pod.shape.requests if name in names or is_gpu(name))
        return 0 < asked == sum(uses_of(offers[pool].pool)[2] * count for pool, count in purchase.counts().items())

    def _places(self, kinds: Sequence[Sequence[Pod]]) -> list[Place]:
        """Every pool and zone that takes all kinds, then every zone with all pools there."""
        able = [self.fits.now(pods[0]) for pods in kinds]
        slots = [
            (pool, zone)
            for pool, zones in sorted(able[0].items())
            for zone in zones
            if all(zone in each.get(pool, ()) for each in able)
        ]
        places: list[Place] = [((pool,), zone) for pool, zone in slots]
        by_zone: dict[str, set[str]] = {}
        for each in able:
            for pool, zones in each.items():
                for zone in zones:
                    if zone is not None:
                        by_zone.setdefault(zone, set()).add(pool)
        places += [(tuple(sorted(pools)), zone) for zone, pools in sorted(by_zone.items()) if len(pools) > 1]
        return places[:MOST_PLACES]

    def _buy_gang(
        self, mark: Mark, alike: list[tuple[PodShape, list[Pod]]], place: Place | None, mine: CapacityBudget
    ) -> Purchase | None:
        """What a gang of this mark is bought in this place (None: anywhere) with what is left."""
        if (mark, place) in self._full:
            return None
        # Similar pools are filled alike, so that one of them is tried.
        key = (mark, place if place is None or len(place[0]) > 1 else self.loads.set_of(place[0][0]))
        known = self._known.get(key)
        if known is not None and place is not None and len(place[0]) == 1:
            known = _renamed(known, place)
        if known is not None and mine.affords_all(known.counts()):
            return known
        purchase = None if known is not None and place is not None else self._bought(alike, place, mine)
        if purchase is None or not purchase.is_complete:
            self._full.add((mark, place))  # what is left only shrinks
            return None
        self._known[key] = purchase
        return purchase

    def _bought(self, alike: list[tuple[PodShape, list[Pod]]], place: Place | None, mine: CapacityBudget) -> Purchase:
        self._searches += 1
        kinds = [DemandGroup(pods, self._zones(pods[0], place)) for _, pods in alike]
        optimizer = Optimizer(kinds, mine if place is None else _only(mine, place))
        return optimizer.buy() if self._searches <= MOST_SEARCHES else optimizer.fill()

    def _zones(self, pod: Pod, place: Place | None) -> dict[str, tuple[Zone, ...]]:
        now = self.fits.now(pod)
        if place is None:
            return now
        pools, zone = place
        return {pool: (zone,) for pool, zones in now.items() if pool in pools and zone in zones}

    def _buy_separately(
        self, chosen: Mapping[int, tuple[Place, Purchase]], left: CapacityBudget
    ) -> tuple[list[DemandGroup], Purchase]:
        """Each gang on machines of its own, then the others."""
        kinds: list[DemandGroup] = []
        total = Purchase([])
        for unit, rest in self.buyers:
            if id(unit) in chosen:
                place, purchase = chosen[id(unit)]
                mine = [DemandGroup(pods, self._zones(pods[0], place), is_gang=True) for _, pods in by_shape(rest)]
                _append(total, purchase, len(kinds), place[1])
                kinds += mine
        others = self._kinds((unit, rest) for unit, rest in self.buyers if id(unit) not in chosen)
        _append(total, Optimizer(others, left).buy(), len(kinds), None)
        return [*kinds, *others], total

    def _jointly(self, chosen: Mapping[int, tuple[Place, Purchase]]) -> tuple[list[DemandGroup], Purchase]:
        """All at once, so that others ride along on a gang's machines."""
        kinds = self._kinds(self.buyers, {unit: place for unit, (place, _) in chosen.items()})
        return kinds, Optimizer(kinds, self.budget).buy()

    def _kinds(self, buyers: Iterable[Buyer], places: Mapping[int, Place] | None = None) -> list[DemandGroup]:
        """Alike pods of one place are of one kind, those of gangs apart from the others; the hardest first."""
        groups: dict[PodShape, dict[tuple[Place | None, bool], list[Pod]]] = {}
        for unit, rest in buyers:
            mark = ((places or {}).get(id(unit)), len(unit.pods) > 1)
            for pod in rest:
                groups.setdefault(pod.shape, {}).setdefault(mark, []).append(pod)
        return [
            DemandGroup(pods, self._zones(pods[0], place), is_gang=is_gang)
            for shape, _ in by_shape(alike[0] for each in groups.values() for alike in each.values())
            for (place, is_gang), pods in groups[shape].items()
        ]

    def _is_as_good(self, purchase: Purchase, base: Purchase) -> bool:
        """Whether it costs no more, and takes no pool of a lower priority for it."""
        if self._tiers(purchase) > self._tiers(base):
            return False
        both = (purchase, base)
        mine, theirs = (cost_of(each, self.budget.offers) for each in both)
        if mine <= theirs + 1e-12:
            return True
        # Where prices are stated, what `price_key` adds for the size of a machine decides nothing.
        stated, before = (sum(self._price(pool) * n for pool, n in each.counts().items()) for each in both)
        return before > 0 and stated <= before * (1 + 1e-9)

    def _price(self, pool: str) -> float:
        return self.budget.offers[pool].pool.price

    def _tiers(self, purchase: Purchase) -> tuple[int, ...]:
        """Machines of each priority, the highest first; fewer of them sort later."""
        counts = dict.fromkeys((offer.pool.priority for offer in self.budget.offers.values()), 0)
        for pool, count in purchase.counts().items():
            counts[self.budget.offers[pool].pool.priority] -= count
        # The lowest tier is bounded by the price.
        return tuple(counts[tier] for tier in sorted(counts, reverse=True)[:-1])


def _only(budget: CapacityBudget, place: Place) -> CapacityBudget:
    pools, zone = place
    mine = budget.copy()
    mine.offers = {name: msgspec.structs.replace(budget.offers[name], zones=(zone,)) for name in pools}
    mine.room = {name: budget.room[name] for name in pools}
    return mine


def _renamed(purchase: Purchase, place: Place) -> Purchase:
    """The same machines of a similar pool."""
    (pool,), zone = place
    renamed = Purchase(purchase.left)
    renamed.groups = [MachineGroup(pool, (zone,), group.contents, group.count) for group in purchase.groups]
    return renamed


def _append(total: Purchase, purchase: Purchase, offset: int, zone: Zone) -> None:
    """`purchase` after what is there; its kinds are counted from `offset`."""
    for group in purchase.groups:
        contents = tuple((kind + offset, count) for kind, count in group.contents)
        zones = group.zones if zone is None else (zone,)
        total.groups.append(MachineGroup(group.pool, zones, contents, group.count))
    total.left += purchase.left
