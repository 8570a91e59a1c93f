"""Kueue: what a run waits for in its queue, who holds it and who is before it. Pure, over Workloads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longboat.core.words import counted, listing
from longboat.fitting.model.quantities import (
    Amounts,
    amount,
    amounts,
    is_scarce,
    scarcity,
    show_asked,
    show_number,
    total,
)
from longboat.fitting.model.requests import requests_of

Workload = Mapping[str, Any]

_LACKING = re.compile(r"insufficient unused quota for (\S+) in flavor \S+?, (\S+) more needed")
_ATTEMPT = re.compile(r"(.+)-a\d+(?:-.+?)?")
_MOST_NAMES = 4  # one line


def waiting_words(mine: Workload, everybody: Iterable[Workload]) -> str:
    """One line: `waits for 1 GPU in queue research: 0 free; held by other; 1 run before it (large)`."""
    others = [other for other in everybody if other["metadata"].get("uid") != mine["metadata"].get("uid")]
    queue = str((mine.get("spec") or {}).get("queueName") or "")
    asked = dict(asked_of(mine))
    said = kueue_reason(mine)
    lacking = {name: _short(name, count) for name, count in _LACKING.findall(said) if name in asked}
    ahead = [other for other in others if _is_waiting(other) and _queue(other) == queue and _rank(other) < _rank(mine)]
    wanted = sorted(lacking or [name for name in asked if is_scarce(name)] or asked, key=scarcity)
    parts = []
    for name in wanted:
        text = show_asked(name, asked[name])
        if name in lacking:
            text += f" ({show_number(name, max(0, asked[name] - lacking[name]))} free)"
        parts.append(text)
    words = f"waits for {' and '.join(parts) or 'its turn'} in queue {queue}"
    holders = _holders(others, wanted)
    words += f"; held by {holders}" if holders else ""
    if ahead:
        words += f"; {counted(len(ahead), 'run')} before it ({_named(map(run_of, ahead))})"
    return words if lacking or not said else f"{words}: {said}"


def kueue_reason(workload: Workload) -> str:
    """Kueue's own reason."""
    conditions = {
        condition.get("type"): condition for condition in (workload.get("status") or {}).get("conditions") or ()
    }
    evicted = conditions.get("Evicted", {})
    if evicted.get("status") == "True":
        return str(evicted.get("message") or "")
    return str(conditions.get("QuotaReserved", {}).get("message") or "")


def asked_of(workload: Workload) -> Amounts:
    """What all pods of the workload ask for together."""
    parts = []
    for pod_set in (workload.get("spec") or {}).get("podSets") or ():
        each = requests_of((pod_set.get("template") or {}).get("spec") or {})
        parts.append(tuple((name, count * int(pod_set.get("count") or 1)) for name, count in each))
    return total(parts)


def held_by(workload: Workload) -> Amounts:
    """What an admitted workload holds."""
    admission = (workload.get("status") or {}).get("admission") or {}
    return total(amounts(assignment.get("resourceUsage")) for assignment in admission.get("podSetAssignments") or ())


def run_of(workload: Workload) -> str:
    """The run that a workload belongs to, else the name of whoever owns it."""
    meta = workload["metadata"]
    owner: Mapping[str, Any] = next(iter(meta.get("ownerReferences") or ()), {})
    name = str(owner.get("name") or meta.get("name") or "")
    match = _ATTEMPT.fullmatch(name)
    return match[1] if match else name


def _holders(others: Sequence[Workload], wanted: Sequence[str]) -> str:
    held: dict[str, int] = {}
    for workload in others:
        if _has(workload, "Finished") or not _has(workload, "QuotaReserved"):
            continue
        amount_held = sum(count for name, count in held_by(workload) if name in wanted)
        if amount_held:
            held[run_of(workload)] = held.get(run_of(workload), 0) + amount_held
    return _named(sorted(held, key=lambda name: (-held[name], name)))


def _named(names: Iterable[str]) -> str:
    return listing(list(dict.fromkeys(names)), _MOST_NAMES)


def _short(resource: str, text: str) -> int:
    """How much more is needed, in the unit of `amount`."""
    from longboat.core.errors import UsageError

    try:
        return amount(resource, text)
    except UsageError:
        return 0


def _queue(workload: Workload) -> str:
    return str((workload.get("spec") or {}).get("queueName") or "")


def _has(workload: Workload, kind: str) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == kind and condition.get("status") == "True" for condition in conditions)


def _is_waiting(workload: Workload) -> bool:
    return not _has(workload, "QuotaReserved") and not _has(workload, "Finished")


def _rank(workload: Workload) -> tuple[int, str, str]:
    """Kueue serves by priority, then by creation."""
    spec, meta = workload.get("spec") or {}, workload["metadata"]
    return -int(spec.get("priority") or 0), str(meta.get("creationTimestamp") or ""), str(meta.get("name") or "")
