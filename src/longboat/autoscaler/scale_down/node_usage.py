"""Node utilization: whether work runs on a node, since when none does, what must stay, how full it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from longboat.autoscaler.model.machines import Machine
from longboat.autoscaler.model.snapshot import AutoscalerSettings, SeenPod, kept_at
from longboat.fitting.model.quantities import CPU, MEMORY, is_gpu


class NodeTenants:
    """One node and its pods. DaemonSets, static and finished pods do not count; expendable ones hold nothing up."""

    def __init__(self, machine: Machine, pods: Sequence[SeenPod], settings: AutoscalerSettings, now: float) -> None:
        self.machine, self.now = machine, now
        least = settings.expendable_below
        there = [seen for seen in pods if seen.daemon is None and not seen.pod.is_finished]
        self.work = [seen for seen in there if seen.pod.priority >= least]
        self.expendable = [seen_pod for seen_pod in there if seen_pod.pod.priority < least]
        self._ends = [pod.ended for pod in pods if pod.ended is not None and pod.daemon is None]

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def is_idle(self) -> bool:
        return not self.work

    @property
    def last_end(self) -> float | None:
        return max(self._ends, default=None)

    @property
    def is_leaving(self) -> bool:
        """Whether all that is left is on its way out."""
        return all(pod.pod.is_terminating for pod in (*self.work, *self.expendable))

    def idle_since(self) -> float | None:
        """When it became idle, as far as that is known."""
        memory = self.machine.memory
        return _latest(memory.idle_since if memory else None, self.last_end, self.now)

    def underused_since(self) -> float | None:
        memory = self.machine.memory
        known = memory.underused_since if memory else None
        return None if known is None else _latest(known, self.last_end, self.now)

    def kept(self) -> str:
        """Which annotation forbids the removal of the node now."""
        node = self.machine.node
        return kept_at(node.kept, node.kept_until, self.now) if node is not None else ""

    def unmovable(self) -> str:
        """The first pod that must not be moved, with the reason; empty: all may."""
        return next((f"pod {pod.name} stays: {kept}" for pod in self.work if (kept := pod.kept_now(self.now))), "")

    def utilization(self) -> float:
        """Share of its GPUs in use; without GPUs, of CPU or memory, whichever is higher."""
        allocatable = self.machine.shape.allocatable
        own = self.machine.pool.gpu_resource if self.machine.pool is not None else ""
        gpus = [name for name, count in allocatable if count and (name == own or is_gpu(name))]
        names = gpus or [CPU, MEMORY]
        asked = dict.fromkeys(names, 0)
        for pod in self.work:
            for name, count in pod.pod.shape.requests:
                if name in asked:
                    asked[name] += count
        has = dict(allocatable)
        return max((asked[name] / has[name] for name in names if has.get(name)), default=0.0)


def _latest(known: float | None, ended: float | None, now: float) -> float | None:
    """A pod that ended later than what was written down shows that the node was used since. Clocks may differ."""
    moments = [moment for moment in (known, ended) if moment is not None]
    return min(max(moments), now) if moments else None
