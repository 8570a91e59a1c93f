"""The termination message: how this node ended, and on node 0 the verdict over the gang, in at most 4096 bytes.

Composing is pure. What does not fit is cut in this order: last lines, traceback, ranks (and how many lines each stream
has), long messages, and at last the attempts before this one. Metrics go with the traceback's first lines.
"""

from __future__ import annotations

import os

from ..node.jsonfiles import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = 4096
"""Bytes that Kubernetes takes of a termination message."""
VERSION = 1
_FIRST_KEYS = (
    "rank", "role", "node", "pid", "exit_code", "signal", "started", "ended", "ended_by", "cause", "message",
    "traceback", "tail", "memory_peak", "memory_limit", "step",
)  # fmt: skip
_TAILS = (20, 10, 5, 2, 0)
_TRACEBACK = 4000  # of one that is not cut
_TRACEBACKS = (1500, 700, 300, 0)
_RANKS = (64, 16, 0)
_MESSAGES = (400, 100, 0)
RESTARTS = (64, 8, 3, 1, 0)
"""Earlier attempts in the same pods, the newest: while all fits, without last lines, in a message that is long, and
where even the verdict would find no room beside them."""
_EARLIER = 4
"""Of a message is left so much more than of one of an earlier attempt: how it ended in the end says more."""


def compose(facts: dict[str, Any], limit: int = LIMIT) -> bytes:
    """Format the message as JSON, cut to the kubelet's limit. `facts` has the keys of the contract."""
    cuts = [(tail, _TRACEBACK, 1 << 30, 2000, 0 if tail else 1) for tail in _TAILS]
    cuts += [(0, traceback, 1 << 30, 2000, 1 if traceback else 2) for traceback in _TRACEBACKS]
    cuts += [(0, 0, ranks, 2000, 2) for ranks in _RANKS]
    cuts += [(0, 0, 0, message, 2) for message in _MESSAGES[:-1]]
    cuts += [(0, 0, 0, _MESSAGES[-2], 3), (0, 0, 0, _MESSAGES[-2], 4), (0, 0, 0, _MESSAGES[-1], 4)]
    for cut in cuts:
        text = dumps(_cut(facts, *cut)).encode("ascii")
        if len(text) <= limit:
            return text
    kept = ("node", "attempt", "exit_code", "cause", "ended", "ended_by", "started")
    least = {key: facts.get(key) for key in kept if len(dumps(facts.get(key))) < 300}
    return dumps({"v": VERSION, "message": "", "ranks": [], "first": None, "gang": None, **least}).encode("ascii")


def compose_begun(facts: dict[str, Any], limit: int = LIMIT) -> bytes:
    """The message of a launcher that has begun another attempt in the same pod, should it be killed in it."""
    text = b""
    for restarts, message in [(most, size) for most in RESTARTS[2:] for size in _MESSAGES]:
        earlier = _earlier(facts["restarts"], restarts, message)
        text = dumps({"v": VERSION, **facts, "restarts": earlier}).encode("ascii")
        if len(text) <= limit:
            break
    return text


def _earlier(restarts: Any, most: int, message: int) -> list[dict[str, Any]]:
    """The newest of the attempts before, with the beginnings of their messages."""
    kept = list(restarts or [])[-most:] if most else []
    return [{**end, "message": _start(str(end.get("message") or ""), message // _EARLIER)} for end in kept]


def _cut(facts: dict[str, Any], tail: int, traceback: int, ranks: int, message: int, restarts: int) -> dict[str, Any]:
    cut = {"v": VERSION, **facts}
    cut["message"] = _start(str(cut.get("message") or ""), message)
    cut["first"] = _report(cut.get("first"), tail, traceback, message)
    cut["tail"] = _last(cut.get("tail"), tail)
    if not cut["tail"]:
        del cut["tail"]
    if traceback < _TRACEBACK:
        cut.pop("metrics", None)
        cut.pop("usage", None)
    earlier = _earlier(cut.pop("restarts", None), RESTARTS[restarts], message)
    if earlier:
        cut["restarts"] = earlier
    if cut.get("lines") is None or ranks < 1 << 30:  # some of them would be taken for all
        cut.pop("lines", None)
    rows = list(cut.get("ranks") or [])
    if len(rows) > ranks:  # those that failed say more than those that did not
        rows = sorted(rows, key=lambda row: row[1] in (0, None))[:ranks]
    cut["ranks"] = rows
    gang = cut.get("gang")
    if gang is not None:
        first = _report(gang.get("first"), tail, traceback, message)
        cut["gang"] = {**gang, "message": _start(str(gang.get("message") or ""), message), "first": first}
        if gang.get("tail"):
            cut["gang"]["tail"] = _last(gang["tail"], tail)
    return cut


def _report(report: dict[str, Any] | None, tail: int, traceback: int, message: int) -> dict[str, Any] | None:
    """Shorten a report's traceback: its start and, longer, its end."""
    if report is None:
        return None
    cut = {key: report[key] for key in _FIRST_KEYS if report.get(key) not in (None, "", [], ())}
    cut["message"] = _start(str(report.get("message") or ""), message)
    cut["tail"] = _last(report.get("tail"), tail)
    text = str(report.get("traceback") or "")
    if len(text) > traceback:
        text = "...\n" + text[len(text) - traceback :].partition("\n")[2] if traceback else ""
    cut["traceback"] = text
    return {key: value for key, value in cut.items() if value not in ("", [])}


def _last(lines: Any, count: int) -> list[str]:
    return [_start(str(line), 300) for line in list(lines or [])[-count:]] if count else []


def _start(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "..." if limit else ""


def write(path: str, message: bytes) -> None:
    """Write in place: the file is a mount, and the root may be read-only. Best effort."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(descriptor, message)
        finally:
            os.close(descriptor)
    except OSError:
        pass
