"""Values as plain data, for `-o json` and the dashboard: every field there, times as ISO 8601, attempts from 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from longboat.core.runs import Attempt, LogLine, PhaseSpan, RunStatus
from longboat.core.times import format_time

if TYPE_CHECKING:
    from longboat.storage.inventory.entries import CheckpointEntry

MOMENTS = ("created", "started", "ended", "time")
COUNTERS: dict[type, str] = {RunStatus: "attempt", Attempt: "number", LogLine: "attempt", PhaseSpan: "attempt"}
"""Fields that number attempts: people count them from 1, in tables, sentences and data alike."""


def show_moment(moment: float | None) -> str | None:
    """Format as ISO 8601, UTC, milliseconds."""
    return None if moment is None else format_time(moment, digits=3)


def plain(value: object) -> Any:
    """Convert to mappings, lists, strings, numbers and None; no field is left out."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
        shown: dict[str, Any] = {
            name: show_moment(item) if name in MOMENTS else plain(item) for name, item in fields.items()
        }
        if counter := COUNTERS.get(type(value)):
            shown[counter] += 1
        return shown
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value


def checkpoint_record(entry: CheckpointEntry) -> dict[str, Any]:
    """The object of one checkpoint in `checkpoint ls -o json`."""
    return {**plain(entry), "attempt": None if entry.attempt is None else entry.attempt + 1}


def run_record(run: RunStatus) -> dict[str, Any]:
    """The object of one run in `ps -o json`."""
    record: dict[str, Any] = plain(run)
    for field in ("ranks", "attempts", "spec", "timeline"):
        record.pop(field)
    return record
