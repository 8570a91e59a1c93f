"""Quantities, durations, CPU and GPU strings: parsed and formatted. Pure; every format parses back to the same value.

A text that is not understood raises ValueError; its message is what is allowed, fit to follow "expected".
"""

from __future__ import annotations

import re

from longboat.core.jobs import Gpus

MAX_BYTES = 2**50  # 1 PiB: no machine has as much, and sums stay far below 2**63
MAX_DURATION_S = 366 * 86400.0  # a year: longer is a mistake of the unit
MAX_CPUS = 4096  # of one node; no machine has more
MAX_GPUS = 1024  # of one node; no machine has nearly as many

QUANTITY = "a size such as 16Gi, 16GB, 512M or a number of bytes"
DURATION = "a duration such as 90, 90s, 15m, 2h, 1d or 1h30m"
CPUS = "a number of CPUs such as 0.5, 2 or 500m"
GPUS = "a count (2), a type (H100), or type:count (H100:8)"

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?\s?([KMGTPkmgtp]([Ii])?[Bb]?|[Bb])?$"
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|[smhdSMHD]))+$|^[0-9]+(\.[0-9]+)?$"
CPUS_PATTERN = r"^([0-9]+(\.[0-9]+)?|[0-9]+m)$"
GPU_TYPE_PATTERN = r"[A-Za-z][A-Za-z0-9._-]{0,62}"
GPUS_PATTERN = rf"^([0-9]+|{GPU_TYPE_PATTERN}(:[0-9]+)?)$"

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_TEXT = 40  # no quantity is longer; patterns are not matched against more


def parse_quantity(text: str) -> int:
    """Bytes. `Ki`, `Mi`, ... count by 1024; `K`, `KB`, `M`, `MB`, ... by 1000."""
    text = text.strip()
    if len(text) > _MAX_TEXT or not re.match(QUANTITY_PATTERN, text):
        raise ValueError(QUANTITY)
    match = re.match(r"([0-9.]+)\s?([KMGTPkmgtp]?)([Ii]?)[Bb]?$", text)
    if match is None:
        raise ValueError(QUANTITY)
    number, prefix, binary = match.groups()
    return _scaled(number, int((1024 if binary else 1000) ** _POWERS[prefix.upper()]))


def _scaled(number: str, factor: int) -> int:
    """number x factor without floating point, rounded up to a whole byte."""
    whole, _, fraction = number.partition(".")
    parts = int(whole + fraction) * factor
    return -(-parts // int(10 ** len(fraction)))


def format_quantity(count: int) -> str:
    """The shortest exact text: 16Gi, 512M, 1000000001."""
    if count == 0:
        return "0"
    for prefix in "PTGMK":
        if count % 1024 ** _POWERS[prefix] == 0:
            return f"{count // 1024 ** _POWERS[prefix]}{prefix}i"
    for prefix in "PTGMK":
        if count % 1000 ** _POWERS[prefix] == 0:
            return f"{count // 1000 ** _POWERS[prefix]}{prefix}"
    return str(count)


def show_quantity(count: int) -> str:
    """For people: about three digits, `15.6Gi`. Does not parse back exactly."""
    for prefix in "PTGMK":
        unit = 1024 ** _POWERS[prefix]
        if count >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + f"{prefix}i"
    return f"{count}B"


def parse_duration(text: str) -> float:
    """Seconds."""
    text = text.strip().lower()
    if len(text) > _MAX_TEXT or not re.match(DURATION_PATTERN, text):
        raise ValueError(DURATION)
    if text[-1].isdecimal():
        return float(text)
    parts = re.findall(r"([0-9.]+)(ms|[smhd])", text)
    return sum(float(number) / 1000 if unit == "ms" else float(number) * _UNITS_S[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """1h30m, 90s is 1m30s, 0.5s; parses back to the same number."""
    if seconds != int(seconds):
        return f"{seconds!r}s" if "e" not in repr(seconds) else f"{seconds:.12f}".rstrip("0") + "s"
    parts, left = "", int(seconds)
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_UNITS_S[unit]))
        parts += f"{count}{unit}" if count else ""
    return parts or "0s"


def parse_cpus(text: str) -> float:
    text = text.strip()
    if len(text) > _MAX_TEXT or not re.match(CPUS_PATTERN, text):
        raise ValueError(CPUS)
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


def format_cpus(cpus: float) -> str:
    return str(int(cpus)) if cpus == int(cpus) else repr(cpus)


def parse_gpus(text: str) -> Gpus:
    text = text.strip()
    if len(text) > 2 * _MAX_TEXT or not re.match(GPUS_PATTERN, text):
        raise ValueError(GPUS)
    kind, _, count = text.partition(":")
    if kind.isdecimal():
        return Gpus(count=int(kind))
    return Gpus(count=int(count) if count else 1, type=kind)
