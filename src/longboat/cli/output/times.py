"""Times and durations between people and seconds."""

from __future__ import annotations

import time

from longboat.core import resources
from longboat.core.errors import UsageError


def parse_duration(text: str) -> float:
    """Seconds of `90`, `90s`, `10m`, `1h30m`."""
    try:
        return resources.parse_duration(text)
    except ValueError as error:
        raise UsageError(f"not a duration: {text!r}", hint=f"write {error}") from None


def parse_moment(text: str, now: float) -> float:
    """Seconds since the epoch of a duration before now, an ISO 8601 time (UTC without a zone) or such seconds."""
    if text.replace(".", "", 1).isdecimal() and float(text) >= 1e9:
        return float(text)
    if "-" in text[1:]:
        from datetime import datetime, timezone

        try:
            moment = datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else ""))
        except ValueError:
            raise UsageError(f"not a time: {text!r}", hint="write 10m, or 2025-01-31T12:00:00Z") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    return now - parse_duration(text)


def show_duration(seconds: float | None) -> str | None:
    """`0.4s`, `12s`, `3m20s`, `5h2m`, `4d1h`."""
    if seconds is None:
        return None
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for big, small, size in (("d", "h", 86400), ("h", "m", 3600), ("m", "s", 60)):
        if whole >= size:
            rest = whole % size // {"h": 3600, "m": 60, "s": 1}[small]
            return f"{whole // size}{big}{rest}{small}" if rest else f"{whole // size}{big}"
    return f"{whole}s"


def show_moment(moment: float | None) -> str | None:
    """ISO 8601, UTC, milliseconds."""
    if moment is None:
        return None
    millis = round(moment * 1000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(millis // 1000))
    return f"{stamp}.{millis % 1000:03d}Z"
