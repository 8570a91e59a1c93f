"""Marks of idle nodes: kept between turns, written after a while, removed when the node is used. Pure."""

from __future__ import annotations

import pytest

from longboat.autoscaler.act.idle_marks import MARKED_AFTER_S, UnwrittenMarks, due_marks
from longboat.autoscaler.model.plan import NodeNote, ScalingPlan
from longboat.autoscaler.model.snapshot import IDLE, UNDERUSED, ClusterSnapshot, NodeMemory
from longboat.core.times import format_time

NOW = 1_794_744_000.0
LONG_S = 600.0


def plan(**since: float | None) -> ScalingPlan:
    return ScalingPlan(nodes=(NodeNote(node="n", state="idle", reason="", pool="gpu", **since),))


def snapshot(**written: float | None) -> ClusterSnapshot:
    return ClusterSnapshot(memory=(NodeMemory(node="n", **written),))


@pytest.mark.parametrize(
    ("written", "noted", "idle_s", "expected"),
    [
        (None, NOW - 1, LONG_S, {}),
        (None, NOW - MARKED_AFTER_S, LONG_S, {IDLE: format_time(NOW - MARKED_AFTER_S)}),
        (None, NOW - 2, 6.0, {IDLE: format_time(NOW - 2)}),
        (None, NOW, 0.0, {IDLE: format_time(NOW)}),
        (NOW - 60, NOW - 60, LONG_S, {}),
        (NOW - 60, NOW - 1, LONG_S, {IDLE: format_time(NOW - 1)}),
        (NOW - 60, None, LONG_S, {IDLE: None}),
        (None, None, LONG_S, {}),
    ],
    ids=["begins", "lasts", "short idle time", "none", "written", "moved", "used again", "busy"],
)
def test_what_is_written(
    written: float | None, noted: float | None, idle_s: float, expected: dict[str, str | None]
) -> None:
    ((memory, marks),) = due_marks(plan(idle_since=noted), snapshot(idle_since=written), {"gpu"}, idle_s, NOW)
    assert memory.node == "n" and marks == expected


def test_nodes_of_other_pools_and_nodes_that_are_gone_are_left_alone() -> None:
    assert list(due_marks(plan(idle_since=1.0), snapshot(), {"other"}, LONG_S, NOW)) == []
    assert list(due_marks(plan(idle_since=1.0), ClusterSnapshot(), {"gpu"}, LONG_S, NOW)) == []


def test_a_node_that_could_be_emptied_is_marked_the_same_way() -> None:
    ((_, marks),) = due_marks(plan(underused_since=NOW - 60), snapshot(), {"gpu"}, LONG_S, NOW)
    assert marks == {UNDERUSED: format_time(NOW - 60)}


def test_what_is_not_written_yet_is_known_in_the_next_turn_and_in_no_later_one() -> None:
    marks = UnwrittenMarks()
    marks.keep(plan(idle_since=NOW - 3), snapshot())
    assert marks.filled(snapshot()).memory[0].idle_since == NOW - 3
    assert marks.filled(snapshot(idle_since=5.0)).memory[0].idle_since == 5.0, "what is written counts"
    marks.keep(plan(), snapshot())
    assert marks.filled(snapshot()).memory[0].idle_since is None


def test_a_mark_that_was_taken_away_is_not_put_back() -> None:
    """A machine that its provider does not let go is given back so: else it would be cordoned again at once."""
    marks = UnwrittenMarks()
    marks.keep(plan(idle_since=NOW - LONG_S, underused_since=NOW - 3), snapshot(idle_since=NOW - LONG_S))
    memory = marks.filled(snapshot()).memory[0]
    assert (memory.idle_since, memory.underused_since) == (None, NOW - 3)
    marks.keep(plan(idle_since=NOW), ClusterSnapshot())
    assert marks.filled(snapshot()).memory[0].idle_since is None, "of a node that nobody sees nothing is kept"
