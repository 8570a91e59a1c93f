"""Nodes that the autoscaler has ordered for waiting runs, read from its events on their records.

Events are in the run's own namespace: whoever may see the run sees them, and nobody learns of other namespaces' runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from longboat.core.runs import RunStatus
from longboat.core.times import parse_time
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.kinds import CONFIG_MAP, EVENT

SOURCE = "longboat-autoscaler"
ORDERED = "TriggeredScaleUp"
WAITING = ("pending", "recovering")
LONGEST = 500
"""Characters that are shown of an event: others can write events, too."""


def with_orders(client: Client, runs: Sequence[RunStatus]) -> list[RunStatus]:
    """The runs, those that wait with what was ordered for them. Costs one request, and only where a run waits."""
    waiting = [run for run in runs if run.phase in WAITING]
    if not waiting:
        return list(runs)
    fields = f"involvedObject.kind={CONFIG_MAP.kind},source={SOURCE}"
    if len(waiting) == 1:
        fields += f",involvedObject.name={waiting[0].name}"
    try:
        events = client.list(EVENT, fields=fields).items
    except ApiError:
        return list(runs)  # events may not be readable, and the run is shown all the same
    words = words_of(events)
    return [_with(run, words.get(run.name)) for run in runs]


def words_of(events: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, str]]:
    """Run -> when and what the newest event says, of those for whom machines are on their way. Pure."""
    newest: dict[str, tuple[float, str, str]] = {}
    for event in events:
        name = str((event.get("involvedObject") or {}).get("name") or "")
        at = parse_time(event.get("lastTimestamp") or event.get("firstTimestamp")) or 0.0
        if name not in newest or at >= newest[name][0]:
            message = " ".join(str(event.get("message") or "").split())
            newest[name] = (at, str(event.get("reason") or ""), message[:LONGEST])
    return {name: (at, message) for name, (at, reason, message) in newest.items() if reason == ORDERED and message}


def _with(run: RunStatus, order: tuple[float, str] | None) -> RunStatus:
    """Events of an earlier run of the same name are not its own; times of events are whole seconds."""
    if order is None or run.phase not in WAITING or order[0] + 1.0 < run.created:
        return run
    reason = f"{run.reason}; autoscaler: {order[1]}" if run.reason else f"autoscaler: {order[1]}"
    return msgspec.structs.replace(run, reason=reason)
