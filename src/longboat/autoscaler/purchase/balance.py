"""Balance over similar pools: machines that several equal pools could provide are spread over their zones. Pure.

As cluster-autoscaler does with `balance-similar-node-groups`: pools are similar when nothing but their place (zone,
name) tells them apart, so that a machine of one costs and does the same as one of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longboat.autoscaler.model.snapshot import POOL_LABEL
from longboat.autoscaler.purchase.offers import PoolOffer, Zone
from longboat.autoscaler.purchase.purchase import CapacityBudget, DemandGroup, MachineGroup
from longboat.fitting.model.nodes import HOSTNAME, ZONE

OF_THE_PLACE = frozenset(
    (
        POOL_LABEL,
        HOSTNAME,
        ZONE,
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "cloud.google.com/gke-nodepool",
        "eks.amazonaws.com/nodegroup",
        "alpha.eksctl.io/nodegroup-name",
        "kubernetes.azure.com/agentpool",
        "agentpool",
    )
)
"""Labels that say where a machine is or which pool made it, and nothing about what it can do."""

Slot = tuple[str, Zone]
"""A pool and one of its zones."""


class ZoneLoads:
    """Machines of each set of similar pools in each zone, what is bought in this turn included."""

    def __init__(self, offers: Mapping[str, PoolOffer]) -> None:
        self._sets = {name: _similarity_key(offer) for name, offer in offers.items()}
        self.peers: dict[object, list[str]] = {}
        self._zones: dict[tuple[object, str], int] = {}
        self._slots: dict[Slot, int] = {}
        for name, offer in sorted(offers.items()):
            self.peers.setdefault(self._sets[name], []).append(name)
            if not offer.by_zone:
                self.add((name, None), offer.size)
            for zone, count in offer.by_zone.items():
                self.add((name, zone), count)

    def set_of(self, pool: str) -> object:
        """Equal for similar pools."""
        return self._sets[pool]

    def peers_of(self, pool: str) -> list[str]:
        return self.peers[self._sets[pool]]

    def add(self, slot: Slot, count: int) -> None:
        domain = self._domain(slot)
        self._zones[domain] = self._zones.get(domain, 0) + count
        self._slots[slot] = self._slots.get(slot, 0) + count

    def rank(self, slot: Slot) -> tuple[int, int]:
        """Sorts the emptiest first: by zone, then by pool."""
        return self._zones.get(self._domain(slot), 0), self._slots.get(slot, 0)

    def _domain(self, slot: Slot) -> tuple[object, str]:
        pool, zone = slot
        # Where a pool without zones puts its machines is not known: it counts as a place of its own.
        return self._sets[pool], f"zone {zone}" if zone is not None else f"pool {pool}"


def _similarity_key(offer: PoolOffer) -> object:
    pool = offer.pool
    if pool.zero_or_max:
        return pool.name
    labels = tuple(sorted((key, value) for key, value in pool.machine.labels.items() if key not in OF_THE_PLACE))
    costs = (pool.price, pool.priority, pool.spot, pool.boot_s, offer.delay is None)
    return (costs, pool.gpu_resource, pool.machine.allocatable, pool.machine.taints, labels, offer.daemons)


def balanced(
    groups: Sequence[MachineGroup], kinds: Sequence[DemandGroup], budget: CapacityBudget, loads: ZoneLoads
) -> list[MachineGroup]:
    """The same machines, those that similar pools could provide as well where there are fewest of them.

    `budget` is what is left after the purchase. Machines with pods of a gang stay in the pool that was chosen for it.
    """
    room = dict(budget.room)
    choices = [(group, _slots(group, kinds, budget, loads)) for group in groups]
    spread: list[MachineGroup] = []
    for group, slots in sorted(choices, key=lambda pair: (len(pair[1]), pair[0].pool)):
        if len(loads.peers_of(group.pool)) == 1:
            spread.append(group)
            continue
        counts: dict[Slot, int] = {}
        room[group.pool] += group.count
        for _ in range(group.count):
            able = [slot for slot in slots if room[slot[0]] > 0]
            slot = min(able, key=lambda slot: (*loads.rank(slot), slot[0]))
            room[slot[0]] -= 1
            loads.add(slot, 1)
            counts[slot] = counts.get(slot, 0) + 1
        spread += [MachineGroup(pool, (zone,), group.contents, count) for (pool, zone), count in sorted(counts.items())]
    return spread


def _slots(group: MachineGroup, kinds: Sequence[DemandGroup], budget: CapacityBudget, loads: ZoneLoads) -> list[Slot]:
    inside = [kinds[number] for number, _ in group.contents]
    if any(kind.is_gang for kind in inside):
        return [(group.pool, zone) for zone in group.zones]
    return [
        (pool, zone)
        for pool in loads.peers_of(group.pool)
        for zone in (group.zones if pool == group.pool else budget.offers[pool].zones)
        if all(zone in kind.zones.get(pool, ()) for kind in inside)
    ]
