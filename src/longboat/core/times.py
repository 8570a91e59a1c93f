"""Timestamps between text and seconds since the epoch, and ages for people. Pure: it looks at no clock.

Durations as they are written (`1h30m`) are in `resources`; the launcher and what it carries print and read their own.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timezone

import msgspec

from longboat.core.guards.decoding import convert
from longboat.core.resources import format_duration


def parse_time(text: object) -> float | None:
    """Seconds of an RFC 3339 time as programs write it, with or without a fraction; UTC by default. None: invalid."""
    if not isinstance(text, str):
        return None
    try:
        return _seconds(convert(text, datetime))
    except msgspec.ValidationError:
        return None


def parse_iso_time(text: str) -> float | None:
    """Seconds of a time as people write it: a day, hours and minutes are enough; UTC by default. None: invalid."""
    try:
        # Before Python 3.11 no `Z` is understood.
        return _seconds(datetime.fromisoformat(text.replace("Z", "+00:00")))
    except ValueError:
        return None


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def format_time(moment: float, digits: int = 0) -> str:
    """RFC 3339 in UTC: the second it lies in, or rounded to so many digits of a second."""
    parts = round(moment * 10**digits) if digits else math.floor(moment)
    second, fraction = divmod(parts, 10**digits)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
    return f"{text}.{fraction:0{digits}d}Z" if digits else f"{text}Z"


def show_age(seconds: float) -> str:
    """`12s`, `3m20s`, `5h2m`, `4d1h`: two units at most."""
    whole = max(round(seconds), 0)
    for size, step in ((86400, 3600), (3600, 60)):
        if whole >= size:
            whole -= whole % step
            break
    return format_duration(float(whole))
