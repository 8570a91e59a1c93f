"""Log lines of a turn: the state of every node, everybody who waits, every action; as text or as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from longboat.autoscaler.model.turn import LoopTurn
from longboat.autoscaler.report.plan_json import plain_action, plain_node, plain_pool, plain_waiting
from longboat.core.times import format_time

Form = Literal["text", "json"]
NOT_NAMED = ("time", "what", "reason", "trouble", "backoffs")
"""Keys that a line of text does not name: it ends with the reason, which tells of backoffs too."""


def lines(turn: LoopTurn, form: Form) -> Iterator[str]:
    """One line for everything; a turn begins with its results and ends with its pools."""
    for record in records(turn):
        yield json.dumps(record, ensure_ascii=False) if form == "json" else text(record)


def records(turn: LoopTurn) -> Iterator[dict[str, Any]]:
    time = {"time": format_time(turn.now)}
    if turn.results:
        for result in turn.results:
            trouble = {"trouble": result.trouble} if result.trouble else {}
            yield {**time, "what": "action", **plain_action(result.action), **trouble}
    else:
        for action in turn.plan.actions:
            yield {**time, "what": "planned", **plain_action(action)}
    for waiting in turn.plan.waiting:
        yield {**time, "what": "waiting", **plain_waiting(waiting)}
    for node in turn.plan.nodes:
        yield {**time, "what": "node", **plain_node(node)}
    for pool in turn.plan.pools:
        yield {**time, "what": "pool", **plain_pool(pool)}


def text(record: dict[str, Any]) -> str:
    rest = {key: value for key, value in record.items() if key not in NOT_NAMED}
    named = " ".join(f"{key}={_value(value)}" for key, value in rest.items())
    trouble = f" (not done: {record['trouble']})" if record.get("trouble") else ""
    return f"{record['time']} {record['what']} {named}: {record.get('reason', '')}{trouble}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}:{item}" for key, item in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
