"""Chained runs: nothing is asked of the gate for them until the runs before them have succeeded."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from longboat.core.runs import Phase
from longboat.engines.kubernetes.manifests.objects import record_object
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.reconcile.actions import Admit, DeleteWorkloads, Release
from longboat.engines.kubernetes.reconcile.chain import LONGEST_LOOK_S, MOST_DRIVEN, drive_predecessors
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.records import State, is_chained
from longboat.engines.lifecycle.predecessors import Predecessor, PredecessorView
from longboat.kubeapi.client import Client
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


def test_it_remembers_who_has_succeeded() -> None:
    both = msgspec.structs.replace(CHAINED, after=(*CHAINED.after, Predecessor(run="second", uid="2")))
    views = {"second": PredecessorView(uid="2", phase="running")}
    seen = chained(None, state=State(attempts=(opened(),), waits_for=("second",), succeeded=("first",)))
    turn = decide(msgspec.structs.replace(seen, record=both, predecessors=views), NOW)
    assert turn.actions == () and (turn.state is None or turn.state.succeeded == ("first",))
    views = {"second": PredecessorView(uid="2", phase="succeeded")}
    turn = decide(msgspec.structs.replace(seen, record=both, predecessors=views), NOW)
    assert turn.actions == (Release(attempt=0),) and turn.after is not None and turn.after.succeeded == ()


class Chain:
    """Records of a namespace; those driven end, if they do not wait for others."""

    namespace = "ns"

    def __init__(self, after: dict[str, tuple[str, ...]]) -> None:
        self.after = after
        self.ended: set[str] = set()
        self.read: list[str] = []
        self.driven: list[str] = []

    def find(self, _: Any, name: str) -> dict[str, Any] | None:
        if name not in self.after:
            return None
        self.read.append(name)
        before = tuple(Predecessor(run=one, uid="0" * 12) for one in self.after[name])
        waited = ", ".join(f"{one} (pending)" for one in self.after[name])
        waits = State(attempts=(opened(),), reason=f"waits until {waited} has succeeded")
        state = State(phase="succeeded") if name in self.ended else waits
        return record_object(record(name=name, after=before, gated_by="longboat"), state)

    def drive(self, run: str) -> State:
        self.driven.append(run)
        if all(before in self.ended for before in self.after[run]):
            self.ended.add(run)
            return State(phase="succeeded")
        return State()

    def drive_before(self, run: str) -> bool:
        views = {one: PredecessorView(uid="0" * 12, phase="pending") for one in self.after[run]}
        seen = msgspec.structs.replace(snapshot(), record=record(name=run), predecessors=views)
        return drive_predecessors(cast("Client", self), seen, lambda one: one.name != "foreign", self.drive)


def test_those_before_it_are_driven_the_earliest_first() -> None:
    chain = Chain({"last": ("middle", "first"), "middle": ("first",), "first": ()})
    assert chain.drive_before("last") and chain.driven == ["first", "middle"]
    assert not Chain({"alone": ()}).drive_before("alone")
    others = Chain({"last": ("foreign",), "foreign": ("first",), "first": ()})
    assert others.drive_before("last") and others.driven == []


def test_a_run_that_many_ways_lead_to_is_read_once() -> None:
    layers = {
        f"l{layer}-{one}": tuple(f"l{layer - 1}-{two}" for two in "abcd") for layer in range(1, 9) for one in "abcd"
    }
    chain = Chain({**layers, **{f"l0-{one}": () for one in "abcd"}})
    chain.drive_before("l8-a")
    assert len(chain.read) == len(set(chain.read)) == 32 == len(chain.driven)


def test_a_long_chain_is_driven_where_something_can_be_done() -> None:
    chain = Chain({"r0": (), **{f"r{number}": (f"r{number - 1}",) for number in range(1, 400)}})
    chain.drive = lambda run: chain.driven.append(run) or State()  # type: ignore[method-assign]
    chain.drive_before("r399")
    assert chain.driven == ["r0"]


def test_circles_and_endless_chains_come_to_an_end() -> None:
    circle = Chain({"a": ("b",), "b": ("c",), "c": ("a",)})
    circle.drive_before("a")
    assert sorted(circle.read) == ["b", "c"]
    endless = Chain({"r0": (), **{f"r{number}": (f"r{number - 1}",) for number in range(1, 2000)}})
    endless.drive_before("r1999")
    assert len(endless.read) <= MOST_DRIVEN
