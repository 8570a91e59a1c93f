"""Consolidation: which nodes are under-utilized, and which of those are drained onto others. Pure."""

from __future__ import annotations

from longboat.autoscaler.model.plan import NodeState
from longboat.autoscaler.model.snapshot import Pool
from longboat.autoscaler.scale_down.node_usage import NodeTenants
from longboat.autoscaler.scale_down.state import ScaleDownState, count_of
from longboat.autoscaler.scale_up.relocation import move, moves_off
from longboat.core.times import show_age

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
            state.note(tenants.machine, "busy", f"{count_of(len(tenants.work), 'pod')} on the way out, no other")
        elif share >= state.settings.utilization:
            state.note(tenants.machine, "busy", f"{count_of(len(tenants.work), 'pod')}, {percent}")
        elif stays := tenants.kept() or tenants.unmovable() or state.allowances.why_not(tenants.work):
            state.note(tenants.machine, UNDRAINABLE, f"{percent}; {stays}")
        else:
            price = tenants.machine.pool.price if tenants.machine.pool is not None else 0.0
            ranked.append((-price, share, tenants.name, tenants))
    for number, (_, share, _, tenants) in enumerate(sorted(ranked, key=lambda item: item[:3])):
        if number < MOST_LOOKED_AT:
            _consolidate_one(tenants, f"{share:.0%} used", state)
        else:
            what = f"{share:.0%} used; its pods may be moved, others come first"
            state.note(tenants.machine, DRAINABLE, what, under=tenants.underused_since() or state.now)


def _consolidate_one(tenants: NodeTenants, percent: str, state: ScaleDownState) -> None:
    pool = tenants.machine.pool
    assert pool is not None
    going = {action.node for action in state.actions if action.kind == "cordon" and action.node}
    blocked = state.allowances.why_not(tenants.work)
    moves = blocked or moves_off(tenants.name, tenants.work, state.fleets.ready, going)
    if isinstance(moves, str):
        why = blocked or f"pod {moves} would find no place on other nodes"
        state.note(tenants.machine, UNDRAINABLE, f"{percent}; {why}")
        return
    since = tenants.underused_since()
    what = f"{percent}; other nodes have room for its {count_of(len(tenants.work), 'pod')}"
    why_not = _why_wait(tenants, pool, state.now - since if since is not None else 0.0, state)
    if not why_not and state.act("cordon", tenants.machine, what):
        state.drains -= 1
        state.staying[pool.name] -= 1
        state.allowances.take(tenants.work)
        move(moves, state.fleets.ready)
        what += ": cordoned"
    else:
        what += f"; {why_not or 'goes when max_shrink_per_loop allows'}"
    state.note(tenants.machine, DRAINABLE, what, under=since or state.now)


def _why_wait(tenants: NodeTenants, pool: Pool, waited: float, state: ScaleDownState) -> str:
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
    if state.staying[pool.name] <= pool.min:
        return f"the pool's min is {pool.min}"
    return "max_drains nodes are on their way out" if state.drains <= 0 else ""
