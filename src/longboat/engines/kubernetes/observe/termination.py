"""How a pod ended: the launcher's termination message, and Kubernetes' own words where there is none. Pure.

Read leniently: a message may come from an older or newer launcher, or from something that is not one of ours. What an
end means for the run (whose fault came first, is it tried again) is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from longboat.core.errors import RUN_LOST_EXIT, RUN_SETUP_EXIT
from longboat.core.guards.decoding import convert
from longboat.core.jobs import Value
from longboat.core.runs import RankReport
from longboat.core.times import parse_time

START_REASONS = ("StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError")
TAKEN_AWAY = ("PreemptionByScheduler", "EvictionByEvictionAPI", "TerminationByKubelet", "DeletionByTaintManager")
MAX_FOREIGN = 400  # words of a container that is not ours, in one line
MOST_NUMBER = 10**16  # beyond any time or count; anybody may write the message


class RankEnd(Value, frozen=True):
    rank: int
    exit_code: int | None = None
    ended_by: str | None = None
    step: int | None = None


class GangEnd(Value, frozen=True):
    """The verdict over all nodes, told by node 0."""

    exit_code: int | None = None
    cause: str | None = None
    message: str = ""
    node: str = ""
    first: RankReport | None = None
    tail: tuple[str, ...] = ()


class EarlierEnd(Value, frozen=True):
    """An attempt that ended before the last one in the same pods, in few words."""

    attempt: int
    exit_code: int | None = None
    cause: str | None = None
    message: str = ""
    node: str | None = None
    rank: int | None = None  # the first that failed
    signal: int | None = None
    began: float | None = None  # when it was restarted; None: the pods' first
    running: float | None = None
    ended: float | None = None
    resumed_from: str | None = None
    step: int | None = None
    replaced: tuple[str, ...] = ()  # members that had other pods in the attempt after it
    spares: dict[str, str] = {}  # of these, whose place a spare took: the name that its pod was made with


class NodeEnd(Value, frozen=True):
    """How a node ended, as its launcher saw it."""

    v: int = 1
    node: str = ""
    attempt: int = 0
    exit_code: int | None = None
    cause: str | None = None
    message: str = ""
    started: float | None = None  # seconds since the epoch
    ended: float | None = None
    ended_by: str | None = None
    ranks: tuple[RankEnd, ...] = ()
    metrics: dict[str, float] = {}  # of the rank that came furthest
    usage: dict[str, Any] = {}  # of that rank: its pace, and metrics that were no finite numbers
    first: RankReport | None = None
    resumed_from: str | None = None
    checkpoint: str | None = None
    lines: dict[str, int] | None = None  # of each stream (`0.out`) on the pod's log; None: not told
    gang: GangEnd | None = None
    began: float | None = None  # when this attempt was restarted in place
    restarts: tuple[EarlierEnd, ...] = ()  # attempts before it in the same pod, or the latest of them

    @property
    def furthest(self) -> RankEnd | None:
        """The rank with the highest step, the first of several."""
        steps = [rank for rank in self.ranks if rank.step is not None]
        return max(steps, key=lambda rank: (rank.step, -rank.rank), default=None)


class PodEnd(Value, frozen=True):
    """How a container ended. `said` is what its launcher told; the rest is filled from Kubernetes where it is None."""

    exit_code: int
    cause: str | None = None
    message: str = ""
    reason: str = ""  # Kubernetes' own word: Completed, Error, OOMKilled, ...
    started: float | None = None
    ended: float | None = None
    said: NodeEnd | None = None
    going: NodeEnd | None = None  # of a launcher that was killed after a restart in place: what it had said before


def read_going(text: str) -> NodeEnd | None:
    """Which attempt a launcher that was restarted in place had begun, if it was killed in it."""
    raw = _decoded(text)
    return _lenient(raw) if raw is not None and "exit_code" not in raw and "restarts" in raw else None


def read_answer(answer: Mapping[str, Any]) -> NodeEnd | None:
    """The attempt of a launcher that runs, from its status; None where it was not restarted in place."""
    restarts = answer.get("restarts")
    if not isinstance(restarts, list) or not restarts or _is_out_of_range(dict(answer)):
        return None
    ranks = answer.get("ranks")
    starts = [row.get("started") for row in ranks.values() if isinstance(row, dict)] if isinstance(ranks, dict) else []
    started = min((start for start in starts if isinstance(start, float) and start > 0), default=None)
    return _lenient({**{key: answer.get(key) for key in ("node", "attempt", "began", "restarts")}, "started": started})


def read_termination(text: str) -> NodeEnd | None:
    """The launcher's message; None for a text that is not one. Fields that make no sense are left out."""
    raw = _decoded(text)
    if raw is None or "exit_code" not in raw:
        return None
    rows = raw.get("ranks")
    raw["ranks"] = [_row(row) for row in rows if _is_row(row)] if isinstance(rows, list) else []
    return _lenient(raw)


