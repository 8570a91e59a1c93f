"""Durations and times as people write and read them, to and from seconds."""

from __future__ import annotations

from longboat.core import resources
from longboat.core.errors import UsageError
from longboat.core.times import parse_iso_time, show_age
from longboat.sdk.records import show_moment as show_moment


def parse_duration(text: str) -> float:
    """Parse `90`, `90s`, `10m`, `1h30m` into seconds."""
    try:
        return resources.parse_duration(text)
    except ValueError as error:
        raise UsageError(f"not a duration: {text!r}", hint=f"write {error}") from None


def parse_moment(text: str, now: float) -> float:
    """Parse a duration before now, an ISO 8601 time (default UTC) or epoch seconds into epoch seconds."""
    if text.replace(".", "", 1).isdecimal() and float(text) >= 1e9:
        return float(text)
    if "-" in text[1:]:
        moment = parse_iso_time(text)
        if moment is None:
            raise UsageError(f"not a time: {text!r}", hint="write 10m, or 2025-01-31T12:00:00Z")
        return moment
    return now - parse_duration(text)


def show_duration(seconds: float | None) -> str | None:
    """Format seconds: `0.4s`, `12s`, `3m20s`, `5h2m`, `4d1h`."""
    if seconds is None:
        return None
    return f"{max(seconds, 0.0):.1f}s" if seconds < 9.95 else show_age(seconds)
