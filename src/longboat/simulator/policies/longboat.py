"""Longboat's own policy: the very `decide()` of the live autoscaler, on Snapshots made of the simulated world.

It is called when its plan can have changed: those who wait no longer fit on what is there and on its way, an order was
refused, a job could grow, a machine has been idle for long enough, fewer machines than `spare` are empty, the moment of
`next_s` has come, or the last plan removed something. Where all who wait have a place to go to and nothing is due,
`decide()` would do nothing, and is not asked. What an earlier loop would have written on a node (since when it idles)
the world knows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from longboat.autoscaler.decide.decide import decide
from longboat.autoscaler.model.machines import patience, template
from longboat.autoscaler.model.plan import ScalingAction, ScalingPlan
from longboat.autoscaler.model.snapshot import (
    AutoscalerSettings,
    ClusterSnapshot,
    ElasticGang,
    Gang,
    NodeMemory,
    Order,
    ProviderFailure,
    SeenNode,
    SeenPod,
)
from longboat.fitting.model.nodes import Toleration
from longboat.fitting.model.pods import NodeConstraints, Pod, PodShape
from longboat.simulator.entities import SimulatedJob, SimulatedMachine, SimulatedPod, growth_of
from longboat.simulator.policies.policy import Policy
from longboat.simulator.world import WITH_LONGBOAT, World

TOLERANT = NodeConstraints(tolerations=(Toleration(operator="Exists"),))
KEPT = "it is a training pod, which would lose its work"


class Longboat(Policy):
    name = "longboat"
    habits = WITH_LONGBOAT

    def __init__(self, settings: AutoscalerSettings, interval_s: float = 10.0) -> None:
        self.settings, self.interval_s = settings, interval_s
        self._shapes: dict[int, PodShape] = {}
        self._failures: dict[tuple[str, str | None], ProviderFailure] = {}
        self._calls = self._refusals = self._wishes = -1
        self._wake: float | None = None
        self._handled = float("-inf")  # machines that were due before this moment have been decided on

    def wants(self, world: World, now: float) -> float | None:
        if self._has_new_demand(world, now):
            self._calls = -1
            return now
        due = self._due(world)
        return None if due is None else max(due, now)

    def timed_look(self, world: World, now: float) -> float | None:
        return self.look(world, now)  # only decide() itself is timed

    def look(self, world: World, now: float) -> float | None:
        due = self._due(world)
        is_due = (due is not None and due <= now) or (self._wake is not None and self._wake <= now)
        if is_due or self._has_new_demand(world, now):
            self._decide(world, now)
        moments = [moment for moment in (self._wake, self._due(world)) if moment is not None]
        return min(moments, default=None)

    def _has_new_demand(self, world: World, now: float) -> bool:
        """Whether something happened for which machines may be needed."""
        if world.wishes != self._wishes and any(pool.growth_s for pool in world.pools.values()):
            return True
        if world.calls == self._calls and len(world.idle) >= self.settings.spare:
            return False
        self._calls = world.calls
        if self._refusals != world.refusals or self.settings.spare or self.settings.over_provision:
            return True
        self._refusals = world.refusals
        return not self._is_served(world, now)

    def _is_served(self, world: World, now: float) -> bool:
        """Whether all who wait fit on what is open and on what boots, the largest first, the tightest place first."""
        counts = world.open_counts()
        for machine in world.booting.values():
            if now <= machine.asked + patience(machine.pool, self.settings):
                counts[machine.free] = counts.get(machine.free, 0) + 1
        sizes = sorted((task.gpus for job in world.waiting for task in job.tasks), reverse=True)
        for gpus in sizes:
            free = min((free for free, count in counts.items() if count and free >= gpus), default=None)
            if free is None:
                return False
            counts[free] -= 1
            counts[free - gpus] = counts.get(free - gpus, 0) + 1
        return True

    def _due(self, world: World) -> float | None:
        """When the next machine will have been idle for long enough."""
        idle_s = self.settings.idle_s
        moments = [machine.idle_since + idle_s for machine in world.idle.values() if machine.idle_since is not None]
        return min((moment for moment in moments if moment > self._handled), default=None)

    def _decide(self, world: World, now: float) -> None:
        snapshot = self.snapshot(world)
        self._calls, self._refusals, self._wishes = world.calls, world.refusals, world.wishes
        before = time.process_time()
        plan = decide(snapshot, self.settings, now)
        world.tally.decide_cpu_s += time.process_time() - before
        self._handled = now
        self._wake = self._next(plan, world, now)
        for action in plan.actions:
            self._act(action, world, now)

    def _next(self, plan: ScalingPlan, world: World, now: float) -> float | None:
        if any(action.kind != "grow" for action in plan.actions):
            return now + self.interval_s
        late = [
            now + patience(world.pools[scaling_action.pool or ""], self.settings) for scaling_action in plan.actions
        ]
        return min([*late, *([] if plan.next_s is None else [now + plan.next_s])], default=None)

    def _act(self, action: ScalingAction, world: World, now: float) -> None:
        if action.kind == "grow":
            self._grow(action, world, now)
            return
        machine = world.machines[action.node or action.machine or ""]
        if action.kind == "cordon":
            world.cordon(machine, now)
        elif action.kind == "uncordon":
            world.uncordon(machine, now)
        elif action.kind == "drain":
            world.evict(machine, now)
        else:
            world.remove(machine, now)

    def _grow(self, action: ScalingAction, world: World, now: float) -> None:
        pool = world.pools[action.pool or ""]
        whom = action.runs[0] if len(action.runs) == 1 else None
        zones: dict[str | None, int] = dict(action.zones.items()) or {action.zone: action.count or 0}
        for zone, count in zones.items():
            key = (pool.name, zone)
            if world.order(pool, count, now, zone=zone, whom=whom):
                self._failures.pop(key, None)
            else:
                before = self._failures.get(key)
                count_ = before.count + 1 if before is not None else 1
                self._failures[key] = ProviderFailure(pool=pool.name, zone=zone, kind="stockout", at=now, count=count_)

    # What it sees

    def snapshot(self, world: World) -> ClusterSnapshot:
        nodes, orders, memory = [], [], []
        pods: list[SeenPod] = []
        for machine in world.machines.values():
            if not machine.is_ready:
                orders.append(self._order(machine))
                continue
            nodes.append(machine.seen or self._node(machine))
            if not machine.tasks or machine.cordoned_at is not None:
                memory.append(_memory(machine))
            for task in machine.tasks:
                pods.append(task.seen or self._bound(task))
        gangs = []
        for job in world.waiting:
            if job.is_gang:
                gangs.append(self._gang(job))
            else:
                pods.append(job.tasks[0].seen or self._pending(job))
        return ClusterSnapshot(
            nodes=tuple(nodes),
            pods=tuple(pods),
            gangs=tuple(gangs),
            elastic=tuple(self._growing(world)),
            pools=tuple(world.pools.values()),
            orders=tuple(orders),
            failures=tuple(self._failures.values()),
            memory=tuple(memory),
        )

    def _node(self, machine: SimulatedMachine) -> SeenNode:
        import msgspec

        shape = template(machine.pool, machine.zone, machine.name)
        if machine.cordoned_at is not None:
            shape = msgspec.structs.replace(shape, is_unschedulable=True)
        node = SeenNode(shape=shape, created=machine.ready_at, ready_since=machine.ready_at, machine=machine.name)
        machine.seen = node
        return node

    def _order(self, machine: SimulatedMachine) -> Order:
        return Order(
            pool=machine.pool.name, machine=machine.name, asked=machine.asked, zone=machine.zone, gang=machine.whom
        )

    def _bound(self, task: SimulatedPod) -> SeenPod:
        machine = task.machine
        assert machine is not None
        pod = SeenPod(pod=self._pod(task, machine.name), created=task.job.created, kept=KEPT)
        task.seen = pod
        return pod

    def _pending(self, job: SimulatedJob) -> SeenPod:
        task = job.tasks[0]
        task.seen = pod = SeenPod(pod=self._pod(task, None), created=job.created, kept=KEPT)
        return pod

    def _gang(self, job: SimulatedJob) -> Gang:
        pods = tuple(self._pod(task, None) for task in job.tasks)
        return Gang(name=f"default/{job.name}", pods=pods, created=job.created, is_suspended=True)

    def _growing(self, world: World) -> Iterator[ElasticGang]:
        for job in world.running if any(pool.growth_s for pool in world.pools.values()) else ():
            if job.gpus < job.sizes[-1]:
                pods = [
                    SimulatedPod(job, f"{job.name}+{n}", each) for n, each in enumerate(growth_of(job, world.largest))
                ]
                yield ElasticGang(
                    name=f"default/{job.name}",
                    pods=tuple(self._pod(pod, None) for pod in pods),
                    size=len(job.tasks),
                    largest=len(job.tasks) + len(pods),
                    since=job.started or 0.0,
                )

    def _pod(self, task: SimulatedPod, node: str | None) -> Pod:
        return Pod(name=task.name, shape=self._shape(task.gpus), node=node, owner="Job")

    def _shape(self, gpus: int) -> PodShape:
        shape = self._shapes.get(gpus)
        if shape is None:
            shape = self._shapes[gpus] = PodShape(requests=((self._resource, gpus),), placing=TOLERANT)
        return shape

    _resource = ""

    def start(self, world: World) -> None:
        self._resource = next(iter(world.pools.values())).gpu_resource


def _memory(machine: SimulatedMachine) -> NodeMemory:
    idle = None if machine.tasks else machine.idle_since
    return NodeMemory(node=machine.name, idle_since=idle, cordoned_at=machine.cordoned_at)
