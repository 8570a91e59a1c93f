"""Who is served how: by machines that are there, by those on their way, or by new ones. Pure.

First everybody is served as if there were no limits; only where that asks for more than may be bought, one after the
other in the order of the demand, each as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longboat.autoscaler.purchase.offers import Fits
from longboat.autoscaler.purchase.optimize import Optimizer
from longboat.autoscaler.purchase.purchase import CapacityBudget, DemandGroup, MachineGroup, Purchase
from longboat.autoscaler.scale_up.demand import PendingWorkload
from longboat.autoscaler.scale_up.fleets import Fleets
from longboat.autoscaler.scale_up.placement import by_shape, is_plain, settle, withdraw
from longboat.autoscaler.scale_up.topology import NewMachines, serve_neighbourly
from longboat.fitting.model.pods import Pod, PodShape
from longboat.fitting.packing import Placement, take

Mark = tuple[tuple[PodShape, int], ...]
"""What a unit needs new machines for: units with the same mark fare alike."""


class ServeResult:
    """What became of the units: who is served by new machines, and who is not served."""

    def __init__(self) -> None:
        self.basket = Purchase([])
        self.kinds: list[DemandGroup] = []
        self.buyers: list[tuple[PendingWorkload, list[Pod]]] = []  # with the pods that need a new machine
        self.refused: list[PendingWorkload] = []
        self.purchases: list[NewMachines] = []  # for those who look at their neighbours
        self.purse: CapacityBudget

    @property
    def lots(self) -> list[MachineGroup]:
        return [*self.basket.lots, *(lot for one in self.purchases for lot in one.lots)]


class DemandServer:
    def __init__(self, stage: Fleets, fits: Fits, purse: CapacityBudget) -> None:
        self.stage, self.fits, self.purse = stage, fits, purse
        self.outcome = ServeResult()

    def serve(self, units: Sequence[PendingWorkload]) -> ServeResult:
        """Serve all, in order. The stage's fleets keep the pods that found a place there."""
        outcome = self._all_at_once(units)
        if outcome.basket.is_complete:
            return outcome
        for unit in units:
            withdraw(unit.pods, self.stage.fleets)
        return self._one_by_one(units)

    def _all_at_once(self, units: Sequence[PendingWorkload]) -> ServeResult:
        self.outcome = outcome = ServeResult()
        outcome.purse = self.purse.copy()
        for group in self._groups(units):
            if not self._is_plain(group[0]):
                self._serve_neighbourly(group, outcome.purse)
                continue
            for unit, rest in self._settle(group):
                if rest and not all(self.fits.now(pod) for pod in rest):
                    self._refuse(unit)
                elif rest:
                    outcome.buyers.append((unit, rest))
        self._buy(outcome.buyers, outcome.purse)
        return outcome

    def _one_by_one(self, units: Sequence[PendingWorkload]) -> ServeResult:
        self.outcome = outcome = ServeResult()
        outcome.purse = self.purse.copy()
        hopeless: set[Mark] = set()
        for group in self._groups(units):
            if not self._is_plain(group[0]):
                spent = outcome.purse.copy()
                for lot in outcome.basket.lots:
                    spent.pay(lot.pool, lot.count)
                before = len(outcome.purchases)
                self._serve_neighbourly(group, spent)
                for purchase in outcome.purchases[before:]:
                    for lot in purchase.lots:
                        outcome.purse.pay(lot.pool, lot.count)
                continue
            wanting = []
            for unit, rest in self._settle(group):
                if rest and not all(self.fits.now(pod) for pod in rest):
                    self._refuse(unit)
                elif rest:
                    wanting.append((unit, rest))
            self._admit(wanting, hopeless)
        return outcome

    def _admit(self, wanting: list[tuple[PendingWorkload, list[Pod]]], hopeless: set[Mark]) -> None:
        """As many as can be bought for: alike single pods are tried together, a gang as a whole."""
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
                self._buy(outcome.buyers, outcome.purse)

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
        return Optimizer(self._kinds(buyers), self.outcome.purse).buy().is_complete

    def _buy(self, buyers: Sequence[tuple[PendingWorkload, list[Pod]]], purse: CapacityBudget) -> None:
        self.outcome.kinds = self._kinds(buyers)
        self.outcome.basket = Optimizer(self.outcome.kinds, purse).buy()

    def _kinds(self, buyers: Sequence[tuple[PendingWorkload, list[Pod]]]) -> list[DemandGroup]:
        pods = by_shape(pod for _, rest in buyers for pod in rest)
        return [DemandGroup(alike, self.fits.now(alike[0])) for _, alike in pods]

    def _refuse(self, unit: PendingWorkload) -> None:
        withdraw(unit.pods, self.stage.fleets)
        self.outcome.refused.append(unit)

    def _settle(self, group: Sequence[PendingWorkload]) -> Iterable[tuple[PendingWorkload, list[Pod]]]:
        """Put the units on what is there or coming; with each, the pods that found no place."""
        if len(group) == 1:
            yield group[0], self._settle_one(group[0])
            return
        rest = [unit.pods[0] for unit in group]
        for fleet in self.stage.fleets:
            rest = settle(rest, fleet)
        left = {id(pod) for pod in rest}
        for unit in group:
            yield unit, [unit.pods[0]] if id(unit.pods[0]) in left else []

    def _settle_one(self, unit: PendingWorkload) -> list[Pod]:
        mixed = len({pod.shape for pod in unit.pods}) > 1
        if mixed and isinstance(take(unit.pods, self.stage.ready, explain=False), Placement):
            return []
        rest = list(unit.pods)
        for fleet in self.stage.fleets:
            rest = settle(rest, fleet)
        return rest

    def _groups(self, units: Sequence[PendingWorkload]) -> Iterable[list[PendingWorkload]]:
        """Single pods that follow each other are served together: of one priority, and plain or of one shape."""
        group: list[PendingWorkload] = []
        for unit in units:
            if group and not self._goes_with(unit, group[-1]):
                yield group
                group = []
            group.append(unit)
        if group:
            yield group

    def _goes_with(self, unit: PendingWorkload, other: PendingWorkload) -> bool:
        if len(unit.pods) > 1 or len(other.pods) > 1 or unit.priority != other.priority:
            return False
        if unit.pods[0].shape is other.pods[0].shape and self.stage.ready.topology.is_quiet:
            return True
        if unit.pods[0].shape == other.pods[0].shape:
            return unit.pods[0].labels == other.pods[0].labels or self._is_plain(unit) == self._is_plain(other)
        return self._is_plain(unit) and self._is_plain(other)

    def _is_plain(self, unit: PendingWorkload) -> bool:
        if len(unit.pods) == 1:
            return is_plain(unit.pods[0], self.stage.ready)
        return all(is_plain(pod, self.stage.ready) for pod in unit.pods)

    def _serve_neighbourly(self, group: Sequence[PendingWorkload], purse: CapacityBudget) -> None:
        purchase, refused = serve_neighbourly(group, self.stage, self.fits, purse, self.outcome.purchases)
        self.outcome.refused += refused
        if purchase.lots:
            self.outcome.purchases.append(purchase)
            for lot in purchase.lots:
                purse.pay(lot.pool, lot.count)


def _alike(wanting: Sequence[tuple[PendingWorkload, list[Pod]]]) -> Iterable[list[tuple[PendingWorkload, list[Pod]]]]:
    """Batches of one shape, the hardest to place first. Several units here are single pods."""
    if len(wanting) < 2:
        return [list(wanting)] if wanting else []
    batches: dict[PodShape, list[tuple[PendingWorkload, list[Pod]]]] = {}
    for unit, pods in wanting:
        batches.setdefault(pods[0].shape, []).append((unit, pods))
    return [batches[shape] for shape, _ in by_shape(pods[0] for _, pods in wanting)]
