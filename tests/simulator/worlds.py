"""Small traces and pools for the tests of the simulator."""

from __future__ import annotations

from longboat.autoscaler.model.snapshot import POOL_LABEL, AutoscalerSettings, Pool
from longboat.fitting.model.nodes import NodeShape
from longboat.simulator.comparing import simulate
from longboat.simulator.results import PolicyOutcome
from longboat.simulator.traces import Trace, TraceJob, trace_of
from longboat.simulator.world import USUAL, Conditions

GPU = "nvidia.com/gpu"


def pool(name: str = "a100", gpus: int = 8, **more: object) -> Pool:
    has = (("cpu", 96_000), ("memory", 1 << 40), (GPU, gpus), ("pods", 110))
    shape = NodeShape(name=name, labels={POOL_LABEL: name}, allocatable=has)
    return Pool(name=name, machine=shape, **{"max": 4, "price": 8.0, **more})  # type: ignore[arg-type]


def trace(*jobs: tuple[float, float, int]) -> Trace:
    """(submitted, duration, GPUs) of each job."""
    made = [TraceJob(name=f"j{n}", submitted=s, duration=d, gpus=g) for n, (s, d, g) in enumerate(jobs)]
    return trace_of("small", made)


def run(
    name: str, jobs: Trace, *pools: Pool, conditions: Conditions = USUAL, settings: AutoscalerSettings | None = None
) -> PolicyOutcome:
    return simulate(jobs, pools or (pool(),), settings or AutoscalerSettings(), name, conditions)


def hours(gpu_seconds: float) -> float:
    return round(gpu_seconds / 3600, 3)
