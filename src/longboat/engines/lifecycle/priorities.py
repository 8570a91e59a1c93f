"""The priority of a run, while it still matters. Pure."""

from __future__ import annotations

from longboat.core.errors import UsageError
from longboat.core.runs import RunStatus

LOWEST, HIGHEST = -1_000_000, 1_000_000
"""As in job files."""
_ENDED = {"succeeded": "has succeeded", "failed": "has failed", "stopped": "was stopped"}


def check_waiting(run: RunStatus, priority: int) -> None:
    """Raises UsageError for a number that no job may have, and for a run that has started or ended."""
    if not LOWEST <= priority <= HIGHEST:
        raise UsageError(f"{priority} is not a priority", hint=f"a whole number from {LOWEST} to {HIGHEST}")
    if run.phase not in ("pending", "recovering"):
        raise UsageError(
            f"{run.name} does not wait: it {_ENDED.get(run.phase, f'is {run.phase}')}",
            hint="the priority of a run matters until it has started",
        )
