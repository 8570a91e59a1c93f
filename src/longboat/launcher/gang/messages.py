"""Validation of messages between launchers before anybody acts on them: keys, types and bounds. Pure.

A member of the gang has shown the token and is still not trusted to speak the language: what it says ends up in timers,
files and the verdict of node 0. A message that is not in order raises ValueError, which costs its connection.
"""

from __future__ import annotations

from ..node.jsonfiles import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOLD_MAX = 16 << 10
"""Bytes of earlier attempts that a new launcher is told: they fit any new socket, which is written once."""
GONE_ON = "the gang has gone on without it"
"""What a launcher is told that was given up: its Job makes another pod."""
DEPTH_MAX = 16
"""Containers inside of each other. A report has three. It is written as JSON again, by a function that recurs."""
SECONDS_MAX = 1e9
"""Thirty years: more is no duration."""
NUMBER_MAX = 1e18  # beyond any time or count that is meant
COUNT_MAX = 1 << 62  # fits into 64 bits everywhere
_TEXTS = ("cause", "message", "ended_by", "node", "role", "traceback", "stacks")
_COUNTS = ("ended_ns", "memory_peak", "memory_limit", "pid")


def from_node(message: Any) -> dict[str, Any]:
    """Validate a message from a node to node 0."""
    kind = _words(message, "is")
    if kind == "report":
        _check_report(message.get("report"))
        _check_seconds(message.get("age_s"))
    elif kind == "stalled":
        count_of(message.get("rank"))
        if message.get("silent_s") is None:
            raise ValueError("silent_s is missing")
        _check_seconds(message["silent_s"])
    elif kind == "ended":
        _check_outcome(message.get("outcome"))
        _check_step(message.get("newest"))
    elif kind == "stop":
        _check_seconds(message.get("grace_s"))
    elif kind not in ("ready", "evicted", "dump", "save"):
        raise ValueError("unknown message %r" % kind[:40])
    return message  # type: ignore[no-any-return]


def from_leader(message: Any) -> dict[str, Any]:
    """Validate a message from node 0 to a node."""
    kind = _words(message, "do")
    if kind == "go":
        _check_text(message.get("resume_from"), "resume_from")
    elif kind == "end":
        if message.get("grace_s") is None or not isinstance(message.get("reason"), str):
            raise ValueError("reason or grace_s is missing")
        _check_seconds(message["grace_s"])
        _check_step(message.get("newest"))
    elif kind == "restart":
        count_of(message.get("attempt"))
        _check_seconds(message.get("delay_s"))
        if not isinstance(message.get("ended"), dict):
            raise ValueError("ended is missing")
        _check_end(message["ended"])
        _check_names(message.get("replaced"))
        _check_places(message, "places", "spares")
    elif kind not in ("dump", "save"):
        raise ValueError("unknown message %r" % kind[:40])
    return message  # type: ignore[no-any-return]


def told_of(again: dict[str, Any]) -> list[dict[str, Any]]:
    """Of attempts that have ended, the last ones: what a new launcher is told is sent at once or not at all."""
    ended: list[dict[str, Any]] = again.get("ended") or []
    left = TOLD_MAX
    for place in range(len(ended) - 1, -1, -1):
        left -= len(dumps(ended[place]))
        if left < 0:
            return ended[place + 1 :]
    return ended


def under_way(message: Any) -> dict[str, Any]:
    """Validate what node 0 says to a new launcher: the attempt, and how those before it ended."""
    if not isinstance(message, dict) or not isinstance(message.get("ended"), list):
        raise ValueError("not a message")
    count_of(message.get("attempt"))
    _check_depth(message)
    _check_places(message, "places")
    for each in message["ended"]:
        if not isinstance(each, dict):
            raise ValueError("ended is no list of attempts")
        count_of(each.get("attempt"))
        _check_end(each)
        _check_names(each.get("replaced"))
        _check_places(each, "spares")
        for key in ("began", "running", "ended"):
            if each.get(key) is not None:
                _check_number(each[key], key)
    return message


def count_of(value: Any) -> int:
    """Validate a non-negative integer. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= COUNT_MAX:
        raise ValueError("not a count")
    return value


def _check_step(value: Any) -> None:
    if value is not None:
        count_of(value)


def _words(message: Any, key: str) -> str:
    if not isinstance(message, dict) or not isinstance(message.get(key), str):
        raise ValueError("not a message")
    _check_depth(message)
    return str(message[key])


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        if not inner:
            return
        level = inner
    raise ValueError("nested too deeply")


def _check_report(report: Any) -> None:
    if not isinstance(report, dict):
        raise ValueError("no report")
    count_of(report.get("rank"))
    _check_end(report)
    for key in _COUNTS:
        if report.get(key) is not None:
            count_of(report[key])
    for key in ("started", "ended"):
        if report.get(key) is not None:
            _check_number(report[key], key)


def _check_outcome(outcome: Any) -> None:
    if not isinstance(outcome, dict):
        raise ValueError("no outcome")
    _check_end(outcome)


def _check_end(said: dict[str, Any]) -> None:
    """Validate the fields that reports and outcomes share."""
    for key in _TEXTS:
        _check_text(said.get(key), key)
    for key in ("exit_code", "signal"):
        if said.get(key) is not None and not -(1 << 31) <= _check_number(said[key], key) < 1 << 31:
            raise ValueError("%s is out of bounds" % key)
    tail = said.get("tail")
    if tail is not None and not (isinstance(tail, list) and all(isinstance(line, str) for line in tail)):
        raise ValueError("tail is not a list of lines")


def _check_text(value: Any, key: str) -> None:
    if value is not None and not isinstance(value, str):
        raise ValueError("%s is not a text" % key)


def _check_names(value: Any) -> None:
    if value is not None and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        raise ValueError("replaced is not a list of names")


def _check_places(said: dict[str, Any], *keys: str) -> None:
    for key in keys:
        places = said.get(key)
        if places is not None and not (isinstance(places, dict) and all(isinstance(n, str) for n in places.values())):
            raise ValueError("%s is no list of places" % key)


def _check_number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -NUMBER_MAX < value < NUMBER_MAX:
        raise ValueError("%s is not a number" % key)
    return value


def _check_seconds(value: Any) -> None:
    if value is not None and not 0 <= _check_number(value, "a time") <= SECONDS_MAX:
        raise ValueError("a time is out of bounds")
