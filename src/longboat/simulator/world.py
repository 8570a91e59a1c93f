"""The simulated world: machines that boot, fail and are removed; jobs that wait, run, are evicted and end.

Policies change it only through `order`, `cordon`, `uncordon`, `evict` and `remove`. Time is handed in.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterable

from longboat.autoscaler.model.snapshot import Pool
from longboat.core.errors import Refused, UsageError
from longboat.core.jobs import Value
from longboat.simulator.entities import SimulatedJob, SimulatedMachine, SimulatedPod, gpus_of
from longboat.simulator.gate import SimulatedGate
from longboat.simulator.metrics import PolicyMetrics
from longboat.simulator.scheduler import Ranking, Scheduler
from longboat.simulator.traces import TraceJob

END, READY, GROW = 0, 1, 2
LATE = 3.0
"""A machine that takes so many boot times is not waited for: the autoscaler gives it up then."""
Event = tuple[float, int, int, object, int]


class Conditions(Value, frozen=True):
    """What the world is like, the same for every policy."""

    ranking: Ranking | None = None  # how the scheduler ranks machines; None: as pods of the policy ask it to
    checkpoint_s: float = 1800.0  # how much work an eviction loses at most; 0: all of it
    stockouts: float = 0.0  # share of orders that a provider refuses
    never_join: float = 0.0  # share of machines that never become nodes
    is_protected: bool = True  # trainings carry the annotations by which other autoscalers leave them alone
    elastic: float = 0.0  # share of the jobs with several GPUs that may also have half or a quarter of them
    seed: int = 0


USUAL = Conditions()


class SubmitHabits(Value, frozen=True):
    """How those submit who work with a policy."""

    whole_gangs: bool = False  # gangs are held back until all of their pods find a place
    ranking: Ranking = "least-allocated"


WITH_LONGBOAT = SubmitHabits(whole_gangs=True, ranking="packed")


class World:
    def __init__(self, pools: Iterable[Pool], conditions: Conditions, habits: SubmitHabits, *, start: float) -> None:
        self.pools = {pool.name: pool for pool in gpu_pools(pools)}
        self.conditions, self.whole_gangs, self.start = conditions, habits.whole_gangs, start
        self.largest = max(gpus_of(pool) for pool in self.pools.values())
        self.tally = PolicyMetrics()
        self.machines: dict[str, SimulatedMachine] = {}
        self.sizes = Counter(dict.fromkeys(self.pools, 0))
        self.waiting: dict[SimulatedJob, None] = {}
        self.running: dict[SimulatedJob, None] = {}
        self.idle: dict[str, SimulatedMachine] = {}  # ready, with nothing on them, the longest first
        self.changes = 0  # of anything
        self.calls = 0  # of what may make machines needed: somebody waits, a place was taken, an order was refused
        self.refusals = 0  # of orders
        self.wishes = 0  # of jobs for more GPUs than they have
        self.booting: dict[str, SimulatedMachine] = {}
        self.events: list[Event] = []
        self._scheduler = Scheduler(conditions.ranking or habits.ranking)
        self._gate = (
            SimulatedGate(next(iter(self.pools.values())).gpu_resource, self.largest) if habits.whole_gangs else None
        )
        self._shapes: Counter[tuple[int, ...]] = Counter()
        self._chance = random.Random(conditions.seed)
        self._count = self._machine_count = self._job_count = 0
        for pool in self.pools.values():
            for _ in range(pool.min):
                self.add_ready(pool)

    # Machines

    def add_ready(self, pool: Pool) -> SimulatedMachine:
        """A machine that is there from the beginning."""
        machine = self._machine(pool, self.start, None)
        machine.ready_at = self.start
        self._join(machine, self.start)
        return machine

    def room(self, pool: Pool) -> int:
        return pool.max - self.sizes[pool.name]

    def order(
        self, pool: Pool, count: int, now: float, *, zone: str | None = None, whom: str | None = None
    ) -> list[SimulatedMachine]:
        """Machines that have been asked for; none if the provider has none to give."""
        count = min(count, self.room(pool))
        if count <= 0:
            return []
        if self.conditions.stockouts and self._chance.random() < self.conditions.stockouts:
            self.calls += 1
            self.refusals += 1
            return []
        machines = []
        for _ in range(count):
            machine = self._machine(pool, now, zone)
            machine.whom = whom
            self.tally.ordered(pool.name, now)
            if self.conditions.never_join and self._chance.random() < self.conditions.never_join:
                machine.joins = False
            else:
                self._later(machine.ready_at, READY, machine, 0)
            machines.append(machine)
        return machines

    def _machine(self, pool: Pool, now: float, zone: str | None) -> SimulatedMachine:
        self._machine_count += 1
        machine = SimulatedMachine(f"{pool.name}-{self._machine_count}", pool, now, zone)
        self.machines[machine.name] = self.booting[machine.name] = machine
        self.sizes[pool.name] += 1
        self.tally.capacity += machine.gpus
        self.changes += 1
        return machine

    def _join(self, machine: SimulatedMachine, now: float) -> None:
        machine.is_ready = True
        del self.booting[machine.name]
        machine.idle_since = now
        self.idle[machine.name] = machine
        self._open(machine)
        self.changes += 1

    def _open(self, machine: SimulatedMachine) -> None:
        self._scheduler.open(machine)
        if self._gate is not None:
            self._gate.open(machine)

    def _close(self, machine: SimulatedMachine) -> None:
        self._scheduler.close(machine)
        if self._gate is not None:
            self._gate.close(machine)

    def cordon(self, machine: SimulatedMachine, now: float) -> None:
        self._close(machine)
        machine.cordoned_at = now
        machine.seen = None

    def uncordon(self, machine: SimulatedMachine, now: float) -> None:
        machine.cordoned_at = None
        machine.seen = None
        if machine.is_ready:
            self._open(machine)
        self.changes += 1

    def open_counts(self) -> dict[int, int]:
        """Free GPUs -> how many machines that take pods have so many."""
        return self._scheduler.counts()

    def evict(self, machine: SimulatedMachine, now: float) -> None:
        """All pods of the machine; a job of which a pod is evicted starts again from its last checkpoint."""
        for job in dict.fromkeys(task.job for task in machine.tasks):
            self.tally.evictions += sum(1 for task in job.tasks if task.machine is machine)
            self._interrupt(job, now)

    def remove(self, machine: SimulatedMachine, now: float) -> None:
        assert not machine.tasks, "a machine with pods on it is not removed"
        self._close(machine)
        self.idle.pop(machine.name, None)
        self.booting.pop(machine.name, None)
        del self.machines[machine.name]
        self.sizes[machine.pool.name] -= 1
        self.tally.capacity -= machine.gpus
        self.tally.removed(machine.pool.name, machine.gpus, machine.pool.price, now - machine.asked, now)
        self.changes += 1

    # Jobs

    def submit(self, trace: TraceJob, now: float) -> None:
        self._job_count += 1
        job = SimulatedJob(trace, f"job-{self._job_count}", self.largest, self._sizes(trace))
        self.tally.demand += trace.gpus
        self.tally.requested += trace.gpus * trace.duration
        self._enqueue(job, now)

    def _sizes(self, trace: TraceJob) -> tuple[int, ...]:
        """GPUs that the job may have together, the smallest first."""
        return (trace.gpus,)

    def _enqueue(self, job: SimulatedJob, now: float) -> None:
        job.created = now
        self.changes += 1
        # At the gate a new job queues behind those that wait.
        is_behind = bool(self.waiting) and self._gate is not None
        if not is_behind and any(self._place(job, now, size) for size in reversed(job.sizes)):
            return
        self.waiting[job] = None
        self._shapes[self._shape(job)] += 1
        self.calls += 1
        if is_behind:
            self.schedule(now)

    def _shape(self, job: SimulatedJob) -> tuple[int, ...]:
        """Jobs of one shape fare alike: where one finds no place, the others find none."""
        sizes = (job.tasks[0].gpus, job.tasks[-1].gpus)
        return (*sizes, len(job.tasks)) if self.whole_gangs else sizes

    def schedule(self, now: float) -> None:
        """Give places to those who wait, the oldest first."""
        if self.waiting and self._gate is not None:
            self._admit(self._gate, now)
        if not self.waiting:
            self._plan_growth(now)
        if not self.waiting or self._gate is not None:
            return
        hopeless: set[tuple[int, ...]] = set()
        for job in list(self.waiting):
            shape = self._shape(job)
            if shape in hopeless:
                continue
            if self._place(job, now):
                self._stop_waiting(job)
            else:
                hopeless.add(shape)
            if len(hopeless) >= len(self._shapes):
                return

    def _stop_waiting(self, job: SimulatedJob, shape: tuple[int, ...] | None = None) -> None:
        """Remove a job from those that wait; `shape`: with which it waited."""
        del self.waiting[job]
        shape = self._shape(job) if shape is None else shape
        self._shapes[shape] -= 1
        if not self._shapes[shape]:
            del self._shapes[shape]

    def _admit(self, gate: SimulatedGate, now: float) -> None:
        """Admit jobs at the gate and place their pods as the scheduler would."""
        largest = max((free for free, count in self.open_counts().items() if count), default=0)
        if all(max(shape[:2]) > largest for shape in self._shapes):
            return
        coming = [machine for machine in self.booting.values() if now <= machine.asked + LATE * machine.pool.boot_s]
        for job, gpus in gate.admit(self.waiting, coming, now):
            shape = self._shape(job)
            if self._place(job, now, gpus):
                self._stop_waiting(job, shape)

    def _place(self, job: SimulatedJob, now: float, gpus: int | None = None) -> bool:
        """Bind what fits; whole gangs or nothing where the policy holds gangs together. True: it runs. `gpus`: of a job
        without a place, those that it is to have."""
        if gpus not in (None, job.gpus):
            job.resize(gpus or job.gpus, self.largest)
        placed: list[SimulatedPod] = []
        is_whole = True
        for task in job.tasks:
            if task.machine is not None:
                continue
            machine = self._scheduler.find(task.gpus)
            if machine is None:
                is_whole = False
                break
            self._bind(task, machine, now)
            placed.append(task)
        if is_whole:
            self._begin(job, now)
        elif self.whole_gangs:
            for task in placed:
                self._unbind(task, now, is_undone=True)
            if job.gpus != job.sizes[0]:
                job.resize(job.sizes[0], self.largest)
        if self.waiting and (is_whole or not self.whole_gangs) and placed:
            self.calls += 1
        return is_whole

    def _bind(self, task: SimulatedPod, machine: SimulatedMachine, now: float) -> None:
        self._scheduler.close(machine)
        machine.free -= task.gpus
        machine.tasks[task] = None
        self._scheduler.open(machine)
        if self._gate is not None:
            self._gate.bind(task, machine)
        task.machine, task.bound_at, task.seen = machine, now, None
        self.idle.pop(machine.name, None)

    def _unbind(self, task: SimulatedPod, now: float, *, is_undone: bool = False) -> None:
        machine = task.machine
        assert machine is not None
        self._scheduler.close(machine)
        machine.free += task.gpus
        del machine.tasks[task]
        if self._gate is not None:
            self._gate.unbind(task)
        task.machine = task.seen = None
        if machine.cordoned_at is None:
            self._scheduler.open(machine)
        if not machine.tasks:
            if not is_undone or machine.idle_since is None:
                machine.idle_since = now
            self.idle[machine.name] = machine

    def _begin(self, job: SimulatedJob, now: float) -> None:
        if job.is_gang and not self.whole_gangs:
            self.tally.held_partial += sum(task.gpus * (now - task.bound_at) for task in job.tasks)
        job.started = now
        job.round += 1
        self.running[job] = None
        self.tally.running += job.gpus
        self.wishes += job.gpus < job.sizes[-1]
        if not job.has_run:
            job.has_run = True
            self.tally.started(now - job.trace.submitted, is_gang=job.is_gang)
        self._later(now + job.left / job.speed, END, job, job.round)

    def _interrupt(self, job: SimulatedJob, now: float) -> None:
        if job.started is not None:
            ran = now - job.started
            every = self.conditions.checkpoint_s
            saved = ran // every * every if every else 0.0
            self.tally.lost += (ran - saved) * job.gpus
            self._pause(job, saved)
        else:
            held = sum(task.gpus * (now - task.bound_at) for task in job.tasks if task.machine is not None)
            self.tally.held_partial += held
            self._stop_waiting(job)
        for task in job.tasks:
            if task.machine is not None:
                self._unbind(task, now)
        job.resize(job.sizes[0], self.largest)
        self._enqueue(job, now)

    def _pause(self, job: SimulatedJob, ran: float) -> None:
        """It runs no more, and what it did in so many seconds is done."""
        job.left -= ran * job.speed
        job.started = job.grows_at = None
        job.round += 1
        del self.running[job]
        self.tally.running -= job.gpus

    def _plan_growth(self, now: float) -> None:
        """Nobody waits: who may grow into what is free. See `ElasticWorld`."""

    def _grow(self, job: SimulatedJob, now: float) -> None:
        """It is at a checkpoint from which it may go on with more GPUs."""

    # Events

    def _later(self, moment: float, kind: int, subject: object, number: int) -> None:
        self._count += 1
        heapq.heappush(self.events, (moment, kind, self._count, subject, number))

    def process_due(self, now: float) -> bool:
        """Whatever is due now; True if something came of it."""
        before = self.changes
        while self.events and self.events[0][0] <= now:
            _, kind, _, subject, number = heapq.heappop(self.events)
            if kind == END and isinstance(subject, SimulatedJob):
                if subject.round == number and subject.started is not None:
                    self._finish(subject, now)
            elif kind == GROW and isinstance(subject, SimulatedJob):
                if subject.round == number and subject in self.running:
                    self._grow(subject, now)
            elif isinstance(subject, SimulatedMachine) and subject.name in self.machines:
                self._join(subject, now)
        return self.changes != before

    def _finish(self, job: SimulatedJob, now: float) -> None:
        del self.running[job]
        for task in job.tasks:
            self._unbind(task, now)
        self.tally.ended(now - job.trace.submitted)
        self.tally.running -= job.gpus
        self.tally.demand -= job.trace.gpus
        self.changes += 1

    def close(self, now: float) -> None:
        """Charge what is still there, and what incomplete gangs still hold."""
        for machine in self.machines.values():
            self.tally.charge(machine.gpus, machine.pool.price, now - machine.asked)
        for job in self.waiting:
            held = sum(task.gpus * (now - task.bound_at) for task in job.tasks if task.machine is not None)
            self.tally.held_partial += held


def gpu_pools(pools: Iterable[Pool]) -> list[Pool]:
    """Pools with GPUs. Jobs of a trace request GPUs by one resource name."""
    with_gpus = [pool for pool in pools if gpus_of(pool) > 0]
    if not with_gpus:
        raise UsageError("no pool has machines with GPUs", hint="give a pool `machine: {gpus: 8, ...}`")
    names = sorted({pool.gpu_resource for pool in with_gpus})
    if len(names) > 1:
        raise UsageError(
            f"the pools have GPUs of several names: {', '.join(names)}",
            hint="jobs of a trace ask for GPUs by one name: simulate the pools of each name by themselves",
        )
    if not any(pool.max for pool in with_gpus):
        raise Refused("no pool may have a machine: every max is 0", hint="raise max of a pool")
    return with_gpus
