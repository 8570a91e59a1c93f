"""Replays a trace event by event against one policy: arrivals, machines that become ready, ends, the policy's ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from longboat.autoscaler.model.snapshot import Pool
from longboat.simulator.elastic.world import ElasticWorld
from longboat.simulator.policies.policy import Policy
from longboat.simulator.results import PolicyOutcome
from longboat.simulator.traces import Trace
from longboat.simulator.world import USUAL, Conditions, World

NEVER = math.inf
STALLED_S = 48 * 3600.0
"""With jobs that wait and nothing that happens or is done for so long, nothing will be."""


def replay(
    trace: Trace,
    pools: Sequence[Pool],
    policy: Policy,
    conditions: Conditions = USUAL,
    check: Callable[[float], None] = lambda passed_s: None,
) -> PolicyOutcome:
    """From the first submission to the end of the last job, or until the rest can never run. `check` is told the
    simulated time that has passed, before each event; it may raise."""
    return Replay(trace, pools, policy, conditions).run(check)


class Replay:
    def __init__(self, trace: Trace, pools: Sequence[Pool], policy: Policy, conditions: Conditions) -> None:
        self.trace, self.policy = trace, policy
        self.start = trace.jobs[0].submitted
        self.world: World = ElasticWorld(pools, conditions, policy.habits, start=self.start)
        self.next_job = 0
        self.tick = NEVER
        self.last_change = self.start

    def run(self, check: Callable[[float], None]) -> PolicyOutcome:
        world, tally = self.world, self.world.tally
        self.policy.start(world)
        now = self.start
        while tally.finished < len(self.trace.jobs):
            event = min(self._arrival(), world.events[0][0] if world.events else NEVER)
            moment = min(event, self.tick)
            if moment == NEVER or (event == NEVER and moment - self.last_change > STALLED_S):
                break
            now = moment
            check(now - self.start)
            before = world.changes
            if self._events(now):
                self._ask(now)
            if self.tick <= now:
                self._look(now)
            if world.changes != before:
                self.last_change = now
                tally.point(now)
        world.close(now)
        return PolicyOutcome(
            policy=self.policy.name,
            figures=tally.figures(),
            points=tuple(tally.points),
            longest_wait_s=max(tally.waits, default=0.0),
            unfinished=len(self.trace.jobs) - tally.finished,
        )

    def _arrival(self) -> float:
        jobs = self.trace.jobs
        return jobs[self.next_job].submitted if self.next_job < len(jobs) else NEVER

    def _events(self, now: float) -> bool:
        """Ends and machines first, so that who waits is served before who comes."""
        world = self.world
        before = world.changes
        if world.process_due(now):
            world.schedule(now)
        while self._arrival() <= now:
            world.submit(self.trace.jobs[self.next_job], now)
            self.next_job += 1
        return world.changes != before

    def _ask(self, now: float) -> None:
        wanted = self.policy.wants(self.world, now)
        if wanted is not None:
            self.tick = min(self.tick, self._at_tick(wanted))

    def _look(self, now: float) -> None:
        before = self.world.changes
        again = self.policy.timed_look(self.world, now)
        if self.world.changes != before:
            self.world.schedule(now)
        self.tick = NEVER if again is None else max(self._at_tick(again), self._at_tick(now + self.policy.interval_s))

    def _at_tick(self, moment: float) -> float:
        every = self.policy.interval_s
        return self.start + math.ceil((moment - self.start) / every - 1e-9) * every
