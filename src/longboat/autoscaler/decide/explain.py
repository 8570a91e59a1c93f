"""Why a node, run, pod or pool is (not) scaled, and when it will be: from a Plan and its Snapshot. Pure."""

from __future__ import annotations

from longboat.autoscaler.model.backoff import BackoffWindow
from longboat.autoscaler.model.plan import NodeNote, PendingItem, PoolNote, ScalingAction, ScalingPlan
from longboat.autoscaler.model.snapshot import AutoscalerSettings, ClusterSnapshot, Pool
from longboat.core.jobs import Value
from longboat.core.times import format_time, show_age
from longboat.fitting.model.quantities import show as show_amount

MOST_LISTED = 20


class Explained(Value, frozen=True):
    kind: str  # "node", "run", "pod", "pool"
    name: str
    headline: str
    facts: tuple[str, ...] = ()


def names_in(plan: ScalingPlan) -> list[str]:
    waiting = [one.run or one.pod or "" for one in plan.waiting]
    return [*(one.node for one in plan.nodes), *waiting, *(one.pool for one in plan.pools)]


def explain(
    name: str, plan: ScalingPlan, snapshot: ClusterSnapshot, settings: AutoscalerSettings, now: float
) -> Explained | None:
    """None: nothing is called so. A run or pod may be named without its namespace."""
    for note in plan.nodes:
        if note.node == name:
            return _node(note, plan, snapshot, now)
    for waiting in plan.waiting:
        full = waiting.run or waiting.pod or ""
        if name in (full, full.rpartition("/")[2]):
            return _waiting(waiting, plan, snapshot, now)
    for pool in plan.pools:
        if pool.pool == name:
            return _pool(pool, plan, snapshot, settings, now)
    return _running(name, plan, snapshot)


def _acts(actions: list[ScalingAction]) -> list[str]:
    return [f"now: {one.kind} {one.node or one.pool or one.machine}: {one.reason}" for one in actions]


def _node(note: NodeNote, plan: ScalingPlan, snapshot: ClusterSnapshot, now: float) -> Explained:
    facts = [f"pool: {note.pool}"] if note.pool else []
    facts += _acts([one for one in plan.actions if one.node == note.node]) or ["now: nothing is done"]
    if note.idle_since is not None:
        facts.append(f"idle since {format_time(note.idle_since)} ({show_age(now - note.idle_since)})")
    here = [one for one in snapshot.pods if one.pod.node == note.node and not one.pod.is_finished]
    for one in here[:MOST_LISTED]:
        what = "part of the node, does not count" if one.daemon is not None else one.kept or "may be moved"
        asks = ", ".join(show_amount(name, count) for name, count in one.pod.shape.requests) or "nothing"
        facts.append(f"pod {one.name} (asks for {asks}): {what}")
    if len(here) > MOST_LISTED:
        facts.append(f"and {len(here) - MOST_LISTED} more pods")
    return Explained(
        kind="node", name=note.node, headline=f"node {note.node} is {note.state}: {note.reason}", facts=tuple(facts)
    )


def _waiting(waiting: PendingItem, plan: ScalingPlan, snapshot: ClusterSnapshot, now: float) -> Explained:
    kind, name = ("run", waiting.run) if waiting.run is not None else ("pod", waiting.pod)
    facts = _acts([one for one in plan.actions if name in one.runs])
    if waiting.expected is not None:
        facts.append(f"expected by {format_time(waiting.expected)} (in {show_age(max(waiting.expected - now, 0))})")
    gang = next((one for one in snapshot.gangs if one.name == name), None) if kind == "run" else None
    if gang is not None:
        facts.append(f"{len(gang.pods)} pods without a node, {gang.held} with one")
    return Explained(kind=kind, name=name or "", headline=f"{kind} {name} waits: {waiting.reason}", facts=tuple(facts))


def _pool(
    note: PoolNote, plan: ScalingPlan, snapshot: ClusterSnapshot, settings: AutoscalerSettings, now: float
) -> Explained:
    pool = next(one for one in snapshot.pools if one.name == note.pool)
    facts = [f"{note.size} machines, {note.coming} of them booting; min {pool.min}, max {pool.max}", _machine(pool)]
    facts += _acts([one for one in plan.actions if one.pool == note.pool])
    states: dict[str, int] = {}
    for one in plan.nodes:
        if one.pool == note.pool:
            states[one.state] = states.get(one.state, 0) + 1
    facts += [f"{count} {state}" for state, count in sorted(states.items())]
    facts += [f"{note.ordered} ordered and not joined yet"] if note.ordered else []
    facts += [_back_off(one, now) for one in note.backoffs]
    facts.append(f"a machine is removed after it was idle for {show_age(settings.idle_s)}")
    return Explained(kind="pool", name=note.pool, headline=f"pool {note.pool}: {note.reason}", facts=tuple(facts))


def _back_off(one: BackoffWindow, now: float) -> str:
    where = f"in zone {one.zone}, " if one.zone is not None else ""
    often = f"{one.kind}, {one.count} in a row" if one.count > 1 else one.kind
    if one.until is None:
        return f"{where}not asked ({often}): {one.reason}"
    return f"{where}asked again at {format_time(one.until)} (in {show_age(one.until - now)}; {often})"


def _machine(pool: Pool) -> str:
    has = [show_amount(name, count) for name, count in pool.machine.allocatable if count < 1 << 59]
    return f"a machine has {', '.join(has)}; {pool.price:g} per hour; boots in {show_age(pool.boot_s)}"


def _running(name: str, plan: ScalingPlan, snapshot: ClusterSnapshot) -> Explained | None:
    """A pod or run that has its nodes."""
    states = {one.node: one.state for one in plan.nodes}
    mine = [
        one for one in snapshot.pods if name in (one.name, one.pod.name, one.gang, (one.gang or "").rpartition("/")[2])
    ]
    mine = [one for one in mine if one.pod.node is not None]
    if not mine:
        return None
    facts = [
        f"pod {one.name} is on {one.pod.node} ({states.get(one.pod.node or '', 'unknown')})"
        for one in mine[:MOST_LISTED]
    ]
    kind = "run" if mine[0].gang is not None and name not in (mine[0].name, mine[0].pod.name) else "pod"
    return Explained(kind=kind, name=name, headline=f"{kind} {name} waits for no machine", facts=tuple(facts))
