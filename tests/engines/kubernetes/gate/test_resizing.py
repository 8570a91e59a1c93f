"""Another size for an elastic run, as decisions: when it is asked for, what is noted, what the next attempt has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longboat.core.jobs import Job, Role
from longboat.engines.kubernetes.gate.resizing import told
from longboat.engines.kubernetes.manifests.objects import record_object
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.reconcile.actions import Admit, CreateAttempt, DeleteWorkloads, EndForSize, Resize
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.record_store import BadRecord, read_record
from longboat.engines.kubernetes.records import Gate, State, at_present
from longboat.engines.shared.stop_request import StopRequest
from tests.engines.kubernetes.run_samples import NOW, ended, opened, record, running, verdict, workload

ELASTIC = Job(
    name="train", roles=(Role(name="worker", run="true", nodes=4, min_nodes=2, max_nodes=4),), ends=("worker",)
)


def running_state(**fields: Any) -> State:
    gate = Gate(let_in=NOW - 60, not_before=NOW + 15)
    given = {"phase": "running", "attempts": (opened(size=2),), "size": 2, "gate": gate, "started": NOW - 40}
    return State(**{**given, **fields})


def elastic(*pods: Any, state: State, **fields: Any) -> RunSnapshot:
    fields.setdefault("workloads", (workload(state.attempt),))
    job = msgspec.structs.replace(ELASTIC, grow=fields.pop("grow", "checkpoint"))
    kept = at_present(record(job, gated_by="longboat"), state)
    return RunSnapshot(uid="u", version="7", pods=pods, record=kept, state=state, made=NOW - 60, **fields)


TWO = (running(0), running(1))


def test_a_run_that_has_all_its_pods_is_looked_at_again() -> None:
    turn = decide(elastic(*TWO, state=running_state()), NOW)
    assert turn.actions == () and turn.again_at == NOW + 15
    turn = decide(elastic(*TWO, state=running_state(gate=Gate(let_in=NOW - 60, not_before=NOW - 1))), NOW)
    assert turn.actions == (Admit(attempt=0),)


@pytest.mark.parametrize(("grow", "waits"), [("checkpoint", True), ("now", False)])
def test_a_wanted_size_is_asked_for_at_the_node_that_writes_checkpoints(grow: str, waits: bool) -> None:
    turn = decide(elastic(*TWO, state=running_state(wanted=4), grow=grow), NOW)
    assert turn.actions == (Resize(pod="train-a0-worker-0", size=4, waits=waits),)
    starting = elastic(*TWO, state=running_state(wanted=4, phase="starting", attempts=(opened(),)))
    assert starting.record.job.nodes == 2


def test_a_gang_is_told_to_end_only_once_it_is_noted_for_which_size() -> None:
    noted = running_state(wanted=4, target=4)
    turn = decide(elastic(*TWO, state=noted), NOW)
    assert turn.actions == (EndForSize(pod="train-a0-worker-0", grace_s=30),)
    told_already = msgspec.structs.replace(noted, told_when=NOW - 1)
    turn = decide(elastic(*TWO, state=told_already), NOW)
    assert turn.actions == () and turn.again_at == NOW - 1 + 30 + 30
    assert decide(elastic(*TWO, state=told_already), NOW + 60).actions == (
        EndForSize(pod="train-a0-worker-0", grace_s=30),
    )


@pytest.mark.parametrize(
    ("seen", "newest", "waits", "after"),
    [
        (None, None, True, ("", None)),
        (None, "step-1", True, ("step-1", None)),
        ("", None, True, ("", None)),
        ("", "step-1", True, ("", 4)),
        ("step-1", "step-1", True, ("step-1", None)),
        ("step-1", "step-2", True, ("step-1", 4)),
        (None, None, False, (None, 4)),
    ],
)
def test_it_ends_at_the_next_checkpoint(
    seen: str | None, newest: str | None, waits: bool, after: tuple[Any, ...]
) -> None:
    state = told(running_state(wanted=4, seen=seen), 4, newest, waits=waits)
    assert (state.seen, state.target) == after


STOPPED = (
    ended(0, gang=verdict(), ended_by="stop", at=NOW - 3),
    ended(1, ended_by="stop", at=NOW - 3),
)


def test_the_next_attempt_has_the_size_and_costs_no_retry() -> None:
    state = running_state(wanted=4, target=4, seen="step-1", size_reason="grows from 2 to 4 nodes")
    turn = decide(elastic(*STOPPED, state=state), NOW)
    new = turn.state
    assert new is not None
    assert (new.phase, new.attempt, new.size, new.resizes) == ("recovering", 1, 4, 1)
    assert (new.wanted, new.target, new.seen, new.gate) == (None, None, None, Gate(fits=True))
    assert new.attempts[0].resized == "grows from 2 to 4 nodes" and new.attempts[0].failure is None
    assert at_present(record(ELASTIC), new).job.retries.last_attempt == 1
    following = elastic(*STOPPED, state=new, workloads=(workload(0, is_complete=True),))
    assert decide(following, NOW).actions == (CreateAttempt(attempt=1),)
    assert following.record.job.roles[0].nodes_before == 2


def test_a_stop_by_the_user_is_a_stop() -> None:
    state = running_state(wanted=4, target=4)
    turn = decide(elastic(*STOPPED, state=state, stop=StopRequest(at=NOW - 5)), NOW)
    assert turn.state is not None and turn.state.phase == "stopped"


def test_a_success_meanwhile_is_a_success() -> None:
    pods = (ended(0, gang=verdict()), ended(1))
    turn = decide(elastic(*pods, state=running_state(wanted=4, target=4)), NOW)
    assert turn.state is not None and turn.state.phase == "succeeded"


def test_what_waited_with_another_size_is_removed() -> None:
    state = State(phase="pending", attempt=1, size=4, resizes=1, gate=Gate(fits=True))
    turn = decide(elastic(state=state, workloads=(workload(0, is_suspended=True),)), NOW)
    assert turn.actions == (DeleteWorkloads(attempt=0), CreateAttempt(attempt=1))


def test_it_begins_with_its_smallest_size_and_keeps_its_bounds() -> None:
    submitted = record(ELASTIC)
    assert at_present(submitted, State()).job.nodes == 2
    assert [at_present(submitted, State(size=size)).job.nodes for size in (-7, 1, 3, 10**9)] == [2, 2, 3, 4]
    assert at_present(submitted, State(resizes=10**6)).job.retries.last_attempt == 1000


@pytest.mark.parametrize("most", [50_001, 10**9, 10**15])
def test_a_record_with_a_range_out_of_all_bounds_is_damaged(most: int) -> None:
    role = Role(name="worker", run="true", nodes=1, min_nodes=1, max_nodes=most)
    written = record(msgspec.structs.replace(ELASTIC, roles=(role,)))
    with pytest.raises(BadRecord, match="nodes"):
        read_record(record_object(written, State(size=10**9)))
    read_record(record_object(record(ELASTIC), State(size=10**9)))


def test_members_that_end_one_after_another_are_not_dead() -> None:
    """Most programs know nothing of SIGTERM: their members leave with 143, and not all at once."""
    state = running_state(wanted=4, target=4, told_when=NOW - 5)
    codes: dict[str, Any] = {"ended_by": "stop", "code": 143}
    turn = decide(elastic(running(0), ended(1, at=NOW - 3, **codes), state=state), NOW)
    after = turn.state or state
    pods = (ended(0, gang=verdict(143), at=NOW - 1, **codes), ended(1, at=NOW - 3, **codes))
    new = decide(elastic(*pods, state=after), NOW).state
    assert new is not None and (new.phase, new.size, new.resizes) == ("recovering", 4, 1)
