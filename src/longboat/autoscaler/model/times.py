"""Times between Kubernetes' text and seconds, and times for people. Pure."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from typing import Any

import msgspec

from longboat.core.resources import format_duration, parse_duration


def seconds_of(text: Any) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def has_zone(text: str) -> bool:
    """Whether a time says where on earth it is."""
    return re.search(r"([zZ]|[+-][0-9]{2}:?[0-9]{2})$", text) is not None


def duration_of(text: str) -> float | None:
    """Seconds of `4h` or `1h30m`; None for anything else."""
    try:
        return parse_duration(text)
    except ValueError:
        return None


def text_of(moment: float) -> str:
    """RFC 3339, in UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def show(seconds: float) -> str:
    """For people: two units at most."""
    whole = max(round(seconds), 0)
    for size, step in ((86400, 3600), (3600, 60)):
        if whole >= size:
            whole -= whole % step
            break
    return format_duration(float(whole))
