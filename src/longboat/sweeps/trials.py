"""Trials of a sweep as they are stored, and how a sweep has ended. Values only."""

from __future__ import annotations

import math
from typing import Literal

from longboat.core.errors import RUN_LOST_EXIT, RUN_STOPPED_EXIT
from longboat.core.guards.formats import Stored
from longboat.core.jobs import Metric, Scalar, Value

TrialPhase = Literal["pending", "starting", "running", "recovering", "succeeded", "failed", "stopped", "pruned"]
FINAL: tuple[TrialPhase, ...] = ("succeeded", "failed", "stopped", "pruned")
"""`pruned`: stopped early, as planned, because others were better."""
SweepPhase = Literal["running", "succeeded", "failed", "stopped"]


class SweepTrial(Value, frozen=True):
    """One point that is tried. It is stored before its run is submitted, so that no other is taken in its place."""

    number: int  # from 1
    params: dict[str, Scalar]
    run: str  # the name of its run
    phase: TrialPhase = "pending"
    is_submitted: bool = False  # the engine has answered for its run
    is_pruned: bool = False  # asked to stop early
    metrics: dict[str, float] = {}  # the last that its run reported
    step: int | None = None
    rungs: dict[int, float] = {}  # asha: the metric when a rung was reached
    exit_code: int | None = None
    attempts: int = 0  # how often its run was started, retries included
    reason: str = ""
    created: float | None = None
    started: float | None = None
    ended: float | None = None

    @property
    def is_final(self) -> bool:
        return self.phase in FINAL


def loss_of(trial: SweepTrial, metric: Metric) -> float | None:
    """The metric so that less is better."""
    value = trial.metrics.get(metric.name)
    if value is None or not math.isfinite(value):
        return None
    return value if metric.goal == "min" else -value


class SweepState(Stored, frozen=True):
    """State of a sweep. Only the process that holds its driver's lock writes it."""

    trials: tuple[SweepTrial, ...] = ()
    phase: SweepPhase = "running"
    reason: str = ""
    metric: Metric | None = None  # what trials are compared by, once it is known
    ended: float | None = None

    @property
    def is_final(self) -> bool:
        return self.phase != "running"


def exit_code(state: SweepState) -> int:
    """0 where the sweep ended as planned, also with failed trials before one that reached the target; else that of
    the first trial that failed, or of a stop."""
    if state.phase == "succeeded":
        return 0
    failed = next((trial for trial in state.trials if trial.phase == "failed"), None)
    if failed is not None:
        return failed.exit_code or RUN_LOST_EXIT
    return {"stopped": RUN_STOPPED_EXIT, "failed": RUN_LOST_EXIT}.get(state.phase, 0)
