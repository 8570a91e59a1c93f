"""Why a node, run, pod or pool is (not) scaled, and when it will be: from a Plan and its Snapshot. Pure."""

from __future__ import annotations

from longboat.autoscaler.model.backoff import BackoffWindow
from longboat.autoscaler.model.plan import NodeNote, PendingItem, PoolNote, ScalingAction, ScalingPlan
from longboat.autoscaler.model.snapshot import AutoscalerSettings, ClusterSnapshot, Pool, SeenPod
from longboat.core.jobs import Value
from longboat.core.times import format_time, show_age
from longboat.core.words import counted
from longboat.fitting.model.quantities import show as show_amount

MOST_LISTED = 20  # more pods than a screen holds tell nobody more


class Explained(Value, frozen=True):
    kind: str  # "node", "run", "pod", "pool"
    name: str
    headline: str
    facts: tuple[str, ...] = ()


def names_in(plan: ScalingPlan) -> list[str]:
    waiting = [item.run or item.pod or "" for item in plan.waiting]
    return [*(node.node for node in plan.nodes), *waiting, *(pool.pool for pool in plan.pools)]


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
    return [f"now: {action.kind} {action.node or action.pool or action.machine}: {action.reason}" for action in actions]


def _node(note: NodeNote, plan: ScalingPlan, snapshot: ClusterSnapshot, now: float) -> Explained:
    facts = [f"pool: {note.pool}"] if note.pool else []
    facts += _acts([action for action in plan.actions if action.node == note.node]) or ["now: nothing is done"]
    if note.idle_since is not None:
        facts.append(f"idle since {format_time(note.idle_since)} ({show_age(now - note.idle_since)})")
    here = [pod for pod in snapshot.pods if pod.pod.node == note.node and not pod.pod.is_finished]
    for seen_pod in here[:MOST_LISTED]:
        text = "part of the node, does not count" if seen_pod.daemon is not None else _why_it_stays(seen_pod, now)
        asks = ", ".join(show_amount(name, count) for name, count in seen_pod.pod.shape.requests) or "nothing"
        facts.append(f"pod {seen_pod.name} (asks for {asks}): {text}")
    if len(here) > MOST_LISTED:
        facts.append(f"and {counted(len(here) - MOST_LISTED, 'more pod')}")
    return Explained(
        kind="node", name=note.node, headline=f"node {note.node} is {note.state}: {note.reason}", facts=tuple(facts)
    )


def _why_it_stays(pod: SeenPod, now: float) -> str:
    if pod.kept and not pod.kept_now(now):
        return f"may be moved: {pod.kept}, and that is over"
    return pod.kept_now(now) or "may be moved"


def _waiting(waiting: PendingItem, plan: ScalingPlan, snapshot: ClusterSnapshot, now: float) -> Explained:
    kind, name = ("run", waiting.run) if waiting.run is not None else ("pod", waiting.pod)
    facts = _acts([action for action in plan.actions if name in action.runs])
    if waiting.expected is not None:
        facts.append(f"expected by {format_time(waiting.expected)} (in {show_age(max(waiting.expected - now, 0))})")
    gang = next((gang for gang in snapshot.gangs if gang.name == name), None) if kind == "run" else None
    if gang is not None:
        facts.append(f"{counted(len(gang.pods), 'pod')} without a node, {gang.held} with one")
    return Explained(kind=kind, name=name or "", headline=f"{kind} {name} waits: {waiting.reason}", facts=tuple(facts))


def _pool(
    note: PoolNote, plan: ScalingPlan, snapshot: ClusterSnapshot, settings: AutoscalerSettings, now: float
) -> Explained:
    pool = next(pool for pool in snapshot.pools if pool.name == note.pool)
    facts = [
        f"{counted(note.size, 'machine')}, {note.coming} of them booting; min {pool.min}, max {pool.max}",
        _machine(pool),
    ]
    facts += _acts([action for action in plan.actions if action.pool == note.pool])
    states: dict[str, int] = {}
    for node in plan.nodes:
        if node.pool == note.pool:
            states[node.state] = states.get(node.state, 0) + 1
    facts += [f"{count} {state}" for state, count in sorted(states.items())]
    facts += [f"{note.ordered} ordered and not joined yet"] if note.ordered else []
    facts += [_back_off(backoff, now) for backoff in note.backoffs]
    facts.append(f"a machine is removed after it was idle for {show_age(settings.idle_s)}")
    return Explained(kind="pool", name=note.pool, headline=f"pool {note.pool}: {note.reason}", facts=tuple(facts))


def _back_off(window: BackoffWindow, now: float) -> str:
    where = f"in zone {window.zone}, " if window.zone is not None else ""
    often = f"{window.kind}, {window.count} in a row" if window.count > 1 else window.kind
    if window.until is None:
        return f"{where}not asked ({often}): {window.reason}"
    return f"{where}asked again at {format_time(window.until)} (in {show_age(window.until - now)}; {often})"


def _machine(pool: Pool) -> str:
    has = [show_amount(name, count) for name, count in pool.machine.allocatable if count < 1 << 59]
    return f"a machine has {', '.join(has)}; {pool.price:g} per hour; boots in {show_age(pool.boot_s)}"


def _running(name: str, plan: ScalingPlan, snapshot: ClusterSnapshot) -> Explained | None:
    """A pod or run that has its nodes."""
    states = {node.node: node.state for node in plan.nodes}
    mine = [
        seen
        for seen in snapshot.pods
        if name in (seen.name, seen.pod.name, seen.gang, (seen.gang or "").rpartition("/")[2])
    ]
    mine = [seen_pod for seen_pod in mine if seen_pod.pod.node is not None]
    if not mine:
        return None
    facts = [
        f"pod {pod.name} is on {pod.pod.node} ({states.get(pod.pod.node or '', 'unknown')})"
        for pod in mine[:MOST_LISTED]
    ]
    facts += [f"it has {gang.size_text}" for gang in snapshot.elastic if gang.name == mine[0].gang]
    kind = "run" if mine[0].gang is not None and name not in (mine[0].name, mine[0].pod.name) else "pod"
    return Explained(kind=kind, name=name, headline=f"{kind} {name} waits for no machine", facts=tuple(facts))
