"""Replacement: a node whose pods would all do on one cheaper machine is exchanged for it. Pure.

Launch first, then drain: the cheaper machine is ordered, or one that is there and empty is taken; only once it is ready
is the dear node cordoned, drained and deleted like any other. Which machine is meant for which node is not remembered
but found anew in every loop, in the same order; what is remembered is since when a node could be replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from longboat.autoscaler.model.machines import Machine
from longboat.autoscaler.model.plan import NodeState, ScalingAction
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.purchase.offers import PoolOffer, Zone
from longboat.autoscaler.purchase.purchase import price_key
from longboat.autoscaler.scale_down.consolidation import UNDRAINABLE, why_wait
from longboat.autoscaler.scale_down.node_usage import NodeTenants
from longboat.autoscaler.scale_down.state import ScaleDownState
from longboat.autoscaler.scale_up.placement import is_plain
from longboat.autoscaler.scale_up.upcoming_demand import has_work
from longboat.core.words import counted
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod
from longboat.fitting.packing import take_each

MOST_LOOKED_AT = 64
"""Nodes for which a cheaper machine is looked for in one loop, the dearest first."""

REPLACEABLE: NodeState = "replaceable"


class Replacements:
    def __init__(self, used: Sequence[NodeTenants], state: ScaleDownState) -> None:
        self.state, self.settings = state, state.settings
        is_on = self.settings.replace and self.settings.consolidate
        able = [tenants for tenants in used if self._may_move(tenants)] if is_on else []
        able.sort(key=lambda tenants: (-_price(tenants), tenants.name))
        self.candidates = able[:MOST_LOOKED_AT]
        self._growing = set(state.growth.bought)  # for those who wait: they come first
        self.claims: dict[str, Machine] = {}  # node -> the machine that is meant for its pods

    def _may_move(self, tenants: NodeTenants) -> bool:
        """Whether there is a cheaper pool at all, and every pod may be moved and looks at nothing but its own node."""
        pool = tenants.machine.pool
        if pool is None or pool.zero_or_max or tenants.name in self.state.growth.needed or tenants.is_leaving:
            return False
        if not any(self._is_cheaper(offer.pool, pool) for offer in self.state.growth.budget.offers.values()):
            return False
        if tenants.kept() or tenants.unmovable() or self.state.arriving.get(tenants.name):
            return False
        return all(is_plain(pod.pod, self.state.fleets.ready) for pod in tenants.work)

    def _is_cheaper(self, pool: Pool, than: Pool) -> bool:
        """By enough to be worth it. A pool of a lower priority is never taken instead, whatever the price."""
        most = than.price * (1 - self.settings.replace_saving)
        return pool.price < than.price and pool.price <= most and pool.priority >= than.priority

    def claim(self) -> None:
        """Find machines that were ordered for an exchange, or are empty and cheaper, before they count as idle.

        As many at once as may be drained at once: what is on its way then bounds what is ordered.
        """
        empty = [machine for machine in self.state.machines if self._is_empty(machine)] if self.candidates else []
        empty.sort(key=lambda machine: (machine.pool.price if machine.pool else 0.0, machine.condition, machine.name))
        for tenants in self.candidates if empty else ():
            if len(self.claims) >= self.settings.max_drains:
                break
            target = self.empty_machine(tenants, empty)
            if target is not None:
                empty.remove(target)
                self.claims[tenants.name] = target
                self.state.reserved[target.name] = whose = f"the pods of {tenants.name} are moved here"
                if target.condition != "ready" and target.node is not None:
                    self.state.note(target, "booting", f"{target.reason}; {whose}")

    def ready_machine(self, tenants: NodeTenants) -> str | None:
        """For a node that is cordoned: the empty machine to which its pods go, which is kept for them."""
        is_on = self.settings.replace and self.settings.consolidate
        ready = (machine for machine in self.state.machines if machine.condition == "ready")
        empty = [machine for machine in ready if self._is_empty(machine)] if is_on else []
        target = self.empty_machine(tenants, empty)
        if target is None:
            return None
        self.state.reserved[target.name] = f"the pods of {tenants.name} are moved here"
        return target.name

    def _is_empty(self, machine: Machine) -> bool:
        if machine.pool is None or not machine.is_usable or machine.name in self.state.growth.needed:
            return False
        if machine.pool.name in self.state.growth.soon:
            return False  # somebody who waits comes first
        return machine.name not in self.state.reserved and not has_work(self._fleet(machine).states[machine.name])

    def _fleet(self, machine: Machine) -> Fleet:
        return self.state.fleets.ready if machine.condition == "ready" else self.state.fleets.coming

    def empty_machine(self, tenants: NodeTenants, among: Sequence[Machine]) -> Machine | None:
        """The first of these that is cheaper and takes all pods of the node."""
        pool = tenants.machine.pool
        pods = [pod.pod for pod in tenants.work if not pod.pod.is_terminating]
        for machine in among:
            if pool is None or machine.pool is None or not self._is_cheaper(machine.pool, pool):
                continue
            if all(machine.pool.name in self.state.growth.fits.allowed(pod) for pod in pods):
                state = self._fleet(machine).states[machine.name]
                scratch = Fleet([state.shape])
                for pod in state.pods.values():
                    scratch.add(pod, scratch.states[machine.name])
                if not take_each(pods, scratch):
                    return machine
        return None

    def replace(self) -> None:
        """After consolidation: those whose pods found no room on machines that are there."""
        ordered = 0
        for tenants in self.candidates:
            if self.state.notes[tenants.name].state not in ("busy", UNDRAINABLE):
                continue
            if self.state.allowances.why_not(tenants.work):
                continue
            target = self.claims.get(tenants.name)
            if target is not None:
                self._move(tenants, target)
            else:
                ordered += self._order(tenants, len(self.claims) + ordered)

    def _move(self, tenants: NodeTenants, target: Machine) -> None:
        pool, cheaper = tenants.machine.pool, target.pool
        assert pool is not None and cheaper is not None
        reason = f"{counted(len(tenants.work), 'pod')}; {_saving(cheaper, pool)} on {target.name}"
        why = why_wait(tenants, pool, self.state)
        if target.condition != "ready":
            why = why or f"moved when it is ready ({target.reason})"
        if not why and self.state.act("cordon", tenants.machine, reason):
            self.state.drains -= 1
            self.state.staying[pool.name] -= 1
            self.state.allowances.take(tenants.work)
            self.state.relocate([(pod.pod, target.name) for pod in tenants.work])
            reason += ": cordoned"
        else:
            reason += f"; {why or 'goes when max_shrink_per_loop allows'}"
        self._note(tenants, reason)

    def _order(self, tenants: NodeTenants, under_way: int) -> int:
        """Order a cheaper machine if all speaks for it; how many were ordered."""
        pool, growth = tenants.machine.pool, self.state.growth
        chosen = self._cheapest(tenants)
        if chosen is None or pool is None:
            return 0
        offer, zone = chosen
        text = f"{counted(len(tenants.work), 'pod')}; {_saving(offer.pool, pool)} on a new machine of {offer.name}"
        why = why_wait(tenants, pool, self.state)
        if under_way >= self.settings.max_drains:
            why = why or "other nodes are replaced first (max_drains)"
        if offer.name in self._growing:
            why = why or f"pool {offer.name} grows in this very loop"
        why = why or growth.soon.get(offer.name, "")
        self._note(tenants, f"{text}; {why or 'ordered'}")
        if why:
            return 0
        growth.budget.pay(offer.name, 1)
        growth.bought[offer.name] = growth.bought.get(offer.name, 0) + 1
        reason = f"1 to replace {tenants.name}: {_saving(offer.pool, pool)}; its pods are moved when it is ready"
        zones = {zone: 1} if zone is not None else {}
        self.state.actions.append(
            ScalingAction(kind="grow", pool=offer.name, count=1, reason=reason, zones=zones, runs=())
        )
        return 1

    def _cheapest(self, tenants: NodeTenants) -> tuple[PoolOffer, Zone] | None:
        pool, budget = tenants.machine.pool, self.state.growth.budget
        pods = [pod.pod for pod in tenants.work]
        for offer in sorted(budget.offers.values(), key=lambda offer: (price_key(offer), offer.name)):
            if pool is None or not self._is_cheaper(offer.pool, pool) or offer.pool.zero_or_max:
                continue
            if offer.delay is None and budget.affords(offer.name, 1):
                zone = self._zone(offer, pods)
                if zone is not None:
                    return offer, zone[0]
        return None

    def _zone(self, offer: PoolOffer, pods: Sequence[Pod]) -> tuple[Zone] | None:
        """Where an empty machine of the pool takes all of them, the zone with the fewest machines first."""
        now = self.state.growth.fits.now
        zones = [zone for zone in offer.zones if all(zone in now(pod).get(offer.name, ()) for pod in pods)]
        for zone in sorted(zones, key=lambda zone: offer.by_zone.get(zone or "", 0)):
            if not take_each(pods, offer.machine(zone, "new")):
                return (zone,)
        return None

    def _note(self, tenants: NodeTenants, text: str) -> None:
        under = tenants.underused_since() or self.state.now
        self.state.note(tenants.machine, REPLACEABLE, f"{tenants.utilization():.0%} used, {text}", under=under)


def _price(tenants: NodeTenants) -> float:
    return tenants.machine.pool.price if tenants.machine.pool is not None else 0.0


def _saving(cheaper: Pool, than: Pool) -> str:
    return f"{cheaper.price:g} instead of {than.price:g} per hour"
