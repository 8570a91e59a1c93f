"""Sizes of elastic runs at the gate: which one a run gets, when it takes more, when it gives some back. Pure.

A run that waits gets the largest size that fits without delaying those before it. One that runs takes more only of what
nobody waits for, and goes down to its smallest size for a waiting run that comes before it in the order and could start
then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from longboat.core.jobs import Value
from longboat.core.words import counted
from longboat.fitting.backfill import Backfill, QueuedGang
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.pods import Pod
from longboat.fitting.packing import Placement, take


class ElasticPods(Value, frozen=True):
    """The pods of an elastic run at all its sizes."""

    role: str
    size: int  # the nodes of the role that it has, or waits for
    offered: tuple[int, ...]  # sizes that it may have, the smallest first
    pods: tuple[Pod, ...]  # at the largest, named after their nodes
    fits: bool = False  # its size was chosen for the room there was
    grows: bool = True

    def at(self, size: int) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if self._index(pod) < size)

    def between(self, size: int, larger: int) -> tuple[Pod, ...]:
        """What a larger size has besides."""
        return tuple(pod for pod in self.pods if size <= self._index(pod) < larger)

    @property
    def is_above_least(self) -> bool:
        return self.size > self.offered[0]

    def next_above(self, size: int) -> int | None:
        return next((each for each in self.offered if each > size), None)

    def _index(self, pod: Pod) -> int:
        """Of a pod of the elastic role; any other is there at every size."""
        role, _, index = pod.name.rpartition("/")[2].rpartition("-")
        return int(index) if role == self.role else -1


def largest(sizes: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """The largest size that fits, where what fits fits at every smaller size too; None: not even the first."""
    if not sizes or not fits(sizes[0]):
        return None
    if fits(sizes[-1]):
        return sizes[-1]
    low, high = 0, len(sizes) - 1  # the first fits, the last does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(sizes[middle]) else (low, middle)
    return sizes[low]


class RunningGang(Value, frozen=True):
    """An elastic run that is in, with all its pods."""

    gang: QueuedGang  # its name is the full one
    order: tuple[object, ...]  # its place among all runs
    elastic: ElasticPods


class BlockedGang(Value, frozen=True):
    """A run that waits, and that these nodes could hold."""

    gang: QueuedGang
    order: tuple[object, ...]


class WantedSize(Value, frozen=True):
    size: int
    reason: str


def wanted_sizes(
    running: Sequence[RunningGang], blocked: Sequence[BlockedGang], backfill: Backfill, fleet: Fleet
) -> dict[str, WantedSize]:
    """The sizes that running gangs are to have from their next checkpoints on, by the full names of their runs.

    `blocked` is in the order in which they are served: nodes are given back for the first alone.
    """
    wanted: dict[str, WantedSize] = {}
    if blocked:
        first = blocked[0]
        behind = [each for each in running if each.order > first.order and each.elastic.is_above_least]
        lowest = sorted(behind, key=lambda each: each.order, reverse=True)
        for each in _giving(lowest, first.gang.pods, fleet):
            least = each.elastic.offered[0]
            text = f"goes from {each.elastic.size} to {counted(least, 'node')} for {_near(first.gang, each.gang)}"
            wanted[each.gang.name] = WantedSize(size=least, reason=text)
    for each in running:
        size = None if each.gang.name in wanted else _room_to_grow(each, backfill, [other.gang for other in blocked])
        if size is not None:
            text = f"grows from {each.elastic.size} to {counted(size, 'node')}"
            wanted[each.gang.name] = WantedSize(size=size, reason=text)
    return wanted


def _near(other: QueuedGang, own: QueuedGang) -> str:
    """Runs of the same namespace by name; others without, since the reader may have no rights there."""
    namespace, _, name = other.name.partition("/")
    return name if own.name.startswith(f"{namespace}/") else "a run of another namespace"


def _room_to_grow(run: RunningGang, backfill: Backfill, waiting: Sequence[QueuedGang]) -> int | None:
    """The largest size for which there is room that nobody waits for; taken in the fleet. None: for none that is
    larger."""
    larger = [size for size in run.elastic.offered if size > run.elastic.size]
    if not run.elastic.grows or not larger:
        return None

    def more(size: int) -> QueuedGang:
        return msgspec.structs.replace(run.gang, pods=run.elastic.between(run.elastic.size, size))

    if backfill.competes(more(larger[0]), waiting):
        return None
    size = largest(larger, lambda size: backfill.could_start(more(size)))
    if size is not None:
        backfill.start(more(size))
    return size


def _giving(lowest: Sequence[RunningGang], waiting: Sequence[Pod], fleet: Fleet) -> list[RunningGang]:
    """Of these, in their order, as many as must give nodes back so that the waiting pods have a place; none where all
    would not be enough."""
    trial = fleet.copy()
    giving: list[RunningGang] = []
    for each in lowest:
        for state in trial.states.values():
            for pod in [pod for pod in state.pods.values() if f"{pod.namespace}/{pod.run}" == each.gang.name]:
                trial.remove(pod)
        if not isinstance(take(each.elastic.at(each.elastic.offered[0]), trial, explain=False), Placement):
            return []
        giving.append(each)
        if isinstance(take(waiting, trial, explain=False), Placement):
            return giving
    return []
