"""A Plan as plain data: what `plan -o json` prints. Only the keys that say something; times as RFC 3339."""

from __future__ import annotations

from typing import Any

from longboat.autoscaler.model.backoff import BackoffWindow
from longboat.autoscaler.model.plan import NodeNote, PendingItem, PoolNote, ScalingAction, ScalingPlan
from longboat.core.times import format_time


def plain_plan(plan: ScalingPlan) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "actions": [plain_action(action) for action in plan.actions],
        "waiting": [plain_waiting(item) for item in plan.waiting],
        "nodes": [plain_node(node) for node in plan.nodes],
        "pools": [plain_pool(pool) for pool in plan.pools],
    }
    if plan.next_s is not None:
        plain["next_s"] = round(plan.next_s, 3)
    return plain


def plain_action(action: ScalingAction) -> dict[str, Any]:
    if action.kind == "grow":
        plain: dict[str, Any] = {"kind": "grow", "pool": action.pool, "count": action.count, "reason": action.reason}
        if action.zones:
            plain["zones"] = dict(sorted(action.zones.items()))
        if action.runs:
            plain["for"] = list(action.runs)
        return plain
    plain = {"kind": action.kind}
    pairs = (("node", action.node), ("machine", action.machine), ("pool", action.pool))
    plain.update({name: value for name, value in pairs if value is not None})
    return {**plain, "reason": action.reason}


def plain_waiting(waiting: PendingItem) -> dict[str, Any]:
    namespace, _, name = (waiting.run or waiting.pod or "").rpartition("/")
    plain: dict[str, Any] = {"run" if waiting.run is not None else "pod": name, "namespace": namespace}
    plain["reason"] = waiting.reason
    if waiting.pool is not None:
        plain["pool"] = waiting.pool
    if waiting.expected is not None:
        plain["expected"] = format_time(waiting.expected)
    return plain


def plain_node(note: NodeNote) -> dict[str, Any]:
    node: dict[str, Any] = {"node": note.node, "state": note.state, "reason": note.reason}
    if note.pool is not None:
        node["pool"] = note.pool
    if note.idle_since is not None:
        node["idle_since"] = format_time(note.idle_since)
    return node


def plain_pool(note: PoolNote) -> dict[str, Any]:
    pool: dict[str, Any] = {"pool": note.pool, "reason": note.reason, "size": note.size, "coming": note.coming}
    if note.blocked_until is not None:
        pool["blocked_until"] = format_time(note.blocked_until)
    if note.ordered:
        pool["ordered"] = note.ordered
    if note.backoffs:
        pool["backoffs"] = [plain_closed(backoff) for backoff in note.backoffs]
    return pool


def plain_closed(closed: BackoffWindow) -> dict[str, Any]:
    """`until` is missing where something has to change first."""
    plain: dict[str, Any] = {"kind": closed.kind, "count": closed.count}
    if closed.zone is not None:
        plain["zone"] = closed.zone
    if closed.until is not None:
        plain["until"] = format_time(closed.until)
    return {**plain, "reason": closed.reason}
