"""Nodes that are about to go, as decisions: who is asked for a checkpoint when, and which runs end to move."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.core.jobs import Job, Role
from longboat.core.runs import Attempt
from longboat.engines.kubernetes.gate.resizing import told
from longboat.engines.kubernetes.observe.node_notices import TerminationNotice
from longboat.engines.kubernetes.observe.snapshot import HostView, RunSnapshot
from longboat.engines.kubernetes.reconcile.actions import AskToSave, Decision, EndForSize, Resize
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.records import Gate, NodeDeparture, State, at_present
from tests.engines.kubernetes.run_samples import NOW, ended, job, opened, record, running, verdict, workload

SPOT = TerminationNotice(taint="aws-node-termination-handler/spot-itn", least_s=120.0)
SOON = TerminationNotice(taint="cloud.google.com/impending-node-termination", least_s=30.0)
PERHAPS = TerminationNotice(taint="aws-node-termination-handler/rebalance-recommendation", least_s=None)
ELASTIC = Job(
    name="train", roles=(Role(name="worker", run="true", nodes=2, min_nodes=1, max_nodes=4),), ends=("worker",)
)
RIGID = job(nodes=2)
TWO = (running(0, host="n0"), running(1, host="n1"))
FIRST = "train-a0-worker-0"


def snapshot(job: Job, state: State, *pods: Any, **notices: TerminationNotice | None) -> RunSnapshot:
    hosts = {name: HostView(name=name, leaving=notice) for name, notice in notices.items()}
    kept = at_present(record(job, gated_by="longboat"), state)
    return RunSnapshot(
        uid="u", version="7", pods=pods or TWO, record=kept, state=state, made=NOW - 60, hosts=hosts,
        workloads=(workload(state.attempt),),
    )  # fmt: skip


def state_of(job: Job, **fields: Any) -> State:
    gate = Gate(let_in=NOW - 60, not_before=NOW + 15)
    size = 2 if job is ELASTIC else None
    attempts: tuple[Attempt, ...] = (opened(size=2) if job is ELASTIC else opened(),)
    given = {"phase": "running", "attempts": attempts, "size": size, "gate": gate, "started": NOW - 40}
    return State(**{**given, "hosts": {"worker-0": "n0", "worker-1": "n1"}, **fields})


def after(turn: Decision) -> State:
    assert turn.state is not None
    return turn.state


def test_a_run_of_one_size_is_asked_for_a_checkpoint_and_goes_on() -> None:
    turn = decide(snapshot(RIGID, state_of(RIGID), n1=SPOT), NOW)
    assert turn.actions == (AskToSave(pod=FIRST),)
    noted = after(turn)
    assert (noted.phase, noted.wanted, noted.target) == ("running", None, None)
    assert noted.reason == (
        "node n1 is about to go (taint aws-node-termination-handler/spot-itn): its ranks are asked for a checkpoint"
    )
    assert noted.departure == NodeDeparture(hosts=("n1",), since=NOW, due=NOW + 120 - 30 - 5)
    asked = msgspec.structs.replace(noted, departure=NodeDeparture(hosts=("n1",), told=NOW))
    assert decide(snapshot(RIGID, asked, n1=SPOT), NOW + 1).actions == (), "once"


def test_a_launcher_that_cannot_be_told_is_not_told_for_ever() -> None:
    """It may be cut off, and a taint may stay for days. An elastic run moves all the same."""
    noted = after(decide(snapshot(RIGID, state_of(RIGID), n1=PERHAPS), NOW))
    assert decide(snapshot(RIGID, noted, n1=PERHAPS), NOW + 50).actions == (AskToSave(pod=FIRST),)
    assert decide(snapshot(RIGID, noted, n1=PERHAPS), NOW + 3600).actions == ()

    seen = told(after(decide(snapshot(ELASTIC, state_of(ELASTIC), n1=SPOT), NOW)), 2, "step-1", waits=True)
    assert decide(snapshot(ELASTIC, seen, n1=SPOT), NOW + 85).actions == (Resize(pod=FIRST, size=2, waits=False),)


def test_another_node_that_goes_is_another_reason_to_save() -> None:
    state = state_of(RIGID, departure=NodeDeparture(hosts=("n1",), due=NOW + 40, told=NOW - 5))
    turn = decide(snapshot(RIGID, state, n0=SPOT, n1=SPOT), NOW)
    assert turn.actions == (AskToSave(pod=FIRST),)
    assert after(turn).departure == NodeDeparture(hosts=("n0", "n1"), since=NOW, due=NOW + 40)


def test_a_notice_for_a_node_of_others_says_nothing() -> None:
    assert decide(snapshot(RIGID, state_of(RIGID), n9=SPOT), NOW) == Decision()


def test_an_elastic_run_notes_which_checkpoint_it_has_then_asks_for_one_then_ends_with_it() -> None:
    turn = decide(snapshot(ELASTIC, state_of(ELASTIC), n1=SPOT), NOW)
    noted = after(turn)
    assert turn.actions == (Resize(pod=FIRST, size=2, waits=True),)
    assert (noted.wanted, noted.seen, noted.target) == (2, None, None)
    assert noted.size_reason == "moves: node n1 is about to go (taint aws-node-termination-handler/spot-itn)"

    seen = told(noted, 2, "step-1", waits=True)
    assert seen.seen == "step-1"
    assert decide(snapshot(ELASTIC, seen, n1=SPOT), NOW + 1).actions == (AskToSave(pod=FIRST),)

    assert seen.departure is not None
    asked = msgspec.structs.replace(seen, departure=msgspec.structs.replace(seen.departure, told=NOW + 1))
    assert decide(snapshot(ELASTIC, asked, n1=SPOT), NOW + 2).actions == (Resize(pod=FIRST, size=2, waits=True),)
    saved = told(asked, 2, "step-2", waits=True)
    assert saved.target == 2
    assert decide(snapshot(ELASTIC, saved, n1=SPOT), NOW + 3).actions == (EndForSize(pod=FIRST, grace_s=30),)

    stopped = (ended(0, gang=verdict(), ended_by="stop"), ended(1, ended_by="stop"))
    new = after(decide(snapshot(ELASTIC, saved, *stopped), NOW + 9))
    assert (new.phase, new.attempt, new.size, new.resizes, new.departure) == ("recovering", 1, 2, 1, None)
    assert new.attempts[0].resized == saved.size_reason and new.attempts[0].failure is None


@pytest.mark.parametrize(("notice", "due"), [(SPOT, NOW + 85), (SOON, NOW), (PERHAPS, None)])
def test_it_waits_for_a_checkpoint_as_long_as_the_node_stays(notice: TerminationNotice, due: float | None) -> None:
    noted = after(decide(snapshot(ELASTIC, state_of(ELASTIC), n1=notice), NOW))
    assert noted.departure is not None and noted.departure.due == due
    if due is None:
        assert noted.wanted is None, "a node that may stay is not left"
        return
    waiting = msgspec.structs.replace(noted, seen="", departure=msgspec.structs.replace(noted.departure, told=NOW))
    (action,) = decide(snapshot(ELASTIC, waiting, n1=notice), due).actions
    assert action == Resize(pod=FIRST, size=2, waits=False)


def test_what_is_smaller_anyway_stays_smaller() -> None:
    noted = after(decide(snapshot(ELASTIC, state_of(ELASTIC, wanted=1, seen="x"), n1=SPOT), NOW))
    assert (noted.wanted, noted.seen) == (1, None)
    noted = after(decide(snapshot(ELASTIC, state_of(ELASTIC, wanted=4, seen="x"), n1=SPOT), NOW))
    assert noted.wanted == 2


def test_a_notice_that_is_taken_back() -> None:
    departure = NodeDeparture(hosts=("n1",), due=NOW + 40, told=NOW - 5)
    state = state_of(ELASTIC, wanted=2, seen="step-1", departure=departure)
    new = after(decide(snapshot(ELASTIC, state, n1=None), NOW))
    assert (new.departure, new.wanted, new.seen, new.size_reason) == (None, None, None, "")
    unseen = decide(snapshot(ELASTIC, state), NOW).state or state
    assert unseen.departure == departure, "nobody has looked"
    ending = state_of(ELASTIC, target=2, departure=departure, told_when=NOW)
    assert after(decide(snapshot(ELASTIC, ending, n1=None), NOW)).target == 2, "it ends already"
