"""Headroom: machines that no demand asks for (minimum, spare, over-provision, pools of all or nothing). Pure.

Each only in the pools it concerns and only within the limits; a cordon of ours is lifted before anything is bought.
"""

from __future__ import annotations

from longboat.autoscaler.model.machines import Machine
from longboat.autoscaler.model.plan import PendingItem, ScalingAction
from longboat.autoscaler.model.snapshot import AutoscalerSettings
from longboat.autoscaler.purchase.offers import Fits, PoolOffer
from longboat.autoscaler.purchase.purchase import CapacityBudget, MachineGroup
from longboat.autoscaler.scale_up.fleets import Fleets
from longboat.autoscaler.scale_up.upcoming_demand import has_work


class ScaleUp:
    """What growing decided: what is bought, which of our cordons are lifted, which nodes are needed, who waits."""

    def __init__(self) -> None:
        self.actions: list[ScalingAction] = []
        self.uncordons: dict[str, str] = {}
        self.needed: dict[str, str] = {}  # node -> for whom
        self.waiting: list[PendingItem] = []
        self.bought: dict[str, int] = {}  # pool -> machines, those whose order is put off too
        self.budget: CapacityBudget  # what may still be bought
        self.fits: Fits
        self.for_min: dict[str, int] = {}  # pool below its min -> machines that it gets, whoever waits
        self.soon: dict[str, str] = {}  # pool -> why its idle machines would soon be bought again
        self.kept: dict[str, tuple[str, float]] = {}  # idle node -> who may grow onto it, for how long it waits


class ExtraMachines:
    """Machines of one pool, with the reasons they are bought for."""

    def __init__(self) -> None:
        self.count = 0
        self.on_top = 0  # of them, those that no demand asks for
        self.reasons: list[str] = []
        self.runs: list[str] = []


class Headroom:
    def __init__(
        self,
        pools: dict[str, ExtraMachines],
        fleets: Fleets,
        budget: CapacityBudget,
        settings: AutoscalerSettings,
        growth: ScaleUp,
    ) -> None:
        self.pools, self.fleets, self.budget, self.settings, self.growth = pools, fleets, budget, settings, growth

    def groups(self) -> list[MachineGroup]:
        machine_groups: list[MachineGroup] = []
        mine: dict[str, list[Machine]] = {}
        for machine in self.fleets.machines.values():
            if machine.pool is not None and machine.condition in ("ready", "booting"):
                mine.setdefault(machine.pool.name, []).append(machine)
        for name, offer in sorted(self.budget.offers.items()):
            machines = mine.get(name, [])
            if offer.pool.zero_or_max:
                machine_groups += self._all_or_none(offer, machines)
            else:
                machine_groups += [
                    *self._over_provision(offer),
                    *self._min(offer, machines),
                    *self._spare(offer, machines),
                ]
        return machine_groups

    def _all_or_none(self, offer: PoolOffer, machines: list[Machine]) -> list[MachineGroup]:
        extra = self.pools[offer.name]
        if not extra.count and len(machines) >= offer.pool.min:
            return []
        return self._add(offer, offer.room - extra.count, "the pool has all of its machines or none")

    def _over_provision(self, offer: PoolOffer) -> list[MachineGroup]:
        """Only where demand makes the pool grow anyway."""
        return self._add(offer, self.settings.over_provision, "over_provision") if self.pools[offer.name].count else []

    def _min(self, offer: PoolOffer, machines: list[Machine]) -> list[MachineGroup]:
        reason = f"the pool's min is {offer.pool.min}"
        lifted = self.growth.uncordons
        # Those with our cordon are on their way out unless it is lifted.
        staying = sum(1 for machine in machines if machine.cordon != "ours" or machine.name in lifted)
        short = offer.pool.min - self.pools[offer.name].count - staying
        extra = self.pools[offer.name]
        for_demand = extra.count - extra.on_top
        groups = self._add(offer, short - self._uncordon(machines, short, reason), reason)
        self.growth.for_min.update({group.pool: for_demand + group.count for group in groups})
        return groups

    def _spare(self, offer: PoolOffer, machines: list[Machine]) -> list[MachineGroup]:
        """Empty machines of a pool in use; those bought for min or over_provision are among them."""
        extra = self.pools[offer.name]
        if not extra.count and not machines:
            return []
        reason = f"{self.settings.spare} spare"
        usable = [machine for machine in machines if machine.is_usable or machine.name in self.growth.uncordons]
        short = self.settings.spare - extra.on_top - sum(1 for machine in usable if self._is_empty(machine.name))
        return self._add(offer, short - self._uncordon(machines, short, reason), reason)

    def _uncordon(self, machines: list[Machine], wanted: int, reason: str) -> int:
        """Lift our cordon on idle machines rather than buy new ones; returns how many."""
        able = [
            machine.name
            for machine in machines
            if machine.cordon == "ours" and machine.name not in self.growth.uncordons and self._is_empty(machine.name)
        ]
        lifted = able[: max(wanted, 0)]
        self.growth.uncordons.update(dict.fromkeys(lifted, reason))
        return len(lifted)

    def _add(self, offer: PoolOffer, wanted: int, reason: str) -> list[MachineGroup]:
        count = self.budget.affords(offer.name, wanted) if wanted > 0 else 0
        if count <= 0:
            return []
        self.budget.pay(offer.name, count)
        extra = self.pools[offer.name]
        extra.count += count
        extra.on_top += count
        extra.reasons.append(f"{count} more: {reason}")
        return [MachineGroup(offer.name, offer.zones, (), count)]

    def _is_empty(self, name: str) -> bool:
        """Whether no pod but those of the node itself is there or was put there."""
        state = next((fleet.states[name] for fleet in self.fleets.all if name in fleet.states), None)
        return state is not None and not has_work(state)
