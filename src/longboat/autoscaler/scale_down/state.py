"""State of one scale-down: notes and actions so far, and how many removals and drains are left. Pure."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

from longboat.autoscaler.model.machines import Machine
from longboat.autoscaler.model.plan import ActionKind, NodeNote, NodeState, ScalingAction
from longboat.autoscaler.model.snapshot import AutoscalerSettings, ClusterSnapshot, SeenPod
from longboat.autoscaler.scale_down.disruptions import DisruptionsAllowed
from longboat.autoscaler.scale_up.fleets import Fleets
from longboat.autoscaler.scale_up.headroom import ScaleUp
from longboat.autoscaler.scale_up.relocation import Move, move
from longboat.autoscaler.scale_up.upcoming_demand import has_work
from longboat.fitting.model.pods import Pod


class ScaleDownState:
    def __init__(
        self,
        snapshot: ClusterSnapshot,
        fleets: Fleets,
        growth: ScaleUp,
        pods: Mapping[str, list[SeenPod]],
        settings: AutoscalerSettings,
        now: float,
    ) -> None:
        self.fleets, self.growth, self.settings, self.now = fleets, growth, settings, now
        self.pods = pods
        self.allowances = DisruptionsAllowed(snapshot.budgets)
        self.actions: list[ScalingAction] = []
        self.notes: dict[str, NodeNote] = {}
        self.removals = settings.max_shrink_per_loop
        self.drains = settings.max_drains
        self.machines = list(fleets.machines.values())
        self.staying = self._staying()
        self.reserved: dict[str, str] = {}  # node -> who is going to be moved there, so that it does not go as idle
        self.arriving: dict[str, list[Pod]] = {}  # node -> pods that will be moved there

    def _staying(self) -> dict[str, int]:
        """Machines of each pool that are there and not on their way out."""
        staying: dict[str, int] = {}
        for machine in self.machines:
            if machine.pool is not None and machine.condition in ("ready", "booting"):
                is_out = machine.cordon == "ours" and machine.name not in self.growth.uncordons
                staying[machine.pool.name] = staying.get(machine.pool.name, 0) + (not is_out)
        return staying

    @functools.cached_property
    def booting(self) -> dict[str, int]:
        """Machines of each pool that have not become ready."""
        booting = (machine for machine in self.machines if machine.condition == "booting")
        return Counter(machine.pool.name for machine in booting if machine.pool is not None)

    def idle_count(self, pool: str) -> int:
        """Ready machines of the pool that are idle and in no demand; booting ones do not count, they may yet fail.

        One that pods are about to be moved to is not idle for long.
        """
        count = 0
        for machine in self.machines:
            if machine.pool is not None and machine.pool.name == pool and machine.is_usable:
                if machine.condition == "ready" and machine.name not in self.reserved:
                    count += not has_work(self.fleets.ready.states[machine.name])
        return count

    def relocate(self, moves: Sequence[Move]) -> None:
        """Reserve places for relocated pods: their target node is drained only if they fit elsewhere too."""
        moved = {(pod.namespace, pod.name) for pod, _ in moves}
        for node, pods in list(self.arriving.items()):
            self.arriving[node] = [pod for pod in pods if (pod.namespace, pod.name) not in moved]
        move(moves, self.fleets.ready)
        for pod, node in moves:
            self.arriving.setdefault(node, []).append(pod)

    def note(
        self, machine: Machine, state: NodeState, reason: str, *, idle: float | None = None, under: float | None = None
    ) -> None:
        pool = machine.node.pool if machine.node is not None else None
        self.notes[machine.name] = NodeNote(
            node=machine.name, state=state, reason=reason, pool=pool, idle_since=idle, underused_since=under
        )

    def act(self, kind: ActionKind, machine: Machine, reason: str) -> bool:
        """Add an action if the budget of this loop allows it; lifting a cordon is always allowed."""
        if kind != "uncordon":
            if self.removals <= 0:
                return False
            self.removals -= 1
        self.actions.append(
            ScalingAction(
                kind=kind,
                node=machine.name if machine.node is not None else None,
                machine=machine.node.machine if machine.node is not None else machine.name,
                pool=machine.pool.name if machine.pool is not None else None,
                reason=reason,
            )
        )
        return True
