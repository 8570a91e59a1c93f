"""Annotations that say since when a node is idle or underused: what is to be written on which, and what is not yet.

One that begins is written after a while only. Most nodes are used again before that, and neither the mark nor its
removal is written then. What is kept here may be lost: whoever begins anew counts from his own first look, and the
machine stays a little longer. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import msgspec

from longboat.autoscaler.model.plan import NodeNote, ScalingPlan
from longboat.autoscaler.model.snapshot import IDLE, UNDERUSED, ClusterSnapshot, NodeMemory
from longboat.core.times import format_time

MARKED_AFTER_S = 10.0
"""So long a node is idle before that is written on it, at most a third of how long it may be."""


class UnwrittenMarks:
    """What the turn before noted of nodes."""

    def __init__(self) -> None:
        self._notes: dict[str, NodeNote] = {}

    def filled(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """With what was noted, where nothing is written."""
        memory = tuple(self._with_note(memory) for memory in snapshot.memory)
        return msgspec.structs.replace(snapshot, memory=memory)

    def keep(self, plan: ScalingPlan, snapshot: ClusterSnapshot) -> None:
        """What the plan notes where `snapshot`, as the cluster has it, says nothing.

        A mark that was written and is gone in the next turn was taken away: by the actuator, for a machine that its
        provider does not let go, or by a person. The node is idle anew then.
        """
        known = {memory.node: memory for memory in snapshot.memory}
        self._notes = {
            note.node: msgspec.structs.replace(
                note,
                idle_since=None if known[note.node].idle_since is not None else note.idle_since,
                underused_since=None if known[note.node].underused_since is not None else note.underused_since,
            )
            for note in plan.nodes
            if note.node in known
        }

    def _with_note(self, memory: NodeMemory) -> NodeMemory:
        note = self._notes.get(memory.node)
        if note is None:
            return memory
        return msgspec.structs.replace(
            memory,
            idle_since=note.idle_since if memory.idle_since is None else memory.idle_since,
            underused_since=note.underused_since if memory.underused_since is None else memory.underused_since,
        )


def due_marks(
    plan: ScalingPlan, snapshot: ClusterSnapshot, pools: Container[str], idle_s: float, now: float
) -> Iterator[tuple[NodeMemory, dict[str, str | None]]]:
    """Nodes of these pools, as `snapshot` has them, with the annotations to be written on each; None removes one."""
    known = {memory.node: memory for memory in snapshot.memory}
    since = now - min(MARKED_AFTER_S, idle_s / 3)
    for note in plan.nodes:
        before = known.get(note.node)
        if note.pool not in pools or before is None:
            continue
        pairs = (
            (IDLE, before.idle_since, note.idle_since),
            (UNDERUSED, before.underused_since, note.underused_since),
        )
        yield (
            before,
            {
                key: _text(new)
                for key, old, new in pairs
                if _text(old) != _text(new) and (old is not None or (new is not None and new <= since))
            },
        )


def _text(moment: float | None) -> str | None:
    return None if moment is None else format_time(moment)
