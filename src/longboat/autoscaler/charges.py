"""What a running autoscaler is in charge of, and at which pace it works. Values only."""

from __future__ import annotations

from longboat.autoscaler.snapshot import Pool, Settings
from longboat.core.jobs import Value

INTERVAL_S = 10.0
LEAST_S = 1.0
SETTLE_S = 2.0
"""Between cordon and deletion: a scheduler that had not seen the cordon may still bind a pod."""


class Pace(Value, frozen=True):
    interval_s: float = INTERVAL_S  # looked at so often although nothing changes
    least_s: float = LEAST_S  # between two turns, however much changes
    settle_s: float = SETTLE_S  # between cordon and deletion


class Charge(Value, frozen=True):
    pools: tuple[Pool, ...]
    settings: Settings = Settings()
    home: str = "default"  # where the memory is kept
    pace: Pace = Pace()
    is_dry: bool = False
