"""Values of a purchase: kinds of pods, machines filled with them, and what it all costs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from longboat.autoscaler.purchase.offers import PoolOffer, Zone, uses_of
from longboat.fitting.model.pods import Pod, PodShape

Contents = tuple[tuple[int, int], ...]
"""(number of a kind, pods of it) on one machine, sorted."""


class DemandGroup:
    """Alike pods, and where they may be bought a machine."""

    __slots__ = ("pods", "zones", "shape", "is_gang")

    def __init__(self, pods: Sequence[Pod], zones: Mapping[str, tuple[Zone, ...]], *, is_gang: bool = False) -> None:
        self.pods, self.zones, self.is_gang = pods, zones, is_gang
        self.shape: PodShape = pods[0].shape


class MachineGroup:
    """`count` machines of a pool, each with the same contents, in any of these zones."""

    __slots__ = ("pool", "zones", "contents", "count")

    def __init__(self, pool: str, zones: tuple[Zone, ...], contents: Contents, count: int) -> None:
        self.pool, self.zones, self.contents, self.count = pool, zones, contents, count

    def times(self, count: int) -> MachineGroup:
        return MachineGroup(self.pool, self.zones, self.contents, count)


class Purchase:
    """Machines to be bought, and the pods that none of them takes."""

    def __init__(self, left: Sequence[int]) -> None:
        self.groups: list[MachineGroup] = []
        self.left = list(left)  # by kind

    @property
    def is_complete(self) -> bool:
        return not any(self.left)

    def counts(self) -> dict[str, int]:
        """Machines of each pool that have contents."""
        totals: dict[str, int] = {}
        for group in self.groups:
            totals[group.pool] = totals.get(group.pool, 0) + group.count
        return totals


class CapacityBudget:
    """What may still be bought: room of each pool, and the limits of all. Copied for every attempt."""

    def __init__(self, offers: Mapping[str, PoolOffer], limits: Sequence[int | None]) -> None:
        self.offers = offers
        self.room = {name: offer.room if offer.zones else 0 for name, offer in offers.items()}
        self.limits = list(limits)
        self.opened: set[str] = set()  # pools of all or nothing that are paid for

    def copy(self) -> CapacityBudget:
        budget = CapacityBudget.__new__(CapacityBudget)
        budget.offers, budget.room, budget.limits = self.offers, dict(self.room), list(self.limits)
        budget.opened = set(self.opened)
        return budget

    def affords(self, pool: str, wanted: int) -> int:
        """How many of the wanted machines may be bought."""
        offer = self.offers[pool]
        count = min(wanted, self.room[pool])
        if count <= 0 or pool in self.opened:
            return max(count, 0)
        each = uses_of(offer.pool)
        able = [most // use for use, most in zip(each, self.limits) if most is not None and use]
        if offer.pool.zero_or_max:
            return count if all(number >= self.room[pool] for number in able) else 0
        return min([count, *able])

    def pay(self, pool: str, count: int) -> None:
        offer = self.offers[pool]
        paid = count
        if offer.pool.zero_or_max:
            paid = 0 if pool in self.opened else self.room[pool]
            self.opened.add(pool)
        self.room[pool] -= count
        for number, use in enumerate(uses_of(offer.pool)):
            most = self.limits[number]
            if most is not None:
                self.limits[number] = most - use * paid

    def pay_all(self, groups: Iterable[MachineGroup]) -> None:
        for group in groups:
            self.pay(group.pool, group.count)

    def affords_all(self, counts: Mapping[str, int]) -> bool:
        """Whether so many machines of each pool may be bought together."""
        rest = self.copy()
        for pool, count in counts.items():
            if rest.affords(pool, count) < count:
                return False
            rest.pay(pool, count)
        return True

    def price(self, pool: str) -> float:
        """Price of the next machine of this pool."""
        offer = self.offers[pool]
        if not offer.pool.zero_or_max:
            return price_key(offer)
        return 0.0 if pool in self.opened else price_key(offer) * self.room[pool]


def price_key(offer: PoolOffer) -> float:
    """The price of one machine; where none is stated, bigger counts as dearer, but as next to nothing."""
    cpus, memory, gpus = uses_of(offer.pool)
    return offer.pool.price + 1e-9 * (gpus * 1000 + cpus / 1000 + memory / 2**33)


def cost_of(purchase: Purchase, offers: Mapping[str, PoolOffer]) -> float:
    total = 0.0
    for pool, count in purchase.counts().items():
        offer = offers[pool]
        total += price_key(offer) * (max(offer.room, count) if offer.pool.zero_or_max else count)
    return total
