"""What ranks and GPUs use now, as launchers tell it in heartbeats. Pure.

In a cluster it comes out of somebody else's pod: what is not in order is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from longboat.core.runs import RankUsage, RunStatus
from longboat.metrics.values import GpuUse

MOST_NUMBER = 1 << 62  # a number that can be computed with and shown
MOST_GPUS, MOST_NAMES, MOST_TEXT = 64, 100, 120  # of one launcher's answer, which is anybody's word


def usage_of(raw: object) -> RankUsage:
    """A rank's usage, from its part of a heartbeat."""
    if not isinstance(raw, dict):
        return RankUsage()
    numbers: dict[str, Any] = {name: raw[name] for name in _NUMBERS if _is_sane(raw.get(name))}
    bad = raw.get("not_finite")
    steps = bad if isinstance(bad, dict) else {}
    not_finite = {str(name)[:MOST_TEXT]: int(step) for name, step in list(steps.items())[:MOST_NAMES] if _is_sane(step)}
    return RankUsage(**numbers, not_finite=not_finite)


_NUMBERS = tuple(name for name in RankUsage.__struct_fields__ if name != "not_finite")


def gpus_of(raw: object, node: str) -> tuple[GpuUse, ...]:
    """A node's GPUs, from its heartbeat."""
    rows = [row for row in raw if isinstance(row, dict)] if isinstance(raw, list) else []
    return tuple(_gpu(row, node) for row in rows[:MOST_GPUS])


def _gpu(row: dict[str, Any], node: str) -> GpuUse:
    numbers: dict[str, Any] = {
        field: float(row[name]) for name, field in _GPU_FIELDS.items() if _is_sane(row.get(name))
    }
    return GpuUse(
        node=node,
        number=str(row.get("number", ""))[:MOST_TEXT],
        uuid=str(row.get("uuid", ""))[:MOST_TEXT],
        model=str(row.get("name", ""))[:MOST_TEXT],
        ranks=tuple(rank for rank in _list(row.get("ranks"))[:MOST_GPUS] if isinstance(rank, int)),
        **numbers,
    )


_GPU_FIELDS = {
    "gpu": "use",
    "gpu_memory": "memory",
    "gpu_memory_total": "memory_total",
    "gpu_power": "power",
    "gpu_temperature": "temperature",
    "gpu_throttle": "throttle",
}
"""Columns of the launcher's samples -> fields."""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_sane(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST_NUMBER


def total_usage(run: RunStatus) -> RankUsage:
    """What all ranks of a run use together: sums, and means of shares and degrees. Pure."""
    alive = [rank.usage for rank in run.ranks if rank.alive]
    return RankUsage(
        cpu=_sum(usage.cpu for usage in alive),
        memory=_sum(usage.memory for usage in alive),
        gpu=_mean(usage.gpu for usage in alive),
        gpu_memory=_sum(usage.gpu_memory for usage in alive),
        gpu_power=_sum(usage.gpu_power for usage in alive),
        gpu_temperature=max((usage.gpu_temperature for usage in alive if usage.gpu_temperature), default=None),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
