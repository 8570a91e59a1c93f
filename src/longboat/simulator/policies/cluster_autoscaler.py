"""A model of Kubernetes' cluster-autoscaler at its default flags. Every rule names the file of its source it is from,
in the folder cluster-autoscaler of github.com/kubernetes/autoscaler.

Modelled: when pods count, estimation, one pool per loop, backoff, unneeded nodes, drains of plain Job pods. Not
modelled: CPU and memory, PodDisruptionBudgets, limits of all pools together, zones, the time a drain takes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from longboat.autoscaler.model.snapshot import Pool
from longboat.simulator.entities import SimulatedMachine, SimulatedPod, gpus_of
from longboat.simulator.policies.estimating import machines_for, pending
from longboat.simulator.policies.policy import Policy
from longboat.simulator.world import World

# config/flags/flags.go, some by name from config/autoscaling_options.go (and the FAQ, "What are the parameters to CA?")
SCAN_S = 10.0  # --scan-interval
UNNEEDED_S = 600.0  # --scale-down-unneeded-time
AFTER_ADD_S = 600.0  # --scale-down-delay-after-add
GPU_THRESHOLD = 0.5  # --scale-down-gpu-utilization-threshold
PROVISION_S = 900.0  # --max-node-provision-time
BACKOFF_S, BACKOFF_MAX_S, BACKOFF_RESET_S = 300.0, 1800.0, 10800.0  # --initial/max-node-group-backoff-duration, -reset-
MOST_DELETED = 10  # --max-scale-down-parallelism
MOST_DRAINS = 1  # --max-drain-parallelism
RECHECK_S = 300.0  # --unremovable-node-recheck-timeout
# core/static_autoscaler.go: unschedulablePodWithGpuTimeBuffer
GPU_BUFFER_S = 30.0


class ClusterAutoscaler(Policy):
    name = "cluster-autoscaler"
    interval_s = SCAN_S

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self._unneeded: dict[str, float] = {}
        self._unremovable: dict[str, float] = {}  # not looked at before
        self._last_add = float("-inf")
        self._last = 0  # where the search for a place begins
        self._backoff: dict[str, tuple[float, float, float]] = {}  # pool -> until, how long, since
        self._looked = -1  # world.changes of the last look for unneeded machines
        self._look_at: float | None = None  # when there is something to look at although nothing has changed

    _is_protected = False

    def start(self, world: World) -> None:
        self._is_protected = world.conditions.is_protected

    def look(self, world: World, now: float) -> float | None:
        self._give_up(world, now)
        wakes: list[float] = []
        if world.waiting and self._scale_up(world, now, wakes):
            # core/static_autoscaler.go: no scale-down in a loop that scaled up
            return now + SCAN_S
        self._find_unneeded(world, now)
        if self._look_at is not None:
            wakes.append(self._look_at)
        self._scale_down(world, now, wakes)
        return min((moment for moment in wakes if moment > now), default=None)

    # Growing

    def _scale_up(self, world: World, now: float, wakes: list[float]) -> bool:
        tasks = pending(world)
        # core/static_autoscaler.go: allPodsAreNew looks at the oldest pod with a GPU
        oldest = min(task.job.created for task in tasks)
        if oldest + GPU_BUFFER_S > now:
            wakes.append(oldest + GPU_BUFFER_S)
            return False
        # core/podlistprocessor/filter_out_schedulable.go: pods that fit on upcoming nodes are dropped
        wakes += [machine.asked + PROVISION_S for machine in world.booting.values()]
        sizes = sorted(self._round_robin(tasks, [machine.gpus for machine in world.booting.values()]), reverse=True)
        if not sizes:
            return False
        options = []
        for pool in world.pools.values():
            until = self._backoff.get(pool.name, (0.0, 0.0, 0.0))[0]
            if until > now:
                wakes.append(until)
            elif world.room(pool) > 0:
                # estimator/binpacking_estimator.go: first fit, decreasing by share of CPU and memory
                count, never = machines_for(sizes, gpus_of(pool))
                if len(never) < len(sizes):
                    options.append((pool, min(count, world.room(pool)), _waste(pool, count, sizes, never)))
        if not options:
            return False
        # core/scaleup/orchestrator/orchestrator.go: one option per loop; config/flags/flags.go: --expander=least-waste;
        # expander/waste/waste.go: ties at random. It looks at CPU and memory; here they are asked in step with GPUs.
        least = min(waste for _, _, waste in options)
        pool, count, _ = self._chance.choice([option for option in options if option[2] == least])
        if not world.order(pool, count, now):
            self._back_off(pool, now)
            return True
        self._last_add = now
        return True

    def _round_robin(self, tasks: Iterable[SimulatedPod], places: list[int]) -> list[int]:
        """Sizes of the pods that fit on none of the places, which are new in every loop.

        simulator/clustersnapshot/predicate/plugin_runner.go: each search begins behind the node that was taken last, so
        that pods are scattered, and what needs a whole machine finds none among those ordered for it.
        """
        left = []
        for task in tasks:
            for step in range(len(places)):
                place = (self._last + step) % len(places)
                if places[place] >= task.gpus:
                    places[place] -= task.gpus
                    self._last = (place + 1) % len(places)
                    break
            else:
                left.append(task.gpus)
        return left

    def _give_up(self, world: World, now: float) -> None:
        """clusterstate/clusterstate.go: machines that took longer than --max-node-provision-time are removed."""
        for machine in list(world.booting.values()):
            if now - machine.asked >= PROVISION_S:
                self._back_off(machine.pool, now)
                world.remove(machine, now)

    def _back_off(self, pool: Pool, now: float) -> None:
        """utils/backoff/exponential_backoff.go: doubling, forgotten after a while without failures."""
        until, lasted, since = self._backoff.get(pool.name, (0.0, 0.0, float("-inf")))
        if until > now:
            return
        lasted = min(lasted * 2, BACKOFF_MAX_S) if lasted and now - since < BACKOFF_RESET_S else BACKOFF_S
        self._backoff[pool.name] = (now + lasted, lasted, now)

    # Shrinking

    def _find_unneeded(self, world: World, now: float) -> None:
        """core/scaledown/planner/planner.go: categorizeNodes, with core/scaledown/eligibility/eligibility.go."""
        if self._looked == world.changes and (self._look_at is None or now < self._look_at):
            return
        self._looked = world.changes
        self._unremovable = {
            name: until for name, until in self._unremovable.items() if until > now and name in world.machines
        }
        candidates = [
            machine
            for machine in world.machines.values()
            if machine.is_ready and machine.used / machine.gpus < GPU_THRESHOLD
        ]
        # processors/scaledowncandidates/{emptycandidates,previouscandidates}: empty ones first, then the earlier ones
        candidates.sort(
            key=lambda simulated_machine: (bool(simulated_machine.tasks), simulated_machine.name not in self._unneeded)
        )
        free = {machine.name: machine.free for machine in world.machines.values() if machine.is_ready}
        unneeded: dict[str, float] = {}
        # core/scaledown/planner/planner.go: unneededNodesLimit
        most = min(len(self._unneeded) + 2 * MOST_DELETED, MOST_DELETED * int(UNNEEDED_S / SCAN_S) + MOST_DELETED)
        for machine in candidates:
            if len(unneeded) >= most:
                break
            # core/scaledown/eligibility/eligibility.go: those that were not removable are not looked at for a while
            if machine.name in self._unremovable:
                continue
            if self._removes(machine, free):
                unneeded[machine.name] = self._unneeded.get(machine.name, now)
            else:
                self._unremovable[machine.name] = now + RECHECK_S
        self._unneeded = unneeded
        is_cut = len(unneeded) >= most
        self._look_at = now + SCAN_S if is_cut else min(self._unremovable.values(), default=None)

    def _removes(self, machine: SimulatedMachine, free: dict[str, int]) -> bool:
        """simulator/cluster.go: whether its pods fit elsewhere; where they would go is then taken.

        simulator/drainability/rules/replicated/rule.go: pods of a Job have a controller, and are moved;
        simulator/drainability/rules/notsafetoevict/rule.go: not those with the annotation
        cluster-autoscaler.kubernetes.io/safe-to-evict: "false".
        """
        if machine.tasks and self._is_protected:
            return False
        room = free.pop(machine.name)
        moves: list[tuple[str, int]] = []
        for task in machine.tasks:
            name = next((name for name, left in free.items() if left >= task.gpus), None)
            if name is None:
                for other, gpus in moves:
                    free[other] += gpus
                free[machine.name] = room
                return False
            free[name] -= task.gpus
            moves.append((name, task.gpus))
        return True

    def _scale_down(self, world: World, now: float, wakes: list[float]) -> None:
        if self._last_add + AFTER_ADD_S > now:
            wakes.append(self._last_add + AFTER_ADD_S)
            return
        due = []
        for name, since in self._unneeded.items():
            if since + UNNEEDED_S <= now:
                due.append(world.machines[name])
            else:
                wakes.append(since + UNNEEDED_S)
        # core/scaledown/budgets/budgets.go: empty nodes first; drains with what is left, and one at most
        empty = [machine for machine in due if not machine.tasks][:MOST_DELETED]
        drained = [machine for machine in due if machine.tasks][: min(MOST_DRAINS, MOST_DELETED - len(empty))]
        for machine in [*empty, *drained]:
            if world.sizes[machine.pool.name] > machine.pool.min:
                world.cordon(machine, now)
                world.evict(machine, now)
                world.remove(machine, now)
                del self._unneeded[machine.name]
        if empty or drained:
            wakes.append(now + SCAN_S)


def _waste(pool: Pool, count: int, sizes: list[int], never: list[int]) -> float:
    """The share of the new machines that nobody would use."""
    asked = sum(sizes) - sum(never)
    return 1.0 - asked / (count * gpus_of(pool))
