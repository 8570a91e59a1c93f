"""Room for elastic runs above what they have: machines that are bought, or kept, for their next checkpoints. Pure.

Only in pools whose `growth` says so, after everybody who waits, and in no pool that anybody who waits could use: the
gate gives a run nothing that others wait for. A machine is bought in the first `growth` of an attempt only: a run that
did not take it by then (it writes no checkpoints, say) does not have it bought again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence, Set

from longboat.autoscaler.model.snapshot import ElasticGang
from longboat.autoscaler.purchase.offers import Fits, Zone
from longboat.autoscaler.purchase.optimize import Optimizer
from longboat.autoscaler.purchase.purchase import CapacityBudget, DemandGroup, MachineGroup
from longboat.autoscaler.scale_up.demand import Demand
from longboat.autoscaler.scale_up.fleets import Fleets
from longboat.autoscaler.scale_up.headroom import ExtraMachines, ScaleUp
from longboat.autoscaler.scale_up.placement import by_shape, settle, withdraw
from longboat.autoscaler.scale_up.upcoming_demand import has_work
from longboat.core.words import listing
from longboat.fitting.model.pods import Pod

MOST_GROWING = 30
"""Runs looked at in one turn: each is one more kind of pods for the purchase, whose time grows with them."""
MOST_NAMED = 5  # one line of reasons


class ElasticGrowth:
    def __init__(self, demand: Demand, fleets: Fleets, fits: Fits, budget: CapacityBudget, now: float) -> None:
        self.demand, self.fleets, self.fits, self.budget, self.now = demand, fleets, fits, budget, now
        pools = [offer.pool for offer in budget.offers.values()]
        self._waits = {pool.name: pool.growth_s for pool in pools if pool.growth_s > 0 and not pool.zero_or_max}

    def groups(self, pools: dict[str, ExtraMachines], growth: ScaleUp) -> list[MachineGroup]:
        """What is bought, which is noted in `pools`; `growth` learns which idle machines are kept, and for whom."""
        gangs = self.demand.elastic[:MOST_GROWING] if self._waits else ()
        states = self.fleets.ready.states.values() if gangs else ()
        idle = {state.name for state in states if not has_work(state)}
        rest = [(gang, self._placed(gang, idle, growth)) for gang in gangs]
        wanted = [(gang, kind) for gang, pods in rest if pods for kind in self._kinds(gang, pods)]
        withdraw([pod for gang, _ in rest for pod in gang.pods], self.fleets.all)  # whoever comes first has the place
        if not wanted:
            return []
        groups = Optimizer([kind for _, kind in wanted], self.budget).buy().groups
        for name in sorted({group.pool for group in groups}):
            mine = [group for group in groups if group.pool == name]
            count = sum(group.count for group in mine)
            numbers = sorted({kind for group in mine for kind, _ in group.contents})
            runs = list(dict.fromkeys(wanted[number][0].text for number in numbers))
            self.budget.pay(name, count)
            pools[name].count += count
            pools[name].reasons.append(f"{count} for {listing(runs, MOST_NAMED)}: more at the next checkpoint")
        return groups

    def _placed(self, gang: ElasticGang, idle: Set[str], growth: ScaleUp) -> list[Pod]:
        """Put what it could have on what is there and nobody asked for; gives what found no place."""
        left = settle(list(gang.pods), self.fleets.ready)
        taken = {state.name for pod in gang.pods if (state := self.fleets.ready.where(pod)) is not None}
        for name in taken.intersection(idle):
            pool = self.fleets.machines[name].pool if name in self.fleets.machines else None
            if pool is not None and pool.growth_s > 0:
                growth.kept[name] = (gang.text, pool.growth_s)
        return settle(left, self.fleets.coming)

    def _kinds(self, gang: ElasticGang, pods: Sequence[Pod]) -> list[DemandGroup]:
        able = {name for name, wait_s in self._waits.items() if self.now - gang.since < wait_s} - self._asked_for
        kinds = []
        for _, alike in by_shape(pods):
            offered = {name: zones for name, zones in self.fits.now(alike[0]).items() if name in able}
            if offered:
                kinds.append(DemandGroup(alike, {name: _near(gang, zones) for name, zones in offered.items()}))
        return kinds

    @functools.cached_property
    def _asked_for(self) -> set[str]:
        """Pools that somebody who waits could use."""
        return {pool for unit in self.demand.units for pod in unit.pods for pool in self.fits.allowed(pod)}


def _near(gang: ElasticGang, zones: tuple[Zone, ...]) -> tuple[Zone, ...]:
    """The zones that it has pods in, where there are such."""
    return tuple(zone for zone in zones if zone in gang.zones) or zones
