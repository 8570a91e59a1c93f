"""Consolidation: which nodes are under-utilized, and which of those are drained onto others. Pure."""

from __future__ import annotations

from longboat.autoscaler.model.plan import NodeState
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.scale_down.node_usage import NodeTenants
from longboat.autoscaler.scale_down.state import ScaleDownState
from longboat.autoscaler.scale_up.relocation import moves_off
from longboat.core.times import show_age
from longboat.core.words import counted

MOST_LOOKED_AT = 64
"""Under-utilized nodes whose pods are tried elsewhere in one loop; the others come later."""

DRAINABLE: NodeState = "under-utilized-drainable"
UNDRAINABLE: NodeState = "under-utilized-undrainable"


def consolidate(used: list[NodeTenants], state: ScaleDownState) -> None:
    """Note the state of every node that is in use; cordon those whose pods fit on others, the dearest first."""
    ranked = []
    for tenants in used:
        share = tenants.utilization()
        percent = f"{share:.0%} used"
        if tenants.is_leaving:
            state.note(tenants.machine, "busy", f"{counted(len(tenants.work), 'pod')} on the way out, no other")
        elif share >= state.settings.utilization:
            state.note(tenants.machine, "busy", f"{counted(len(tenants.work), 'pod')}, {percent}")
        elif stays := tenants.kept() or tenants.unmovable() or state.allowances.why_not(tenants.work):
            state.note(tenants.machine, UNDRAINABLE, f"{percent}; {stays}")
        else:
            price = tenants.machine.pool.price if tenants.machine.pool is not None else 0.0
            ranked.append((-price, share, tenants.name, tenants))
    ranked.sort(key=lambda item: item[:3])
    may_go = {name for _, _, name, _ in ranked[:MOST_LOOKED_AT]}
    for number, (_, share, _, tenants) in enumerate(ranked):
        if number < MOST_LOOKED_AT:
            _consolidate_one(tenants, f"{share:.0%} used", may_go, state)
        else:
            reason = f"{share:.0%} used; its pods may be moved, others come first"
            state.note(tenants.machine, DRAINABLE, reason, under=tenants.underused_since() or state.now)


def _consolidate_one(tenants: NodeTenants, percent: str, may_go: set[str], state: ScaleDownState) -> None:
    """Its own pods and those that are to be moved here must fit elsewhere, on nodes that are not emptied themselves."""
    pool = tenants.machine.pool
    assert pool is not None
    going = {action.node for action in state.actions if action.kind == "cordon" and action.node}
    since = tenants.underused_since()
    blocked = state.allowances.why_not(tenants.work)
    pods = [*(pod.pod for pod in tenants.work), *state.arriving.get(tenants.name, ())]
    moves = blocked or moves_off(tenants.name, pods, state.fleets.ready, going, rather_not=may_go)
    if isinstance(moves, str):
        why = blocked or f"pod {moves} would find no place on other nodes"
        # Others of this very loop may have taken the room or the budget: it need not wait anew for that.
        state.note(tenants.machine, UNDRAINABLE, f"{percent}; {why}", under=since if going & may_go else None)
        return
    reason = f"{percent}; other nodes have room for its {counted(len(tenants.work), 'pod')}"
    why_not = why_wait(tenants, pool, state)
    if not why_not and state.act("cordon", tenants.machine, reason):
        state.drains -= 1
        state.staying[pool.name] -= 1
        state.allowances.take(tenants.work)
        state.relocate(moves)
        reason += ": cordoned"
    else:
        reason += f"; {why_not or 'goes when max_shrink_per_loop allows'}"
    state.note(tenants.machine, DRAINABLE, reason, under=since or state.now)


def why_wait(tenants: NodeTenants, pool: Pool, state: ScaleDownState) -> str:
    """Why a node whose pods have another place is not cordoned in this loop; empty: it is."""
    since = tenants.underused_since()
    waited = state.now - since if since is not None else 0.0
    if not state.settings.consolidate:
        return "consolidate is off"
    if waited < state.settings.idle_s:
        return f"moved after another {show_age(state.settings.idle_s - waited)}"
    if tenants.name in state.growth.needed:
        return f"{state.growth.needed[tenants.name]} waits for it"
    if pool.name in state.growth.bought:
        return "the pool grows in this very loop"
    if pool.name in state.growth.soon:
        return state.growth.soon[pool.name]
    if pool.zero_or_max:
        return "the pool has all of its machines or none"
    booting = state.booting.get(pool.name, 0)  # machines that may yet fail, and then this one would be missed
    if state.staying[pool.name] - booting <= pool.min:
        return f"the pool's min is {pool.min}"
    if booting and state.idle_count(pool.name) < state.settings.spare:
        return "the pool's spare machine is not ready yet"
    return "max_drains nodes are on their way out" if state.drains <= 0 else ""
