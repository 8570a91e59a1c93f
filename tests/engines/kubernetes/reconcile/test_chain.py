"""Chained runs: nothing is asked of the gate for them until the runs before them have succeeded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.core.runs import Phase
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.reconcile.actions import Admit, DeleteWorkloads, Release
from longboat.engines.kubernetes.reconcile.chain import LONGEST_LOOK_S, drive_predecessors
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.records import State, is_chained
from longboat.engines.lifecycle.predecessors import Predecessor, PredecessorView
from tests.engines.kubernetes.run_samples import NOW, opened, record, snapshot, workload

CHAINED = record(gated_by="longboat", after=(Predecessor(run="first", uid="1"),))


def chained(phase: Phase | None, *, state: State | None = None, **fields: Any) -> RunSnapshot:
    views = {} if phase is None else {"first": PredecessorView(uid="1", phase=phase, exit_code=3)}
    seen = snapshot(state=state or State(attempts=(opened(),)), workloads=(workload(is_suspended=True),))
    return msgspec.structs.replace(seen, record=CHAINED, predecessors=views, **fields)


def test_it_waits_and_says_for_whom() -> None:
    turn = decide(chained("running"), NOW)
    assert turn.state is not None and (turn.state.phase, turn.state.waits_for) == ("pending", ("first",))
    assert turn.state.reason == "waits until first (running) has succeeded"
    assert turn.actions == () and turn.again_at is not None and NOW < turn.again_at <= NOW + LONGEST_LOOK_S


def test_its_mark_is_taken_off_before_it_is_noted_and_then_the_gate_is_asked() -> None:
    turn = decide(chained("succeeded"), NOW)
    assert turn.state is None and turn.actions == (Release(attempt=0),)
    assert turn.after is not None and turn.after.released and not is_chained(CHAINED, turn.after)
    assert decide(chained("succeeded", state=turn.after), NOW).actions == (Admit(attempt=0),)


@pytest.mark.parametrize(
    ("phase", "words"), [("failed", "failed (exit code 3)"), ("stopped", "stopped"), (None, "removed")]
)
def test_it_ends_with_the_reason(phase: Phase | None, words: str) -> None:
    turn = decide(chained(phase), NOW)
    assert turn.actions == (DeleteWorkloads(attempt=0),) and turn.state is not None
    gone = msgspec.structs.replace(chained(phase, state=turn.state), workloads=())
    final = decide(gone, NOW).state
    assert final is not None and (final.phase, final.cause, final.exit_code) == ("failed", "dependency", 209)
    assert words in final.reason


def test_who_has_not_looked_at_the_others_decides_nothing() -> None:
    turn = decide(msgspec.structs.replace(chained("failed"), predecessors=None), NOW)
    assert turn.state is None and turn.actions == ()


def test_those_before_it_are_driven() -> None:
    driven: list[str] = []
    assert drive_predecessors(chained("running"), driven.append) and driven == ["first"]
    assert not drive_predecessors(chained("succeeded"), driven.append) and driven == ["first"]
