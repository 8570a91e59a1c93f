"""Counts what happens while a trace is replayed: GPU-seconds, waits, evictions, flaps, points of the picture."""

from __future__ import annotations

from collections import deque

from longboat.simulator.results import GpuPoint, PolicyFigures, percentile

FLAP_S = 600.0  # a machine bought within ten minutes of giving one back was given back too early
HOUR = 3600.0


class PolicyMetrics:
    def __init__(self) -> None:
        self.provisioned = self.cost = 0.0  # GPU-seconds; price x seconds
        self.requested = self.held_partial = self.lost = 0.0
        self.waits: list[float] = []
        self.gang_waits: list[float] = []
        self.turnarounds = 0.0
        self.evictions = self.flaps = self.finished = 0
        self.decide_cpu_s = 0.0
        self.points: list[GpuPoint] = []
        self.demand = self.running = self.capacity = 0
        self._removed: dict[str, deque[float]] = {}

    def started(self, waited: float, *, is_gang: bool) -> None:
        self.waits.append(waited)
        if is_gang:
            self.gang_waits.append(waited)

    def ended(self, turnaround_s: float) -> None:
        self.finished += 1
        self.turnarounds += turnaround_s

    def ordered(self, pool: str, now: float) -> None:
        """Count an ordered machine; a flap if one of the same pool was removed just before."""
        removed = self._removed.get(pool)
        while removed and removed[0] < now - FLAP_S:
            removed.popleft()
        if removed:
            removed.popleft()
            self.flaps += 1

    def removed(self, pool: str, gpus: int, price: float, lasted: float, now: float) -> None:
        self.charge(gpus, price, lasted)
        self._removed.setdefault(pool, deque()).append(now)

    def charge(self, gpus: int, price: float, lasted: float) -> None:
        self.provisioned += gpus * lasted
        self.cost += price * lasted / HOUR

    def point(self, now: float) -> None:
        last = self.points[-1] if self.points else None
        gpu_point = GpuPoint(moment=now, demand=self.demand, running=self.running, capacity=self.capacity)
        if last is not None and last.moment == now:
            self.points[-1] = gpu_point
        elif last is None or (last.demand, last.running, last.capacity) != (self.demand, self.running, self.capacity):
            self.points.append(gpu_point)

    def figures(self) -> PolicyFigures:
        return PolicyFigures(
            gpu_hours_provisioned=round(self.provisioned / HOUR, 3),
            gpu_hours_requested=round(self.requested / HOUR, 3),
            gpu_hours_held_by_partial_gangs=round(self.held_partial / HOUR, 3),
            gpu_hours_lost=round(self.lost / HOUR, 3),
            cost=round(self.cost, 2),
            wait_p50_s=_short(percentile(self.waits, 0.5)),
            wait_p99_s=_short(percentile(self.waits, 0.99)),
            gang_wait_p99_s=_short(percentile(self.gang_waits, 0.99)),
            turnaround_mean_s=_short(self.turnarounds / self.finished if self.finished else None),
            training_evictions=self.evictions,
            evictions=self.evictions,
            flaps=self.flaps,
            decide_cpu_s=round(self.decide_cpu_s, 3),
            jobs_finished=self.finished,
        )


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
