"""Serves the demand: by machines that are there, by those on their way, or by new ones. Pure.

First everybody is served as if there were no limits; only where that asks for more than may be bought, one after the
other in the order of the demand, each as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longboat.autoscaler.purchase.balance import ZoneLoads, balanced
from longboat.autoscaler.purchase.offers import Fits
from longboat.autoscaler.purchase.optimize import Optimizer
from longboat.autoscaler.purchase.purchase import CapacityBudget, DemandGroup, MachineGroup, Purchase
from longboat.autoscaler.scale_up.demand import PendingWorkload
from longboat.autoscaler.scale_up.fleets import Fleets
from longboat.autoscaler.scale_up.gang_zones import GangZones
from longboat.autoscaler.scale_up.placement import by_shape, is_plain, settle, where, withdraw
from longboat.autoscaler.scale_up.topology import NewMachines, serve_with_affinity
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.packing import Placement, take

Mark = tuple[tuple[PodShape, int], ...]
"""What a unit needs new machines for: units with the same mark fare alike."""


class ServeResult:
    """What became of the units: who is served by new machines, and who is not served."""

    def __init__(self) -> None:
        self.purchase = Purchase([])
        self.kinds: list[DemandGroup] = []
        self.buyers: list[tuple[PendingWorkload, list[Pod]]] = []  # with the pods that need a new machine
        self.refused: list[PendingWorkload] = []
        self.new_machines: list[NewMachines] = []  # for those who look at their neighbours
        self.budget: CapacityBudget

    @property
    def groups(self) -> list[MachineGroup]:
        return [*self.purchase.groups, *(group for machine in self.new_machines for group in machine.groups)]


class DemandServer:
    def __init__(self, fleets: Fleets, fits: Fits, budget: CapacityBudget) -> None:
        self.fleets, self.fits, self.budget = fleets, fits, budget
        self.outcome = ServeResult()

    def serve(self, units: Sequence[PendingWorkload]) -> ServeResult:
        """Serve all, in order. The fleets keep the pods that found a place there."""
        outcome = self._all_at_once(units)
        if not outcome.purchase.is_complete:
            for unit in units:
                withdraw(unit.pods, self.fleets.all)
            outcome = self._one_by_one(units)
        self._choose_places(outcome)
        return outcome

    def _choose_places(self, outcome: ServeResult) -> None:
        """What is bought is known; of machines that cost the same, gangs get those of one zone, others are balanced."""
        homes = {id(unit): home for unit, _ in outcome.buyers if (home := self._home(unit)) is not None}
        together = GangZones(outcome.buyers, self.fits, outcome.budget, homes).buy(outcome.purchase)
        if together is not None:
            outcome.kinds, outcome.purchase = together
        left = outcome.budget.copy()
        left.pay_all(outcome.purchase.groups)
        loads = ZoneLoads(left.offers)
        outcome.purchase.groups = balanced(outcome.purchase.groups, outcome.kinds, left, loads)

    def _home(self, unit: PendingWorkload) -> str | None:
        """The zone in which most pods of a gang run or have found a place."""
        zones = list(unit.zones)
        for pod in unit.pods if len(unit.pods) > 1 or unit.held else ():
            state = where(pod, self.fleets.all)
            if state is not None and state.shape.zone is not None:
                zones.append(state.shape.zone)
        return max(sorted(set(zones)), key=zones.count, default=None)

    def _all_at_once(self, units: Sequence[PendingWorkload]) -> ServeResult:
        self.outcome = outcome = ServeResult()
        outcome.budget = self.budget.copy()
        for together in self._served_together(units):
            if not self._is_plain(together[0]):
                self._serve_with_affinity(together, outcome.budget)
                continue
            outcome.buyers += self._wanting(together)
        self._buy(outcome.buyers, outcome.budget)
        return outcome

    def _one_by_one(self, units: Sequence[PendingWorkload]) -> ServeResult:
        self.outcome = outcome = ServeResult()
        outcome.budget = self.budget.copy()
        hopeless: set[Mark] = set()
        for together in self._served_together(units):
            if not self._is_plain(together[0]):
                spent = outcome.budget.copy()
                spent.pay_all(outcome.purchase.groups)
                before = len(outcome.new_machines)
                self._serve_with_affinity(together, spent)
                for new in outcome.new_machines[before:]:
                    outcome.budget.pay_all(new.groups)
                continue
            self._admit(self._wanting(together), hopeless)
        return outcome

    def _admit(self, wanting: list[tuple[PendingWorkload, list[Pod]]], hopeless: set[Mark]) -> None:
        """Buy for as many as possible: identical single pods together, a gang as a whole."""
        outcome = self.outcome
        for batch in _alike(wanting):
            mark = tuple((shape, len(pods)) for shape, pods in by_shape(batch[0][1]))
            count = 0 if mark in hopeless else self._most(batch)
            if count < len(batch):
                hopeless.add(mark)
            for unit, _ in batch[count:]:
                self._refuse(unit)
            if count:
                outcome.buyers += batch[:count]
                self._buy(outcome.buyers, outcome.budget)

    def _most(self, batch: list[tuple[PendingWorkload, list[Pod]]]) -> int:
        """How many of the batch can be bought for besides those who are."""
        if self._try([*self.outcome.buyers, *batch]):
            return len(batch)
        low, high = 0, len(batch) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._try([*self.outcome.buyers, *batch[:middle]]):
                low = middle
            else:
                high = middle - 1
        return low

    def _try(self, buyers: Sequence[tuple[PendingWorkload, list[Pod]]]) -> bool:
        return Optimizer(self._kinds(buyers), self.outcome.budget).buy().is_complete

    def _buy(self, buyers: Sequence[tuple[PendingWorkload, list[Pod]]], budget: CapacityBudget) -> None:
        self.outcome.kinds = self._kinds(buyers)
        self.outcome.purchase = Optimizer(self.outcome.kinds, budget).buy()

    def _kinds(self, buyers: Sequence[tuple[PendingWorkload, list[Pod]]]) -> list[DemandGroup]:
        gangs = {pod.shape for unit, rest in buyers if len(unit.pods) > 1 for pod in rest}
        pods = by_shape(pod for _, rest in buyers for pod in rest)
        return [DemandGroup(alike, self.fits.now(alike[0]), is_gang=shape in gangs) for shape, alike in pods]

    def _refuse(self, unit: PendingWorkload) -> None:
        withdraw(unit.pods, self.fleets.all)
        self.outcome.refused.append(unit)

    def _wanting(self, together: Sequence[PendingWorkload]) -> list[tuple[PendingWorkload, list[Pod]]]:
        """Units that need new machines, with these pods; those that no pool can serve now are refused."""
        wanting = []
        for unit, rest in self._settle(together):
            if rest and not all(self.fits.now(pod) for pod in rest):
                self._refuse(unit)
            elif rest:
                wanting.append((unit, rest))
        return wanting

    def _settle(self, together: Sequence[PendingWorkload]) -> Iterable[tuple[PendingWorkload, list[Pod]]]:
        """Put the units on what is there or coming; with each, the pods that found no place."""
        if len(together) == 1:
            yield together[0], self._settle_one(together[0])
            return
        rest = [unit.pods[0] for unit in together]
        for fleet in self.fleets.all:
            rest = settle(rest, fleet)
        left = {id(pod) for pod in rest}
        for unit in together:
            yield unit, [unit.pods[0]] if id(unit.pods[0]) in left else []

    def _settle_one(self, unit: PendingWorkload) -> list[Pod]:
        mixed = len({pod.shape for pod in unit.pods}) > 1
        if mixed and isinstance(take(unit.pods, self.fleets.ready, explain=False), Placement):
            return []
        rest = list(unit.pods)
        for fleet in self.fleets.all:
            rest = settle(rest, fleet)
        return rest

    def _served_together(self, units: Sequence[PendingWorkload]) -> Iterable[list[PendingWorkload]]:
        """Single pods that follow each other are served together: of one priority, and plain or of one shape."""
        together: list[PendingWorkload] = []
        for unit in units:
            if together and not self._is_served_with(unit, together[-1]):
                yield together
                together = []
            together.append(unit)
        if together:
            yield together

    def _is_served_with(self, unit: PendingWorkload, other: PendingWorkload) -> bool:
        if len(unit.pods) > 1 or len(other.pods) > 1 or unit.priority != other.priority:
            return False
        if unit.pods[0].shape is other.pods[0].shape and self.fleets.ready.topology.is_quiet:
            return True
        if unit.pods[0].shape == other.pods[0].shape:
            return unit.pods[0].labels == other.pods[0].labels or self._is_plain(unit) == self._is_plain(other)
        return self._is_plain(unit) and self._is_plain(other)

    def _is_plain(self, unit: PendingWorkload) -> bool:
        if len(unit.pods) == 1:
            return is_plain(unit.pods[0], self.fleets.ready)
        return all(is_plain(pod, self.fleets.ready) for pod in unit.pods)

    def _serve_with_affinity(self, together: Sequence[PendingWorkload], budget: CapacityBudget) -> None:
        new, refused = serve_with_affinity(together, self.fleets, self.fits, budget, self.outcome.new_machines)
        self.outcome.refused += refused
        if new.groups:
            self.outcome.new_machines.append(new)
            budget.pay_all(new.groups)


def _alike(wanting: Sequence[tuple[PendingWorkload, list[Pod]]]) -> Iterable[list[tuple[PendingWorkload, list[Pod]]]]:
    """Batches of one shape, the hardest to place first. Several units here are single pods."""
    if len(wanting) < 2:
        return [list(wanting)] if wanting else []
    batches: dict[PodShape, list[tuple[PendingWorkload, list[Pod]]]] = {}
    for unit, pods in wanting:
        batches.setdefault(pods[0].shape, []).append((unit, pods))
    return [batches[shape] for shape, _ in by_shape(pods[0] for _, pods in wanting)]
