"""The metrics of a run as engines give them: series of the trainer's numbers, and samples of ranks and nodes. Values.

`longboat metrics RUN -o json` prints these fields; they are stable.
"""

from __future__ import annotations

from collections.abc import Mapping

from longboat.core.jobs import Value
from longboat.core.runs import RunStatus

StepPoint = tuple[int, float, float]
"""Step, time in seconds since the epoch, value. A value may be NaN or infinite; JSON has null for these."""
Sample = tuple[float, float]
"""Time in seconds since the epoch, value."""


class GpuUse(Value, frozen=True):
    """One GPU and what it does."""

    node: str  # of the run, or of the cluster where no run has it
    number: str = ""
    uuid: str = ""
    model: str = ""
    run: str = ""  # who has it; empty: nobody
    user: str = ""
    ranks: tuple[int, ...] = ()
    use: float | None = None  # percent
    memory: float | None = None  # bytes
    memory_total: float | None = None
    power: float | None = None  # watts
    temperature: float | None = None  # degrees Celsius
    throttle: float | None = None


class Software(Value, frozen=True):
    """What a run's latest attempt was seen to run in; what is not known is empty."""

    python: str = ""  # the program that the first node's ranks run: `python3.11`
    packages: dict[str, str] = {}  # that it finds, with their versions
    driver: str = ""  # of the GPUs
    gpus: dict[str, int] = {}  # by type, how many on all nodes


NOTHING_SEEN = Software()


class RunMetrics(Value, frozen=True):
    run: str
    series: dict[str, tuple[StepPoint, ...]] = {}  # by metric, in the order of steps
    system: dict[str, dict[str, tuple[Sample, ...]]] = {}  # by rank, then by measure: cpu, memory, gpu, ...
    nodes: dict[str, dict[str, tuple[Sample, ...]]] = {}  # by node, for what ranks of a node share
    step_times: dict[str, tuple[Sample, ...]] = {}  # by rank: when, and seconds per step since the report before
    software: Software = Software()

    def last(self, metric: str) -> float | None:
        """The latest value of a metric; None where the run has not reported it."""
        points = self.series.get(metric)
        return points[-1][2] if points else None


class Activity(Value, frozen=True):
    """What runs now, and on which GPUs. `longboat top -o json` prints these fields."""

    runs: tuple[RunStatus, ...] = ()  # that have not ended, newest first; those that run with their ranks
    gpus: tuple[GpuUse, ...] = ()


def last_points(
    run: str, step: int | None, metrics: Mapping[str, float], at: float, software: Software = NOTHING_SEEN
) -> RunMetrics:
    """The last value of each metric, where nothing more is left of a run. Pure."""
    last = metrics if step is not None else {}
    return RunMetrics(run=run, series={name: ((step or 0, at, last[name]),) for name in last}, software=software)
