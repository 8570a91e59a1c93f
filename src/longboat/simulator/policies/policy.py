"""The policy interface: what the replay calls from time to time to look at the world and change it."""

from __future__ import annotations

import abc
import time

from longboat.simulator.world import SubmitHabits, World


class Policy(abc.ABC):
    """Called at ticks of its own interval, when something happened that it wants to look at, or when it asked to be."""

    name = ""
    habits = SubmitHabits()
    interval_s = 10.0  # cluster-autoscaler's default, and Longboat's

    def start(self, world: World) -> None:  # noqa: B027 (most have nothing to do then)
        """Before the first job."""

    def wants(self, world: World, now: float) -> float | None:
        """After events: when it wants to look because of them; the replay takes the next tick."""
        return now

    @abc.abstractmethod
    def look(self, world: World, now: float) -> float | None:
        """One loop. Returns when it wants to look again even if nothing happens."""

    def timed_look(self, world: World, now: float) -> float | None:
        before = time.process_time()
        actions = self.look(world, now)
        world.tally.decide_cpu_s += time.process_time() - before
        return actions
