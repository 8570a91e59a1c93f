"""A fixed cluster: every pool has its max of machines from the first submission to the last end. Whole gangs."""

from __future__ import annotations

from longboat.simulator.policies.policy import Policy
from longboat.simulator.world import WITH_LONGBOAT, World


class Static(Policy):
    name = "static"
    habits = WITH_LONGBOAT

    def start(self, world: World) -> None:
        for pool in world.pools.values():
            while world.room(pool) > 0:
                world.add_ready(pool)

    def wants(self, world: World, now: float) -> float | None:
        return None

    def look(self, world: World, now: float) -> float | None:
        return None
