"""What Python users import: `job`, `run`, `runs`, `get`, `sweep`, `engine`, and the values these give.

Names are loaded when they are first used, so that a program which needs one of them does not pay for all. May import
`bundles.source`, `engines`, `kubeapi`, `metrics`, `multicluster`, `specs`, `serving`, `storage.inventory`, `sweeps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longboat.core.errors import JobError, LongboatError, NotFound, Refused, WaitTimeout
    from longboat.core.jobs import Job
    from longboat.core.runs import Explanation, LogLine, RunStatus
    from longboat.engines.engine import Engine
    from longboat.sdk.engines import engine
    from longboat.sdk.handles import Run, get, runs
    from longboat.sdk.submit import job, run
    from longboat.sdk.sweep_handles import SweepHandle, sweep

_HOMES = {
    "longboat.core.errors": ("JobError", "LongboatError", "NotFound", "Refused", "WaitTimeout"),
    "longboat.core.jobs": ("Job",),
    "longboat.core.runs": ("Explanation", "LogLine", "RunStatus"),
    "longboat.engines.engine": ("Engine",),
    "longboat.sdk.engines": ("engine",),
    "longboat.sdk.handles": ("Run", "get", "runs"),
    "longboat.sdk.submit": ("job", "run"),
    "longboat.sdk.sweep_handles": ("SweepHandle", "sweep"),
}

__all__ = [
    "Engine",
    "Explanation",
    "Job",
    "JobError",
    "LogLine",
    "LongboatError",
    "NotFound",
    "Refused",
    "Run",
    "RunStatus",
    "SweepHandle",
    "WaitTimeout",
    "engine",
    "get",
    "job",
    "run",
    "runs",
    "sweep",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value = getattr(import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'longboat.sdk' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
