"""A model of Karpenter v1 with one NodePool per pool, at its defaults. Every rule names the file of its source, in the
folder pkg of github.com/kubernetes-sigs/karpenter unless it says otherwise.

Modelled: batching, provisioning, emptiness, multi-node and single-node consolidation by deletion, validation, budgets.
Not modelled: consolidation that replaces a machine by a cheaper one, drift, expiry (expireAfter), CPU and memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from longboat.simulator.entities import SimulatedMachine, gpus_of
from longboat.simulator.policies.estimating import first_fit, pending
from longboat.simulator.policies.policy import Policy
from longboat.simulator.world import World

# operator/options/options.go: --batch-idle-duration, --batch-max-duration
BATCH_IDLE_S, BATCH_MAX_S = 1.0, 10.0
POLL_S = 10.0  # controllers/disruption/controller.go: pollingPeriod
VALIDATE_S = 15.0  # controllers/disruption/consolidation.go: consolidationTTL
BUDGET = 0.1  # apis/v1/nodepool.go: disruption.budgets, nodes: 10%
MOST_CANDIDATES = 100  # controllers/disruption/multinodeconsolidation.go
REGISTRATION_S = 900.0  # controllers/nodeclaim/lifecycle/liveness.go: registrationTimeout
UNAVAILABLE_S = 180.0  # github.com/aws/karpenter-provider-aws: pkg/cache/cache.go: UnavailableOfferingsTTL


class Karpenter(Policy):
    name = "karpenter"
    interval_s = 1.0

    def __init__(self) -> None:
        self._first = self._last = float("-inf")  # of the batch
        self._seen = -1
        self._consolidated = -1  # world.changes at which nothing was found to do
        self._command: tuple[float, tuple[SimulatedMachine, ...], bool] | None = None
        self._poll = float("-inf")
        self._unavailable: dict[str, float] = {}

    def look(self, world: World, now: float) -> float | None:
        wakes = [self._provision(world, now), self._disrupt(world, now)]
        for machine in list(world.booting.values()):
            if now - machine.asked >= REGISTRATION_S:
                world.remove(machine, now)
        wakes += [machine.asked + REGISTRATION_S for machine in world.booting.values()]
        return min((moment for moment in wakes if moment is not None and moment > now), default=None)

    # Growing

    def _provision(self, world: World, now: float) -> float | None:
        """controllers/provisioning/batcher.go: over when nothing new came for a while, or after the longest."""
        if not world.waiting:
            self._first = float("-inf")
            return None
        if world.calls != self._seen:
            self._seen = world.calls
            self._last = now
            if self._first == float("-inf"):
                self._first = now
        over = min(self._last + BATCH_IDLE_S, self._first + BATCH_MAX_S)
        if now < over:
            return over
        self._first = float("-inf")
        return self._solve(world, now)

    def _solve(self, world: World, now: float) -> float | None:
        """controllers/provisioning/scheduling/queue.go: largest first; scheduler.go: claims in flight, then new ones,
        of the NodePool with the greatest weight first.
        """
        sizes = sorted((task.gpus for task in pending(world)), reverse=True)
        left = first_fit(sizes, [machine.gpus for machine in world.booting.values()])
        pools = sorted(world.pools.values(), key=lambda pool: (-pool.priority, pool.name))
        for pool in pools:
            if self._unavailable.get(pool.name, 0.0) > now:
                continue
            places = [gpus_of(pool)] * world.room(pool)
            rest = first_fit(left, places)
            wanted = sum(1 for free in places if free < gpus_of(pool))
            if wanted and not world.order(pool, wanted, now):
                self._unavailable[pool.name] = now + UNAVAILABLE_S
                continue
            left = rest
        blocked = [until for until in self._unavailable.values() if until > now]
        return min(blocked, default=None) if left else None

    # Shrinking

    def _disrupt(self, world: World, now: float) -> float | None:
        if self._command is not None:
            due, machines, is_empty = self._command
            if now < due:
                return due
            self._command = None
            self._execute(world, machines, is_empty, now)
        if now < self._poll:
            return self._poll
        if world.changes == self._consolidated:
            return None  # controllers/disruption/consolidation.go: IsConsolidated, until the cluster changes
        self._poll = now + POLL_S
        simulated_machines = self._candidates(world)
        if not simulated_machines:
            self._consolidated = world.changes
            return None
        self._command = (
            now + VALIDATE_S,
            tuple(simulated_machines),
            not any(machine.tasks for machine in simulated_machines),
        )
        return now + VALIDATE_S

    def _candidates(self, world: World) -> Sequence[SimulatedMachine]:
        """controllers/disruption/controller.go: the methods in their order, of which one may act."""
        ready = [machine for machine in world.machines.values() if machine.is_ready]
        removable = [machine for machine in ready if world.sizes[machine.pool.name] > machine.pool.min]
        empty = [machine for machine in removable if not machine.tasks]
        if empty:  # controllers/disruption/emptiness.go; apis/v1/nodepool.go: consolidateAfter: 0s
            return within_budgets(empty, ready)
        if world.conditions.is_protected:  # controllers/state/statenode.go: karpenter.sh/do-not-disrupt of a pod
            return []
        # utils/disruption/disruption.go: the cost of a disruption grows with the number of pods
        used = sorted(
            (machine for machine in removable if machine.tasks), key=lambda machine: (len(machine.tasks), machine.name)
        )
        first = within_budgets(used, ready)[:MOST_CANDIDATES]
        low, high = 1, len(first)
        best: Sequence[SimulatedMachine] = ()
        while low <= high and len(first) > 1:  # multinodeconsolidation.go: binary search for the longest prefix
            middle = (low + high) // 2
            if middle > 1 and fits_elsewhere(first[:middle], ready):
                best = first[:middle]
                low = middle + 1
            elif middle <= 1:
                low = middle + 1
            else:
                high = middle - 1
        if best:
            return best
        return next(
            ([simulated_machine] for simulated_machine in used if fits_elsewhere([simulated_machine], ready)), []
        )  # singlenodeconsolidation.go

    def _execute(self, world: World, machines: Sequence[SimulatedMachine], is_empty: bool, now: float) -> None:
        """controllers/disruption/validation.go: only if it still holds after the wait."""
        still = [machine for machine in machines if world.machines.get(machine.name) is machine]
        if is_empty:
            still = [simulated_machine for simulated_machine in still if not simulated_machine.tasks]
        elif len(still) < len(machines) or not fits_elsewhere(still, world.machines.values()):
            return
        for machine in still:
            world.cordon(machine, now)
        for machine in still:
            world.evict(machine, now)
            world.remove(machine, now)


def within_budgets(machines: Sequence[SimulatedMachine], ready: Sequence[SimulatedMachine]) -> list[SimulatedMachine]:
    """controllers/disruption/helpers.go: of each NodePool, a share of its initialized nodes; apis/v1/nodepool.go:
    rounded up.
    """
    counts = Counter(machine.pool.name for machine in ready)
    left = {name: math.ceil(BUDGET * count) for name, count in counts.items()}
    simulated_machines = []
    for simulated_machine in machines:
        if left.get(simulated_machine.pool.name, 0) > 0:
            left[simulated_machine.pool.name] -= 1
            simulated_machines.append(simulated_machine)
    return simulated_machines


def fits_elsewhere(machines: Sequence[SimulatedMachine], others: Iterable[SimulatedMachine]) -> bool:
    """Whether all pods of these machines fit on the others that are ready."""
    names = {machine.name for machine in machines}
    places = [
        simulated_machine.free
        for simulated_machine in others
        if simulated_machine.is_ready and simulated_machine.free and simulated_machine.name not in names
    ]
    sizes = sorted((task.gpus for machine in machines for task in machine.tasks), reverse=True)
    return not first_fit(sizes, places)
