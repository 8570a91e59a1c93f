"""Services as users see them, on this machine and in clusters alike. Values only."""

from __future__ import annotations

from longboat.core.jobs import Value


class ServiceStatus(Value, frozen=True):
    """One service, observed at one moment. `longboat serve ls -o json` prints these fields."""

    name: str
    url: str
    engine: str
    run: str
    step: int | None
    version: int
    replicas: int
    ready: int
    phase: str  # starting, ready, updating, degraded, failed, stopping
    reason: str
    created: float
    canary: str | None = None  # RUN:STEP of the canary
    weight: int = 0
    follow: str | None = None  # which checkpoints replace the one that is served
    in_flight: int = 0
    answered: int = 0
    lost: int = 0
    user: str = ""
    members: tuple[dict[str, str | int], ...] = ()
