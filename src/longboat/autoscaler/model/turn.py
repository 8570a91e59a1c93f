"""One turn of the loop, as a value: snapshot, plan, results of its actions; and the listeners that are told of it."""

from __future__ import annotations

from typing import Protocol

from longboat.autoscaler.model.plan import ScalingAction, ScalingPlan
from longboat.autoscaler.model.snapshot import ClusterSnapshot
from longboat.core.jobs import Value


class ActionResult(Value, frozen=True):
    """An action and what became of it. An empty `trouble`: it was done."""

    action: ScalingAction
    trouble: str = ""


class LoopTurn(Value, frozen=True):
    """What one turn saw, decided and did, for whoever shows it."""

    now: float
    snapshot: ClusterSnapshot
    plan: ScalingPlan
    results: tuple[ActionResult, ...] = ()
    decide_s: float = 0.0
    total_s: float = 0.0
    warnings: tuple[str, ...] = ()  # what a person should look at


class TurnListener(Protocol):
    """Told of every turn and of every one that failed; must not raise."""

    def turned(self, turn: LoopTurn) -> None: ...

    def failed(self, message: str) -> None: ...
