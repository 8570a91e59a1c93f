"""A tiny world to drive `decide` through a history: machines boot or fail, a scheduler places, work ends. Pure.

It checks what must hold at every step: limits, whole gangs, protected pods, no machine removed and bought again.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from longboat.autoscaler.decide.decide import decide
from longboat.autoscaler.model.machines import patience, template
from longboat.autoscaler.model.plan import ScalingAction, ScalingPlan
from longboat.autoscaler.model.snapshot import (
    AutoscalerSettings,
    ClusterSnapshot,
    Gang,
    NodeMemory,
    Pool,
    ProviderFailure,
    SeenNode,
    SeenPod,
)
from longboat.autoscaler.purchase.offers import uses_of
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import NodeShape, Taint, Toleration
from longboat.fitting.model.pods import NodeConstraints, Pod, PodShape
from longboat.fitting.packing import Placement, take

GPU = "nvidia.com/gpu"
TOLERANT = NodeConstraints(tolerations=(Toleration(key=GPU, operator="Exists"),))


def pool(name: str, gpus: int, price: float, **more: object) -> Pool:
    has = [("cpu", 12_000 * max(gpus, 1)), ("memory", 100 * max(gpus, 1) << 30), ("pods", 110)]
    has += [(GPU, gpus)] if gpus else []
    labels = {"longboat.dev/pool": name, "size": str(gpus)}
    taints = (Taint(key=GPU, effect="NoSchedule"),) if gpus else ()
    shape = NodeShape(name=name, labels=labels, taints=taints, allocatable=tuple(sorted(has)))
    return Pool(name=name, machine=shape, price=price, **{"max": 8, **more})  # type: ignore[arg-type]


class Work(NamedTuple):
    """A gang, a single training pod, or a service that may be moved."""

    name: str
    nodes: int = 1
    gpus: int = 1
    lasts: float = 600.0
    priority: int = 0
    is_service: bool = False

    @property
    def pods(self) -> list[Pod]:
        asks = (("cpu", 4000), ("memory", 10 << 30), *(((GPU, self.gpus),) if self.gpus else ()))
        shape = PodShape(requests=tuple(sorted(asks)), placing=TOLERANT if self.gpus else NodeConstraints())
        owner = "ReplicaSet" if self.is_service else "Job"
        return [
            Pod(name=f"{self.name}-{index}", shape=shape, priority=self.priority, owner=owner)
            for index in range(self.nodes)
        ]


class Box:
    """A machine of the world."""

    def __init__(self, shape: NodeShape, pool: str, at: float, ready_at: float) -> None:
        self.shape, self.pool, self.at, self.ready_at = shape, pool, at, ready_at
        self.cordoned: float | None = None
        self.idle: float | None = None
        self.underused: float | None = None


class World:
    def __init__(
        self, pools: tuple[Pool, ...], settings: AutoscalerSettings, *, fails: list[bool], refuses: list[bool]
    ) -> None:
        self.pools = {one.name: one for one in pools}
        self.settings = settings
        self.now = 1_000_000.0
        self.boxes: dict[str, Box] = {}
        self.work: dict[str, tuple[Work, float]] = {}  # with the time it came
        self.on: dict[str, tuple[str, str, float]] = {}  # pod -> node, work, since
        self.ended: dict[str, tuple[str, float]] = {}  # the last pod of each node that ended
        self.failures: dict[str, ProviderFailure] = {}
        self.fails, self.refuses = list(fails), list(refuses)
        self.count = 0
        self.last_event = self.now
        self.last_backoff = 0.0  # the end of one
        self.deleted: dict[str, float] = {}
        self.evicted: list[str] = []
        self.plans: list[ScalingPlan] = []

    def come(self, work: Work) -> None:
        self.work[work.name] = (work, self.now)
        self.last_event = self.now

    def snapshot(self) -> ClusterSnapshot:
        nodes, memory = [], []
        for name, box in sorted(self.boxes.items()):
            is_ready = self.now >= box.ready_at
            shape = msgspec.structs.replace(box.shape, is_unschedulable=box.cordoned is not None)
            nodes.append(
                SeenNode(
                    shape=shape, created=box.at, is_ready=is_ready, ready_since=box.ready_at if is_ready else box.at
                )
            )
            memory.append(
                NodeMemory(node=name, idle_since=box.idle, cordoned_at=box.cordoned, underused_since=box.underused)
            )
        pods, gangs = [], []
        for work, came in self.work.values():
            waiting = []
            for pod in work.pods:
                node = self.on.get(pod.name)
                kept = "" if work.is_service else "a training"
                if node is not None:
                    bound = msgspec.structs.replace(pod, node=node[0])
                    pods.append(SeenPod(pod=bound, created=came, kept=kept))
                else:
                    waiting.append(pod)
                    if work.nodes == 1:
                        pods.append(SeenPod(pod=pod, created=came))
            if waiting and work.nodes > 1:
                gangs.append(
                    Gang(name=f"default/{work.name}", pods=tuple(waiting), created=came, priority=work.priority)
                )
        failures = tuple(one for one in self.failures.values())
        return ClusterSnapshot(
            nodes=tuple(nodes),
            pods=tuple(pods),
            gangs=tuple(gangs),
            pools=tuple(self.pools.values()),
            memory=tuple(memory),
            failures=failures,
        )

    def step(self, seconds: float) -> ScalingPlan:
        """One loop: decide, act, check; then time passes and the scheduler works."""
        plan = decide(self.snapshot(), self.settings, self.now)
        self.plans.append(plan)
        for note in plan.nodes:
            self.boxes[note.node].idle = note.idle_since
            self.boxes[note.node].underused = note.underused_since
        for action in plan.actions:
            self.act(action)
        self.check_limits()
        self.now += seconds
        self.finish()
        self.schedule()
        return plan

    def act(self, action: ScalingAction) -> None:
        if action.kind == "grow":
            self.grow(action)
            return
        assert action.node is not None
        box = self.boxes[action.node]
        if action.kind == "cordon":
            box.cordoned = self.now
        elif action.kind == "uncordon":
            box.cordoned = None
        elif action.kind == "drain":
            assert box.cordoned is not None and box.cordoned < self.now
            self.drain(action.node)
        elif action.kind == "delete":
            self.delete(action.node)

    def grow(self, action: ScalingAction) -> None:
        pool = self.pools[action.pool or ""]
        for _ in range(action.count or 0):
            if self.refuses and self.refuses.pop():
                self.failures[pool.name] = ProviderFailure(pool=pool.name, kind="stockout", at=self.now)
                self.last_event = self.now
                return
            deleted = self.deleted.get(pool.name)
            window = self.settings.idle_s if self.last_backoff >= (deleted or 0.0) else 3600.0
            is_flap = deleted is not None and self.last_event < deleted and self.now - deleted < window
            assert not is_flap, f"{pool.name}: a machine was deleted at {deleted} and is bought again at {self.now}"
            self.count += 1
            name = f"{pool.name}-{self.count}"
            never = self.now + 10**9
            fails = bool(self.fails) and self.fails.pop()
            shape = template(pool, None, name)
            self.boxes[name] = Box(shape, pool.name, self.now, never if fails else self.now + pool.boot_s)

    def drain(self, node: str) -> None:
        for pod, (where, name, _) in list(self.on.items()):
            if where == node:
                assert self.work[name][0].is_service, f"{pod} is a training and was evicted"
                del self.on[pod]
                self.evicted.append(pod)

    def delete(self, node: str) -> None:
        here = [pod for pod, (where, _, _) in self.on.items() if where == node]
        assert not here, f"{node} was deleted with {here} on it"
        box = self.boxes.pop(node)
        if box.ready_at <= self.now:
            assert box.cordoned is not None and box.cordoned < self.now, "deleted without a cordon and a second look"
            self.deleted[box.pool] = self.now
        else:
            waited = self.now - box.at
            assert waited > patience(self.pools[box.pool], self.settings), "deleted while it boots"
            self.last_event = self.now  # a failed machine is replaced

    def check_limits(self) -> None:
        used = [0, 0, 0]
        for pool in self.pools.values():
            mine = [box for box in self.boxes.values() if box.pool == pool.name]
            assert len(mine) <= pool.max
            for number, each in enumerate(uses_of(pool)):
                used[number] += each * len(mine)
        limits = self.settings.limits
        for most, mine_used in zip((limits.cpus, limits.memory, limits.gpus), used):
            assert most is None or mine_used <= most

    def finish(self) -> None:
        for pod, (node, name, since) in list(self.on.items()):
            if self.now - since >= self.work[name][0].lasts:
                del self.on[pod]
                self.boxes[node].idle = None
                self.last_event = self.now
                if not any(one[1] == name for one in self.on.values()):
                    del self.work[name]
        for name, one in list(self.failures.items()):
            if self.now - one.at >= self.settings.backoff_s:
                del self.failures[name]
                self.last_backoff = self.now

    def schedule(self) -> None:
        """A scheduler that starts gangs as wholes, in the order of priority and age."""
        ready = [msgspec.structs.replace(box.shape, is_unschedulable=box.cordoned is not None)
                 for box in self.boxes.values() if self.now >= box.ready_at]  # fmt: skip
        bound = [
            msgspec.structs.replace(pod, node=self.on[pod.name][0])
            for work, _ in self.work.values()
            for pod in work.pods
            if pod.name in self.on
        ]
        fleet = Fleet(ready, bound)
        order = sorted(
            self.work.values(), key=lambda pair: (-pair[0].priority, pair[0].nodes == 1, pair[1], pair[0].name)
        )
        for work, _ in order:
            left = [pod for pod in work.pods if pod.name not in self.on]
            found = take(left, fleet, explain=False) if left else None
            if isinstance(found, Placement):
                for pod, node in zip(left, found.nodes):
                    self.on[pod.name] = (node, work.name, self.now)

    def running(self, work: str) -> bool:
        return any(name == work for _, name, _ in self.on.values())
