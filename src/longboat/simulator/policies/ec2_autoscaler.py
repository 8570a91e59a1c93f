"""A model of kubernetes-ec2-autoscaler, Longboat's ancestor, at its defaults: autoscaler/cluster.py,
autoscaler/autoscaling_groups.py and main.py of github.com/openai/kubernetes-ec2-autoscaler.

It is modelled as it was before main.py had --drain-utilization, which is 0 by default and ends all drains. Not
modelled: CPU and memory, timeouts of groups after a failure other than by asking again, a group that replaces what
was taken from it.
"""

from __future__ import annotations

import math

from longboat.simulator.entities import SimulatedMachine, gpus_of
from longboat.simulator.policies.estimating import first_fit, pending
from longboat.simulator.policies.policy import Policy
from longboat.simulator.world import World

SLEEP_S = 60.0  # main.py --sleep
OVER_PROVISION = 5  # main.py --over-provision
IDLE_S = 3300.0  # main.py --idle-threshold
TYPE_IDLE_S = 7 * 86400.0  # main.py --type-idle-threshold
INIT_S = 25 * 60.0  # main.py --instance-init-time
MOST_SHARE = 0.1  # main.py --max-scale-in-fraction
TYPE_IDLE_COUNT = 5  # cluster.py
UTIL_THRESHOLD = 0.3  # cluster.py
LAUNCH_HOUR_S = 30 * 60.0  # cluster.py: LAUNCH_HOUR_THRESHOLD, of AWS
DAY = 86400.0


class Ec2Autoscaler(Policy):
    name = "ec2-autoscaler"
    interval_s = SLEEP_S

    def look(self, world: World, now: float) -> float | None:
        if world.waiting:
            self._scale(world, now)
        self._maintain(world, now)
        return now + SLEEP_S

    def _scale(self, world: World, now: float) -> None:
        """cluster.py fulfill_pending: first fit in the order of arrival, and some more, beside the nodes there."""
        left = [task.gpus for task in pending(world)]
        for pool in sorted(world.pools.values(), key=lambda pool: (not pool.spot, pool.name)):
            gpus = gpus_of(pool)
            places: list[int] = []
            rest = []
            for size in left:
                if size > gpus:
                    rest.append(size)
                elif first_fit([size], places):
                    places.append(gpus - size)
            if not places:
                continue
            coming = sum(1 for machine in world.booting.values() if machine.pool is pool)
            wanted = len(places) + OVER_PROVISION
            # autoscaling_groups.py scale: nodes that were cordoned are taken back, as the new size counts them too
            for machine in world.machines.values():
                if machine.pool is pool and machine.cordoned_at is not None:
                    world.uncordon(machine, now)
            world.order(pool, wanted - coming, now)
            left = rest
            if not left:
                break

    def _maintain(self, world: World, now: float) -> None:
        spare: dict[str, int] = {}
        going = []
        for machine in list(world.machines.values()):
            if not machine.is_ready:
                if now - machine.asked >= INIT_S:  # maintain: instances that never joined
                    world.remove(machine, now)
            elif self._tend(machine, spare, world, now):
                going.append(machine)
        # maintain: with more than the share that may go at once, none goes
        if len(going) <= math.ceil(MOST_SHARE * len(world.machines)):
            for machine in going:
                world.remove(machine, now)

    def _tend(self, machine: SimulatedMachine, spare: dict[str, int], world: World, now: float) -> bool:
        """cluster.py get_node_state and maintain, in the order of their conditions; whether the machine is to go."""
        age = (now - machine.asked) % DAY  # timedelta.seconds leaves the days out
        is_under = machine.used <= UTIL_THRESHOLD * machine.gpus
        is_cordoned = machine.cordoned_at is not None
        pool = machine.pool.name
        if world.sizes[pool] <= machine.pool.min:
            return False
        if machine.tasks and not is_under:
            if is_cordoned:
                world.uncordon(machine, now)
            return False
        if not is_cordoned:
            if world.waiting or age % 3600.0 < LAUNCH_HOUR_S:
                return False
            if spare.get(pool, 0) < TYPE_IDLE_COUNT:
                if age <= TYPE_IDLE_S:
                    spare[pool] = spare.get(pool, 0) + 1
                    return False
            elif age <= IDLE_S:
                return False
        if machine.tasks or not is_cordoned:  # under-utilized-drainable: plain deletion of its pods
            world.cordon(machine, now)
            world.evict(machine, now)
            return False
        return True
