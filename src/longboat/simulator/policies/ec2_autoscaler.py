"""A model of kubernetes-ec2-autoscaler, Longboat's ancestor, at its defaults: autoscaler/cluster.py and main.py.

Not modelled: CPU and memory, spot, timeouts of groups after a failure other than by asking again.
"""

from __future__ import annotations

from longboat.simulator.cast import Machine, gpus_of
from longboat.simulator.policies.estimating import first_fit, pending
from longboat.simulator.policies.policy import Policy
from longboat.simulator.world import World

SLEEP_S = 60.0  # main.py --sleep
OVER_PROVISION = 5  # main.py --over-provision
IDLE_S = 3600.0  # main.py --idle-threshold
TYPE_IDLE_S = 7 * 86400.0  # main.py --type-idle-threshold
INIT_S = 25 * 60.0  # main.py --instance-init-time
TYPE_IDLE_COUNT = 5  # cluster.py
UTIL_THRESHOLD = 0.3  # cluster.py
LAUNCH_HOUR_S = 50 * 60.0  # cluster.py: LAUNCH_HOUR_THRESHOLD
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
            world.order(pool, wanted - coming, now)
            left = rest
            if not left:
                break

    def _maintain(self, world: World, now: float) -> None:
        spare: dict[str, int] = {}
        for machine in list(world.machines.values()):
            if not machine.is_ready:
                if now - machine.asked >= INIT_S:  # maintain: instances that never joined
                    world.remove(machine, now)
                continue
            self._tend(machine, spare, world, now)

    def _tend(self, machine: Machine, spare: dict[str, int], world: World, now: float) -> None:
        """cluster.py get_node_state and maintain, in the order of their conditions."""
        age = (now - machine.asked) % DAY  # timedelta.seconds leaves the days out
        is_under = machine.used <= UTIL_THRESHOLD * machine.gpus
        is_cordoned = machine.cordoned_at is not None
        pool = machine.pool.name
        if world.sizes[pool] <= machine.pool.min:
            return
        if machine.tasks and not is_under:
            if is_cordoned:
                world.uncordon(machine, now)
            return
        if not is_cordoned:
            if world.waiting or age % 3600.0 < LAUNCH_HOUR_S:
                return
            if spare.get(pool, 0) < TYPE_IDLE_COUNT:
                if age <= TYPE_IDLE_S:
                    spare[pool] = spare.get(pool, 0) + 1
                    return
            elif age <= IDLE_S:
                return
        if machine.tasks or not is_cordoned:  # under-utilized-drainable: plain deletion of its pods
            world.cordon(machine, now)
            world.evict(machine, now)
        else:
            world.remove(machine, now)