def _decoded(text: str) -> dict[str, Any] | None:
    try:
        raw = msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
        is_wild = _is_out_of_range(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return raw if not is_wild and isinstance(raw, dict) and isinstance(raw.get("v"), int) else None


def _is_out_of_range(value: object) -> bool:
    """Whether a number in it is larger than any moment, code or rank, and would overflow where it is used or shown."""
    if isinstance(value, dict):
        return any(map(_is_out_of_range, value.values()))
    if isinstance(value, list):
        return any(map(_is_out_of_range, value))
    return isinstance(value, (int, float)) and not abs(value) < MOST_NUMBER


def _is_row(row: object) -> bool:
    return isinstance(row, list) and bool(row) and isinstance(row[0], int)


def _row(row: list[Any]) -> dict[str, Any]:
    names = ("rank", "exit_code", "ended_by", "step")
    kinds: tuple[type, ...] = (int, int, str, int)
    return {name: item for name, kind, item in zip(names, kinds, row) if isinstance(item, kind)}


def _lenient(raw: dict[str, Any]) -> NodeEnd:
    """All fields that can be read; one that cannot has its default."""
    read: dict[str, Any] = {}
    for field in msgspec.structs.fields(NodeEnd):
        if field.name not in raw:
            continue
        try:
            read[field.name] = convert(raw[field.name], field.type)
        except msgspec.ValidationError:
            continue
    return NodeEnd(**read)


def container_of(pod: Mapping[str, Any], name: str = "main") -> Mapping[str, Any] | None:
    """The status of the pod's container; None as long as it has none."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((status for status in statuses if status.get("name") == name), None)


def outcome_of(container_status: Mapping[str, Any]) -> PodEnd | None:
    """How the container ended; None while it has not."""
    ended = (container_status.get("state") or {}).get("terminated")
    if not ended:
        return None
    text = str(ended.get("message") or "")
    said = read_termination(text)
    going = read_going(text) if said is None else None
    code = int(ended.get("exitCode") or 0)
    reason = str(ended.get("reason") or "")
    if said is not None and said.exit_code is not None:
        exit_code, cause, message = said.exit_code, said.cause, said.message
    else:
        exit_code, cause, message = _without_launcher(code, reason, "" if going is not None else text)
    return PodEnd(
        exit_code=exit_code,
        cause=cause,
        message=message,
        reason=reason,
        started=parse_time(ended.get("startedAt")),
        ended=parse_time(ended.get("finishedAt")),
        said=said,
        going=going,
    )


def _without_launcher(code: int, reason: str, text: str) -> tuple[int, str | None, str]:
    last = text.strip()[-MAX_FOREIGN:]
    if reason == "OOMKilled":
        return code or 137, "oom", "out of memory: the kernel killed the whole container"
    if reason in START_REASONS:
        if "python3" in text and ("not found" in text or "no such file" in text):
            return RUN_SETUP_EXIT, "image", "the image has no python3, which the launcher needs (Python >= 3.8)"
        return RUN_SETUP_EXIT, "image", f"the container could not be started: {last or reason}"
    if code == 0 and reason != "ContainerStatusUnknown":
        return 0, None, ""
    if code == 137 or reason == "ContainerStatusUnknown":
        return RUN_LOST_EXIT, "lost", "the launcher was killed before it could report"
    words = f": {last}" if last else ""
    return RUN_LOST_EXIT, "lost", f"the launcher ended with exit code {code} and no report{words}"


def outcome_of_pod(pod: Mapping[str, Any]) -> PodEnd | None:
    """How the pod ended: its container's end, or why it was taken away or never ran. None while it has not ended."""
    status = pod.get("status") or {}
    container = container_of(pod)
    end = outcome_of(container) if container is not None else None
    taken = _taken_away(status)
    if end is not None and (end.said is not None or end.cause in ("oom", "image") or not taken):
        return end
    if taken:
        return PodEnd(
            exit_code=RUN_LOST_EXIT,
            cause=taken[0],
            message=taken[1],
            reason=str(status.get("reason") or ""),
            started=end.started if end is not None else None,
            ended=end.ended if end is not None else None,
            going=end.going if end is not None else None,
        )
    if status.get("phase") == "Failed":
        text = str(status.get("message") or status.get("reason") or "the pod failed and nobody says why")
        return PodEnd(exit_code=RUN_LOST_EXIT, cause="lost", message=text, reason=str(status.get("reason") or ""))
    return None


def _taken_away(status: Mapping[str, Any]) -> tuple[str, str] | None:
    """(cause, message) of a pod that was evicted, preempted or lost with its node."""
    if status.get("phase") not in ("Failed", "Succeeded"):
        return None
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            text = str(condition.get("message") or condition.get("reason") or "")
            cause = "preemption" if condition.get("reason") in TAKEN_AWAY else "lost"
            return cause, f"the pod was taken away: {text}"
    if status.get("reason") in ("Evicted", "Preempting", "Terminated", "NodeShutdown"):
        return "preemption", f"the pod was taken away: {status.get('message') or status.get('reason')}"
    return None
