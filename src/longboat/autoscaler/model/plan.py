"""The autoscaler's plan: actions and, for everything left as it is, the reason. Values only."""

from __future__ import annotations

from typing import Literal

from longboat.autoscaler.model.backoff import BackoffWindow
from longboat.core.jobs import Value

ActionKind = Literal["grow", "cordon", "uncordon", "drain", "delete", "forget", "taint", "untaint"]
"""`forget`: a machine that was ordered and never joined is given back (its `machine` id is named).
`taint`, `untaint`: a node whose machine its provider takes back, or runs again; seen, not decided."""

NodeState = Literal[
    "busy",  # its pods need it
    "idle",  # nothing runs here, for less than `idle`
    "grace-period",  # joined so recently that it is given time
    "spare",  # idle, and kept on purpose (settings.spare, pool min)
    "under-utilized-drainable",  # its pods could run elsewhere
    "under-utilized-undrainable",  # little runs here, but it must not be moved
    "replaceable",  # its pods would do on one cheaper machine
    "idle-unschedulable",  # idle and cordoned by us: next to be deleted
    "draining",  # cordoned by us, pods are being evicted
    "booting",  # not ready yet, or its GPUs have not appeared
    "failed",  # not ready for longer than its pool's boot time allows
    "cordoned-by-person",
    "protected",  # an annotation forbids its removal
    "unmanaged",  # of no pool
]


class ScalingAction(Value, frozen=True):
    kind: ActionKind
    reason: str
    pool: str | None = None
    count: int | None = None  # of a grow
    zone: str | None = None  # of a grow in one zone only
    zones: dict[str, int] = {}  # of a grow: how many where, if the pool has zones
    node: str | None = None
    machine: str | None = None  # the provider's id, where it is known
    runs: tuple[str, ...] = ()  # whom it is for


class PendingItem(Value, frozen=True):
    """A pod or run that does not run yet, and why; what is being done about it."""

    reason: str
    pod: str | None = None  # namespace/name
    run: str | None = None  # gang
    pool: str | None = None  # where it is going to run
    expected: float | None = None  # when, if machines are on their way


class NodeNote(Value, frozen=True):
    node: str
    state: NodeState
    reason: str
    pool: str | None = None
    idle_since: float | None = None  # to be remembered: nothing has run here since
    underused_since: float | None = None  # to be remembered: what runs here could run elsewhere since


class PoolNote(Value, frozen=True):
    """Why a pool does (not) grow or shrink."""

    pool: str
    reason: str
    size: int = 0
    coming: int = 0  # on their way: ordered, or there and not ready
    ordered: int = 0  # of them, those that are no node yet
    blocked_until: float | None = None  # None: it may be asked, or is off until something changes (`backoffs`)
    backoffs: tuple[BackoffWindow, ...] = ()  # where it is not asked now


class ScalingPlan(Value, frozen=True):
    actions: tuple[ScalingAction, ...] = ()
    waiting: tuple[PendingItem, ...] = ()
    nodes: tuple[NodeNote, ...] = ()
    pools: tuple[PoolNote, ...] = ()
    next_s: float | None = None  # when to look again even if nothing changes
