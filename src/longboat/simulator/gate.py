"""Longboat's gate in the simulated world: the pure decision of the live gate (`fitting.backfill`) on a fleet that is
kept in step with the machines.

Jobs are judged in the order in which they came. Nobody knows how long one will run: jobs of a trace have no timeout.
"""

from __future__ import annotations

from collections.abc import Iterable

from longboat.fitting.backfill import MOST_RESERVED, Backfill, QueuedGang, UpcomingNode
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import NodeShape
from longboat.fitting.model.pods import Pod, PodShape
from longboat.simulator.entities import SimulatedJob, SimulatedMachine, SimulatedPod, pods_of


class SimulatedGate:
    def __init__(self, resource: str, largest: int) -> None:
        self._resource, self._largest = resource, largest
        self._fleet = Fleet(())
        self._shapes: dict[int, PodShape] = {}

    def open(self, machine: SimulatedMachine) -> None:
        """The machine takes pods, with those that are on it."""
        self._fleet.add_node(self._node(machine))
        for task in machine.tasks:
            self.bind(task, machine)

    def close(self, machine: SimulatedMachine) -> None:
        if machine.name in self._fleet.states:
            self._fleet.remove_node(machine.name)

    def bind(self, task: SimulatedPod, machine: SimulatedMachine) -> None:
        if machine.name in self._fleet.states:
            self._fleet.add(self._pod(task), self._fleet.states[machine.name])

    def unbind(self, task: SimulatedPod) -> None:
        pod = self._pod(task)
        if self._fleet.where(pod) is not None:
            self._fleet.remove(pod)

    def admit(
        self, waiting: Iterable[SimulatedJob], coming: Iterable[SimulatedMachine], now: float
    ) -> list[tuple[SimulatedJob, int]]:
        """Jobs of the queue that start now, and with how many GPUs."""
        upcoming = [UpcomingNode(shape=self._node(machine), ready=machine.ready_at) for machine in coming]
        decision = Backfill(self._fleet, now, upcoming=upcoming)
        jobs: list[tuple[SimulatedJob, int]] = []
        hopeless: set[tuple[int, ...]] = set()
        count = 0
        for job in waiting:
            sizes = tuple(task.gpus for task in job.tasks)
            # Alike jobs fare alike; only the first who wait have reservations.
            if sizes in hopeless and count >= MOST_RESERVED:
                continue
            gpus = next((size for size in job.sizes[:0:-1] if decision.could_start(self._gang(job, size, now))), None)
            if decision.judge(self._gang(job, gpus or job.gpus, now)).starts:
                jobs.append((job, gpus or job.gpus))
            else:
                hopeless.add(sizes)
                count += 1
        decision.undo()
        return jobs

    def _gang(self, job: SimulatedJob, gpus: int, now: float) -> QueuedGang:
        tasks = job.tasks if gpus == job.gpus else pods_of(job, gpus, self._largest)
        return QueuedGang(name=job.name, pods=tuple(map(self._pod, tasks)), waited_s=now - job.created)

    def _node(self, machine: SimulatedMachine) -> NodeShape:
        return NodeShape(name=machine.name, allocatable=((self._resource, machine.gpus),))

    def _pod(self, task: SimulatedPod) -> Pod:
        shape = self._shapes.get(task.gpus)
        if shape is None:
            shape = self._shapes[task.gpus] = PodShape(requests=((self._resource, task.gpus),))
        return Pod(name=task.name, shape=shape)
