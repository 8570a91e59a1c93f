"""The simulated world with elastic jobs: which are, and how they grow. Where the gate gives sizes, they start with what
fits (`gate`); the rest of the world is `world`.

A job computes in proportion to its GPUs. It grows at a checkpoint, when nobody waits, into what is free; nothing is
given back, for jobs of a trace have no priorities and nobody comes before who is in.
"""

from __future__ import annotations

import random

from longboat.simulator.entities import SimulatedJob, elastic_sizes
from longboat.simulator.traces import TraceJob
from longboat.simulator.world import END, GROW, World

RESTART_S = 60.0
"""A job that gets another size computes nothing for so long."""


class ElasticWorld(World):
    def _sizes(self, trace: TraceJob) -> tuple[int, ...]:
        """The same jobs are elastic whatever the policy, where a gate gives sizes."""
        share = self.conditions.elastic if self._gate is not None else 0.0
        chance = random.Random(f"{self.conditions.seed} {trace.name}").random() if share else 1.0
        return elastic_sizes(trace.gpus, share, chance)

    def _plan_growth(self, now: float) -> None:
        every = self.conditions.checkpoint_s
        for job in self.running if self.conditions.elastic and every and self._gate is not None else ():
            if job.gpus < job.sizes[-1] and job.grows_at is None and job.started is not None:
                job.grows_at = job.started + ((now - job.started) // every + 1) * every
                self.wishes += 1
                self._later(job.grows_at, GROW, job, job.round)

    def _grow(self, job: SimulatedJob, now: float) -> None:
        """It starts again with as many GPUs as there are for it, if that is more."""
        job.grows_at = None
        free = sum(free * count for free, count in self.open_counts().items())
        if self.waiting or job.started is None or not any(job.gpus < size <= job.gpus + free for size in job.sizes):
            return
        before = job.gpus
        self._pause(job, now - job.started)
        for task in job.tasks:
            self._unbind(task, now, is_undone=True)
        any(self._place(job, now, size) for size in reversed(job.sizes) if size >= before)
        if job.gpus != before:
            job.left += RESTART_S * job.speed
            job.round += 1
            self._later(now + job.left / job.speed, END, job, job.round)
        self.changes += 1
