"""Bin packing over pools: the cheapest machines for a whole demand. Pure.

Machines are filled one pattern at a time (a pattern repeats for as long as there are pods for it), so that the work
grows with the kinds of pods and not with their number. Several ways to choose pools are tried and the cheapest is
taken; then machines are exchanged for cheaper ones and two are merged into one where that saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from longboat.autoscaler.purchase.offers import Zone, most_on_one
from longboat.autoscaler.purchase.purchase import (
    CapacityBudget,
    Contents,
    DemandGroup,
    MachineGroup,
    Purchase,
    cost_of,
    price_key,
)
from longboat.autoscaler.purchase.refit import refit
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.quantities import is_gpu

MOST_LEADS = 12  # each lead pool is one more whole plan
MOST_MERGED = 24  # pairs of machines grow with the square
MANY_KINDS = 60  # with more kinds of pods a plan is slow: one lead only


class Optimizer:
    """One demand, and the pools it may be served from."""

    def __init__(self, kinds: Sequence[DemandGroup], budget: CapacityBudget) -> None:
        self.kinds, self.budget = kinds, budget
        self._empty: dict[tuple[str, Zone], Fleet] = {}
        self._patterns: dict[tuple[str, tuple[Zone, ...], tuple[int, ...]], Contents] = {}
        self._most: dict[tuple[str, int], int] = {}

    def buy(self) -> Purchase:
        """Tier by tier: pools of a higher priority first, then the rest from the next ones."""
        purchase = Purchase([len(kind.pods) for kind in self.kinds])
        budget = self.budget.copy()
        tiers = sorted({offer.pool.priority for offer in budget.offers.values()}, reverse=True)
        for tier in tiers:
            names = [name for name, offer in sorted(budget.offers.items()) if offer.pool.priority == tier]
            self._buy_tier(names, purchase, budget)
            if purchase.is_complete:
                break
        return purchase

    def fill(self) -> Purchase:
        """Quickly: machines of the cheapest pool, then of the next, with no look for something better."""
        offers = self.budget.offers
        names = sorted(offers, key=lambda name: (-offers[name].pool.priority, price_key(offers[name]), name))
        left = [len(kind.pods) for kind in self.kinds]
        return self._attempt(lambda left, budget: self._in_order(names, left, budget), left, self.budget)[0]

    def _buy_tier(self, names: Sequence[str], purchase: Purchase, budget: CapacityBudget) -> None:
        names = [name for name in names if budget.room[name] > 0 and any(name in kind.zones for kind in self.kinds)]
        if not names:
            return
        tried = [self._attempt(choose, purchase.left, budget) for choose in self._strategies(names, budget)]
        best = min(tried, key=lambda candidate: self._rank(candidate[0]))
        chosen = self._improve(best[0], names, best[1])
        if purchase.left == [len(kind.pods) for kind in self.kinds]:
            chosen = refit(chosen, self.kinds, names, budget)
        budget.pay_all(chosen.groups)
        purchase.groups += chosen.groups
        purchase.left = chosen.left

    def _strategies(
        self, names: Sequence[str], budget: CapacityBudget
    ) -> list[Callable[[Sequence[int], CapacityBudget], MachineGroup | None]]:
        strategies: list[Callable[[Sequence[int], CapacityBudget], MachineGroup | None]] = [
            lambda left, capacity_budget: self._by_ratio(names, left, capacity_budget)
        ]
        ranked = sorted(names, key=lambda name: (price_key(budget.offers[name]), name))
        if len(names) > 1:
            most = MOST_LEADS if len(self.kinds) <= MANY_KINDS else 1
            for lead in ranked[:most]:
                order = [lead, *(name for name in ranked if name != lead)]
                strategies.append(lambda left, kind, order=order: self._in_order(order, left, kind))  # type: ignore[misc]
        return strategies

    def _attempt(
        self,
        choose: Callable[[Sequence[int], CapacityBudget], MachineGroup | None],
        left: Sequence[int],
        budget: CapacityBudget,
    ) -> tuple[Purchase, CapacityBudget]:
        purchase, mine = Purchase(left), budget.copy()
        while any(purchase.left):
            group = choose(purchase.left, mine)
            if group is None:
                break
            mine.pay(group.pool, group.count)
            purchase.groups.append(group)
            for kind, count in group.contents:
                purchase.left[kind] -= count * group.count
        return purchase, mine

    def _rank(self, purchase: Purchase) -> tuple[float, float, int, int, list[tuple[str, int]]]:
        """Sort key of candidates: fewest pods left pending, then least cost, then fewest idle GPUs."""
        unserved = sum(left * self._weight(kind) for kind, left in enumerate(purchase.left) if left)
        counts = sorted(purchase.counts().items())
        cost = cost_of(purchase, self.budget.offers)
        return round(unserved, 9), round(cost, 9), self._idle_gpus(purchase), sum(count for _, count in counts), counts

    def _idle_gpus(self, purchase: Purchase) -> int:
        idle = 0
        for group in purchase.groups:
            machine = self.budget.offers[group.pool].pool.machine
            gpus = sum(count for name, count in machine.allocatable if is_gpu(name))
            used = sum(
                count * sum(amount for name, amount in self.kinds[kind].shape.requests if is_gpu(name))
                for kind, count in group.contents
            )
            idle += (gpus - used) * group.count
        return idle

    def _weight(self, kind: int) -> float:
        """A fair price of one pod of this kind: its share of the cheapest machine that takes it."""
        offers = self.budget.offers
        prices = [price_key(offers[pool]) / max(self._most_on(pool, kind), 1) for pool in self.kinds[kind].zones]
        return min(prices, default=1.0) + 1e-12

    def _most_on(self, pool: str, kind: int) -> int:
        count = self._most.get((pool, kind))
        if count is None:
            zone = self.kinds[kind].zones[pool][0]
            state = next(iter(self._machine(pool, zone).states.values()))
            count = self._most[pool, kind] = max(1, state.fits(self.kinds[kind].shape))
        return count

    def _machine(self, pool: str, zone: Zone) -> Fleet:
        fleet = self._empty.get((pool, zone))
        if fleet is None:
            fleet = self._empty[pool, zone] = self.budget.offers[pool].machine(zone, "new")
        return fleet

    def _by_ratio(self, names: Sequence[str], left: Sequence[int], budget: CapacityBudget) -> MachineGroup | None:
        """The machine that serves most for its price."""
        best: tuple[tuple[float, float, str], MachineGroup] | None = None
        for name in names:
            group = self._best_lot(name, left, budget)
            if group is not None:
                value = sum(count * self._weight(kind) for kind, count in group.contents)
                price = budget.price(name)
                rank = (price / value, price, name)
                if best is None or rank < best[0]:
                    best = (rank, group)
        return best[1] if best else None

    def _in_order(self, names: Sequence[str], left: Sequence[int], budget: CapacityBudget) -> MachineGroup | None:
        return next((group for name in names if (group := self._best_lot(name, left, budget)) is not None), None)

    def _best_lot(self, pool: str, left: Sequence[int], budget: CapacityBudget) -> MachineGroup | None:
        """Machines of this pool with the fullest contents, as many as the same contents last for."""
        if budget.affords(pool, 1) < 1:
            return None
        best: tuple[float, MachineGroup] | None = None
        for zones, able in self._zone_groups(pool, left):
            contents = self._pattern(
                pool, zones, tuple(count if kind in able else 0 for kind, count in enumerate(left))
            )
            if contents:
                value = sum(count * self._weight(kind) for kind, count in contents)
                if best is None or value > best[0]:
                    count = min(left[kind] // number for kind, number in contents)
                    allowed = tuple(
                        zone for zone in zones if all(zone in self.kinds[k].zones[pool] for k, _ in contents)
                    )
                    best = (value, MachineGroup(pool, allowed, contents, budget.affords(pool, count)))
        return best[1] if best and best[1].count > 0 else None

    def _zone_groups(self, pool: str, left: Sequence[int]) -> list[tuple[tuple[Zone, ...], frozenset[int]]]:
        """Zones that the same kinds may be in."""
        zones_by_kinds: dict[frozenset[int], list[Zone]] = {}
        wanting = [number for number, count in enumerate(left) if count and pool in self.kinds[number].zones]
        for zone in self.budget.offers[pool].zones:
            able = frozenset(number for number in wanting if zone in self.kinds[number].zones[pool])
            if able:
                zones_by_kinds.setdefault(able, []).append(zone)
        return [(tuple(zones), able) for able, zones in zones_by_kinds.items()]

    def _pattern(self, pool: str, zones: tuple[Zone, ...], left: tuple[int, ...]) -> Contents:
        """What one machine takes of what is left, the hardest to place first."""
        capped = tuple(min(count, self._most_on(pool, kind)) if count else 0 for kind, count in enumerate(left))
        key = (pool, zones, capped)
        pattern = self._patterns.get(key)
        if pattern is None:
            fleet = self._machine(pool, zones[0]).copy()
            counts = [
                (kind, most_on_one(fleet, self.kinds[kind].pods[:count])) for kind, count in enumerate(capped) if count
            ]
            pattern = self._patterns[key] = tuple(pair for pair in counts if pair[1])
        return pattern

    def _improve(self, purchase: Purchase, names: Sequence[str], budget: CapacityBudget) -> Purchase:
        """Exchange machines for cheaper ones that hold the same, and merge two into one, while that saves."""
        improved = Purchase(purchase.left)
        improved.groups = list(purchase.groups)
        for number, group in enumerate(improved.groups):
            cheaper = self._cheaper(group, names, budget)
            if cheaper is not None:
                improved.groups[number] = cheaper
        if sum(group.count for group in improved.groups) <= MOST_MERGED:
            self._merge(improved, names, budget)
        return improved

    def _cheaper(self, group: MachineGroup, names: Sequence[str], budget: CapacityBudget) -> MachineGroup | None:
        """The same contents on the cheapest machine that holds them; the budget is settled."""
        offers = self.budget.offers
        if offers[group.pool].pool.zero_or_max:
            return None
        for name in sorted(names, key=lambda name: (price_key(offers[name]), name)):
            if price_key(offers[name]) >= price_key(offers[group.pool]) or offers[name].pool.zero_or_max:
                continue
            zones = self._zones_for(name, group.contents)
            if zones and self._holds(name, zones, group.contents):
                _give_back(budget, group)
                if budget.affords(name, group.count) == group.count:
                    budget.pay(name, group.count)
                    return MachineGroup(name, zones, group.contents, group.count)
                budget.pay(group.pool, group.count)
        return None

    def _merge(self, purchase: Purchase, names: Sequence[str], budget: CapacityBudget) -> None:
        offers = self.budget.offers
        groups = [group.times(1) for group in purchase.groups for _ in range(group.count)]
        ranked = sorted(names, key=lambda name: (price_key(offers[name]), name))
        again = True
        while again:
            again = False
            for first in range(len(groups)):
                for second in range(first + 1, len(groups)):
                    merged = self._merged(groups[first], groups[second], ranked, budget)
                    if merged is not None:
                        groups[first] = merged
                        del groups[second]
                        again = True
                        break
                if again:
                    break
        purchase.groups = groups

    def _merged(
        self, group: MachineGroup, other: MachineGroup, ranked: Sequence[str], budget: CapacityBudget
    ) -> MachineGroup | None:
        offers = self.budget.offers
        if offers[group.pool].pool.zero_or_max or offers[other.pool].pool.zero_or_max:
            return None
        both = dict(group.contents)
        for kind, count in other.contents:
            both[kind] = both.get(kind, 0) + count
        contents = tuple(sorted(both.items()))
        saved = price_key(offers[group.pool]) + price_key(offers[other.pool])
        for name in ranked:
            if price_key(offers[name]) >= saved or offers[name].pool.zero_or_max:
                continue
            zones = self._zones_for(name, contents)
            if not zones or not self._holds(name, zones, contents):
                continue
            _give_back(budget, group)
            _give_back(budget, other)
            if budget.affords(name, 1):
                budget.pay(name, 1)
                return MachineGroup(name, zones, contents, 1)
            budget.pay(group.pool, 1)
            budget.pay(other.pool, 1)
        return None

    def _zones_for(self, pool: str, contents: Contents) -> tuple[Zone, ...]:
        return tuple(
            zone
            for zone in self.budget.offers[pool].zones
            if all(zone in self.kinds[kind].zones.get(pool, ()) for kind, _ in contents)
        )

    def _holds(self, pool: str, zones: tuple[Zone, ...], contents: Contents) -> bool:
        left = [0] * len(self.kinds)
        for kind, count in contents:
            if count > self._most_on(pool, kind):
                return False
            left[kind] = count
        return self._pattern(pool, zones, tuple(left)) == contents


def _give_back(budget: CapacityBudget, group: MachineGroup) -> None:
    budget.pay(group.pool, -group.count)


def zones_of(groups: Sequence[MachineGroup], by_zone: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Machines of each pool in each zone: those who may be in few zones first, each where there are fewest."""
    counts = {pool: dict(zones) for pool, zones in by_zone.items()}
    by_pool: dict[str, dict[str, int]] = {}
    for group in sorted(groups, key=lambda group: (len(group.zones), group.pool)):
        zones = [zone for zone in group.zones if zone is not None]
        for _ in range(group.count if zones else 0):
            mine = counts.setdefault(group.pool, {})
            zone = min(zones, key=lambda zone: (mine.get(zone, 0), zones.index(zone)))
            mine[zone] = mine.get(zone, 0) + 1
            of_pool = by_pool.setdefault(group.pool, {})
            of_pool[zone] = of_pool.get(zone, 0) + 1
    return by_pool
