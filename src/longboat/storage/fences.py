"""Fencing of attempts: what an older attempt of a run completes after a newer one has started does not count.

An attempt may go on on a machine that is cut off while the next one runs. Each attempt but the first begins with a
fence beside the checkpoints, `.attempt-K`: its number, and which complete checkpoints it found. From then on those of
older attempts count only if they are among these. A marker says by which attempt it was written; one that does not say
so (made by hand, or by an older version) always counts. Pure; folders are read in `checkpoints`, stores in
`checkpoint_mirror`. Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from longboat.core.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

MARKER = ".complete"
MARKER_MAX = 1 << 16
"""Bytes of a marker that are looked at. Ours have about 150."""
MOST_MOMENT = 1e11
"""Seconds since 1970, the year 5138: what is later was never a time."""
FENCE = re.compile(r"\.attempt-(\d{1,9})")
_FENCED = re.compile(r"attempt (\d{1,9}) of the run has started: what attempt \d+ saves")


class Fenced(EngineError):
    """A newer attempt of the run has started: this one may not complete, replace or remove checkpoints any more."""


class Marker(NamedTuple):
    """What a marker says."""

    attempt: int | None  # that completed the checkpoint; None: not told
    digest: str  # tells it from another marker of the same step
    time: float | None = None  # when it was completed, seconds since the epoch
    metrics: dict[str, float] = {}  # what the trainer told with it


class Fence(NamedTuple):
    attempt: int
    accepted: frozenset[str] = frozenset()  # keys of checkpoints that were complete when the attempt started


def fence_name(attempt: int) -> str:
    return f".attempt-{attempt}"


def fenced_by(message: str) -> int | None:
    """The newer attempt that a message of `Fenced` names, however it was passed on; None where it is not one."""
    match = _FENCED.search(message)
    return int(match[1]) - 1 if match else None


def marker_fields(data: bytes) -> dict[str, Any]:
    """The JSON of a marker; nothing where it is none: its content does not matter otherwise."""
    try:
        parsed = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def read_marker(data: bytes) -> Marker:
    fields = marker_fields(data)
    number, metrics = fields.get("attempt"), fields.get("metrics")
    return Marker(
        attempt=number if isinstance(number, int) and not isinstance(number, bool) and number >= 0 else None,
        digest=hashlib.sha256(data).hexdigest()[:16],
        time=_moment(fields.get("time")),
        metrics=_numbers(metrics),
    )


def is_evaluation_of(marker: Marker, evaluation: bytes) -> bool:
    """Whether a file that an evaluator wrote judges the checkpoint with this marker, not an earlier one of its step."""
    return marker_fields(evaluation).get("marker") == marker.digest


def metrics_of(marker: Marker, evaluation: bytes) -> dict[str, float]:
    """Metrics of a checkpoint: the trainer's, and over them the evaluator's."""
    if not is_evaluation_of(marker, evaluation):
        return marker.metrics
    return {**marker.metrics, **_numbers(marker_fields(evaluation).get("metrics"))}


def _numbers(metrics: object) -> dict[str, float]:
    pairs = metrics.items() if isinstance(metrics, dict) else ()
    numbers = [(str(name), _number(value)) for name, value in pairs]
    return {name: number for name, number in numbers if number is not None}


def _number(value: object) -> float | None:
    """Others write markers: an integer of a thousand digits is no number that anybody means."""
    try:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    except OverflowError:
        return None


def _moment(value: object) -> float | None:
    number = _number(value)
    return number if number is not None and 0 <= number < MOST_MOMENT else None


def encode(fence: Fence, uid: str) -> bytes:
    fields = {"attempt": fence.attempt, "uid": uid, "time": time.time(), "accepted": sorted(fence.accepted)}
    return json.dumps(fields).encode("ascii")


def decode(attempt: int, data: bytes) -> Fence:
    """A fence that is damaged still stands: it accepts nothing of older attempts."""
    try:
        accepted = json.loads(data.decode("utf-8"))["accepted"]
        return Fence(attempt, frozenset(str(key) for key in accepted))
    except (ValueError, KeyError, TypeError, RecursionError):
        return Fence(attempt)


def is_of_run(data: bytes, uid: str) -> bool:
    """Whether a fence, or a marker, is this run's. One that does not tell, or is damaged, counts as its own."""
    try:
        owner = json.loads(data.decode("utf-8"))["uid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return True
    return not isinstance(owner, str) or owner == uid


def counts(fence: Fence | None, key: str, attempt: int | None) -> bool:
    """Whether a complete checkpoint may be resumed from."""
    return fence is None or attempt is None or attempt >= fence.attempt or key in fence.accepted


def newest_of(names: Iterable[str]) -> int | None:
    """The newest attempt that has put up a fence."""
    numbers = [int(match.group(1)) for match in map(FENCE.fullmatch, names) if match]
    return max(numbers) if numbers else None


def check(newest: int | None, attempt: int | None) -> None:
    """Raises Fenced where a newer attempt has started. `attempt` None: the caller is no attempt, and is not fenced."""
    if newest is not None and attempt is not None and newest > attempt:
        raise Fenced(
            f"attempt {newest + 1} of the run has started: what attempt {attempt + 1} saves does not count any more"
        )
