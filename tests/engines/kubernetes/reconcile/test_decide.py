"""What comes next: a Snapshot in, a Turn out. Tables first, then a simulated life with random interruptions."""

from __future__ import annotations

import msgspec
import pytest

from longboat.core.runs import Failure
from longboat.engines.kubernetes.explain.containers import StartTrouble
from longboat.engines.kubernetes.observe.node_loss import LATE_S
from longboat.engines.kubernetes.observe.snapshot import HostView, QueueView, RunSnapshot
from longboat.engines.kubernetes.observe.termination import GangEnd, PodEnd, RankEnd
from longboat.engines.kubernetes.reconcile.actions import (
    Admit,
    CreateAttempt,
    Decision,
    Delete,
    DeleteWorkloads,
    ForceDelete,
    SendStop,
)
from longboat.engines.kubernetes.reconcile.decide import SLOW_TROUBLE_S, TROUBLE_S, decide
from longboat.engines.kubernetes.reconcile.handover import HANDOVER_S
from longboat.engines.kubernetes.reconcile.survivors import LINGER_S, TELL_S
from longboat.engines.kubernetes.records import Gate, State
from longboat.engines.kubernetes.status import brief_status, make_status
from longboat.engines.shared.stop_request import StopRequest
from tests.engines.kubernetes.run_samples import (
    NOW,
    ended,
    gone_by,
    job,
    opened,
    pod,
    record,
    retried,
    running,
    snapshot,
    verdict,
    workload,
)

PENDING = State()
LOST_S = 60.0


def taken(seen: RunSnapshot, now: float = NOW) -> tuple[State, Decision]:
    turn = decide(seen, now)
    return turn.state or seen.state, turn


def test_the_first_attempt_is_made_by_nobody_who_looks() -> None:
    """Only its submitter has shown that he may create it; without him the run is given up in the end."""
    seen = snapshot(state=PENDING, workloads=())
    assert decide(seen, NOW) == Decision(again_at=seen.made + HANDOVER_S)
    state, turn = taken(seen, seen.made + HANDOVER_S)
    assert (state.phase, state.cause, turn.actions) == ("failed", "lost", ()) and "interrupted" in state.reason


def test_a_submitter_that_uploads_for_long_and_lives_is_waited_for() -> None:
    seen = snapshot(state=PENDING, workloads=())
    alive = msgspec.structs.replace(seen, submitter_alive=seen.made + 500)
    assert decide(alive, alive.made + 600) == Decision(again_at=alive.made + 500 + HANDOVER_S)
    assert taken(alive, alive.made + 500 + HANDOVER_S)[0].phase == "failed"


def test_a_node_that_still_sends_a_checkpoint_after_another_failed_is_left_alone() -> None:
    """It knows of the failure, and told to stop it would not finish what the next attempt resumes from."""
    state = State(phase="running", attempts=(opened(),), started=NOW - 30, broken=NOW)
    seen = snapshot(running(0), ended(1, 3, cause="exit"), job_=job(grace_s=30.0), state=state)
    for later in (41, 101, 1700):
        assert decide(seen, NOW + later).actions == (), later
    assert [type(action) for action in decide(seen, NOW + 1801).actions] == [SendStop]
    assert [type(action) for action in decide(seen, NOW + 1900).actions] == [Delete]


def test_what_the_record_says_of_its_age_does_not_give_it_more_time() -> None:
    forged = msgspec.structs.replace(record(), created=NOW + 1e9)
    seen = snapshot(state=PENDING, workloads=(), record=forged)
    assert taken(seen, seen.made + HANDOVER_S)[0].phase == "failed"


def test_an_attempt_of_which_only_a_part_was_made_is_completed() -> None:
    roles = retried(roles={"chief": 1, "worker": 1})
    first = (workload(attempt=1),)
    second = State(phase="recovering", attempt=1, attempts=(opened(ended=NOW),))
    assert decide(snapshot(job_=roles, state=second, workloads=first), NOW).actions == (CreateAttempt(attempt=1),)
    half = snapshot(job_=roles, state=PENDING, workloads=(workload(),))
    assert decide(half, NOW).actions == ()
    state, turn = taken(half, half.made + HANDOVER_S)
    assert state.phase == "failed" and turn.actions == (DeleteWorkloads(attempt=0),)


def test_an_attempt_that_is_there_is_noted_with_the_time_of_its_making() -> None:
    state, turn = taken(snapshot(state=PENDING))
    assert [(one.number, one.started) for one in state.attempts] == [(0, NOW - 50)]
    assert (state.phase, turn.actions) == ("pending", ())


def test_phases_follow_the_pods() -> None:
    scheduled = {"is_scheduled": True, "host": "node-0"}
    stages = [
        ((pod(0), pod(1)), "pending"),
        ((pod(0, **scheduled), pod(1)), "pending"),
        ((pod(0, **scheduled), pod(1, **scheduled)), "starting"),
        ((running(0), pod(1, **scheduled)), "starting"),
        ((running(0), running(1)), "running"),
        ((ended(0), running(1)), "running"),
    ]
    for pods, phase in stages:
        state, _ = taken(snapshot(*pods, state=PENDING))
        assert state.phase == phase, pods


def test_a_retry_that_starts_is_recovering_and_keeps_its_reason() -> None:
    before = State(phase="recovering", reason="rank 0 exit: 3; retry 1 of 1", attempt=1, attempts=(opened(0),))
    seen = snapshot(state=before, workloads=(workload(0), workload(1)), job_=retried())
    state, _ = taken(seen)
    assert (state.phase, state.attempt) == ("recovering", 1)
    pods = (running(0, attempt=1), running(1, attempt=1))
    state, _ = taken(snapshot(*pods, state=state, workloads=(workload(0), workload(1)), job_=retried()))
    assert (state.phase, state.reason) == ("running", "")


def test_the_same_observation_twice_changes_nothing() -> None:
    seen = snapshot(running(0), running(1), state=PENDING)
    state, _ = taken(seen)
    again = decide(msgspec.structs.replace(seen, state=state), NOW + 1)
    assert again.state is None and again.actions == ()


def test_success_ends_the_run() -> None:
    state, turn = taken(snapshot(ended(0, gang=verdict(), resumed_from="/c/step-2"), ended(1)))
    assert (state.phase, state.exit_code, state.cause, state.reason) == ("succeeded", 0, None, "")
    assert state.ended == NOW - 5 and state.started == NOW - 30
    assert (state.attempts[0].ended, state.attempts[0].resumed_from) == (NOW - 5, "/c/step-2")


def test_the_steps_of_an_ended_run_are_kept_in_its_record() -> None:
    ranks = (RankEnd(rank=2, step=7), RankEnd(rank=3, step=9), RankEnd(rank=4, step=9))
    seen = snapshot(ended(0, gang=verdict()), ended(1, ranks=ranks, metrics={"loss": 0.25}))
    state, _ = taken(seen)
    assert (state.step, state.metrics) == (9, {"loss": 0.25})
    gone = brief_status(seen.record, state)
    assert (gone.step, gone.metrics) == (9, {"loss": 0.25})
    there = make_status(msgspec.structs.replace(seen, state=state), {})
    assert (there.step, there.metrics) == (9, {"loss": 0.25})
    assert [rank.metrics for rank in there.ranks] == [{}, {}, {"loss": 0.25}, {}]
    expired = make_status(snapshot(state=state), {})
    assert (expired.step, expired.metrics) == (9, {"loss": 0.25})


def test_a_failure_is_tried_again_after_its_pause() -> None:
    seen = snapshot(ended(0, gang=verdict(3, "exit", "boom")), ended(1), job_=retried())
    state, turn = taken(seen)
    assert (state.phase, state.attempt, state.not_before, turn.again_at) == ("recovering", 1, NOW + 2, NOW + 2)
    assert "retry 1 of 1" in state.reason
    later = msgspec.structs.replace(seen, state=state)
    assert decide(later, NOW + 1).actions == ()
    assert decide(later, NOW + 2).actions == (CreateAttempt(attempt=1),)


def test_retries_end() -> None:
    state, _ = taken(snapshot(ended(0, gang=verdict(3, "exit", "boom")), ended(1)))
    assert (state.phase, state.exit_code, state.cause) == ("failed", 3, "exit")
    assert state.attempts[0].failure == Failure(cause="exit", exit_code=3, message="boom")


def test_no_attempt_begins_while_a_pod_of_another_lives() -> None:
    state = State(phase="recovering", attempt=1, attempts=(opened(0),))
    turn = decide(snapshot(ended(0), running(1), state=state, job_=retried()), NOW)
    assert turn.actions == () and turn.again_at is not None


def test_an_attempt_is_judged_only_when_all_its_pods_have_ended() -> None:
    state, _ = taken(snapshot(ended(0, gang=verdict(3, "exit")), running(1), job_=retried()))
    assert state.attempt == 0 and state.phase == "running"


# the stop


STOP = StopRequest(at=NOW - 1)


def test_a_run_that_has_no_attempt_stops_at_once() -> None:
    state, turn = taken(snapshot(state=PENDING, workloads=(), stop=STOP))
    assert (state.phase, state.exit_code, turn.actions) == ("stopped", None, ())


def test_between_attempts_the_last_exit_code_stays() -> None:
    failed = opened(failure=Failure(cause="exit", exit_code=3, message=""), ended=NOW - 5)
    before = State(phase="recovering", attempt=1, attempts=(failed,), not_before=NOW + 60)
    state, _ = taken(snapshot(ended(0, 3), ended(1), state=before, stop=STOP, job_=retried()))
    assert (state.phase, state.exit_code, len(state.attempts)) == ("stopped", 3, 1)


@pytest.mark.parametrize("pods", [(), (pod(0), pod(1)), (running(0), pod(1)), (running(0),)])
def test_what_has_not_started_is_removed(pods: tuple[object, ...]) -> None:
    state, turn = taken(snapshot(*pods, stop=STOP))  # type: ignore[arg-type]
    assert turn.actions == (DeleteWorkloads(attempt=0, grace_s=30.0),) and not state.is_final
    gone, _ = taken(snapshot(state=state, workloads=(), stop=STOP))
    assert (gone.phase, gone.exit_code) == ("stopped", None)


def test_a_run_that_waits_at_the_gate_is_removed_too() -> None:
    held = snapshot(workloads=(workload(is_suspended=True),), record=record(gated_by="longboat"), stop=STOP)
    assert decide(held, NOW).actions == (DeleteWorkloads(attempt=0, grace_s=30.0),)


def test_a_gang_that_runs_is_told_once() -> None:
    seen = snapshot(running(0), running(1), stop=StopRequest(at=NOW - 1, grace_s=5.0))
    turn = decide(seen, NOW)
    assert turn.actions == (SendStop(pod="train-a0-worker-0", grace_s=5.0),)
    assert turn.after is not None and turn.after.told == NOW - 1
    told = msgspec.structs.replace(seen, state=turn.after)
    again = decide(told, NOW + 1)
    assert again.actions == () and again.again_at == NOW + 5 + TELL_S
    shorter = msgspec.structs.replace(told, stop=StopRequest(at=NOW + 2, grace_s=0.0))
    assert decide(shorter, NOW + 2).actions == (SendStop(pod="train-a0-worker-0", grace_s=0.0),)
    assert decide(told, NOW + 5 + TELL_S).actions == (DeleteWorkloads(attempt=0, grace_s=0.0),)


@pytest.mark.parametrize(
    ("started", "words"), [(None, "stopped before its ranks started"), (NOW - 9, "stopped on request")]
)
def test_a_stop_whose_pods_say_nothing_knows_whether_ranks_had_started(started: float | None, words: str) -> None:
    """Their node was lost, or somebody removed them."""
    before = State(phase="running", attempts=(opened(),), started=started)
    gone, _ = taken(snapshot(state=before, workloads=(), stop=STOP))
    assert (gone.phase, gone.exit_code, gone.reason) == ("stopped", None, words)
    unopened, _ = taken(snapshot(state=State(phase="running", started=started), workloads=(), stop=STOP))
    assert unopened.reason == words


def test_a_stopped_gang_has_its_exit_code() -> None:
    pods = (ended(0, 143, gang=verdict(143), ended_by="stop"), ended(1, 143))
    state, _ = taken(snapshot(*pods, stop=STOP, job_=retried(5)))
    assert (state.phase, state.exit_code, state.attempt, state.cause) == ("stopped", 143, 0, None)


# what goes wrong


NOT_THERE = StartTrouble(what="no image of this name", hint="check it", cause="image", is_final=True)
SLOW = StartTrouble(what="the registry cannot be reached", cause="image")


@pytest.mark.parametrize(("trouble", "patience"), [(NOT_THERE, TROUBLE_S), (SLOW, SLOW_TROUBLE_S)])
def test_an_image_that_cannot_be_had_ends_the_attempt(trouble: StartTrouble, patience: float) -> None:
    stuck = pod(1, is_scheduled=True, trouble=trouble)
    due = stuck.created + patience
    early, turn = taken(snapshot(running(0), stuck), due - 1)
    assert early.attempts[0].failure is None and turn.again_at == due and trouble.what in early.reason
    state, turn = taken(snapshot(running(0), stuck), due)
    assert turn.actions == (DeleteWorkloads(attempt=0),) and not state.is_final
    gone, _ = taken(snapshot(state=state, workloads=()), due + 5)
    assert (gone.phase, gone.exit_code, gone.cause) == ("failed", 209, "image") and "worker-1" in gone.reason


@pytest.mark.parametrize(
    ("host", "is_fenced"),
    [
        (HostView(name="node-0", is_there=False), True),
        (HostView(name="node-0", not_ready_since=NOW - LOST_S - 1), True),
        (HostView(name="node-0", not_ready_since=NOW - LOST_S + 1), False),
        (HostView(name="node-0"), False),
    ],
)
def test_pods_of_a_lost_machine_are_fenced(host: HostView, is_fenced: bool) -> None:
    seen = snapshot(ended(0, 208, cause="lost"), running(1, is_unready=True), hosts={"node-0": host})
    fences = [action for action in decide(seen, NOW).actions if isinstance(action, ForceDelete)]
    assert fences == ([ForceDelete(pod="train-a0-worker-1", uid="uid-train-a0-worker-1")] if is_fenced else [])


def test_an_earlier_attempts_pod_on_a_lost_machine_holds_nobody_up() -> None:
    state = State(phase="recovering", attempt=1, attempts=(opened(0),))
    gone = {"node-0": HostView(name="node-0", is_there=False)}
    turn = decide(snapshot(ended(0), running(1), state=state, hosts=gone, job_=retried()), NOW)
    assert turn.actions == (
        ForceDelete(pod="train-a0-worker-1", uid="uid-train-a0-worker-1"),
        DeleteWorkloads(attempt=0, is_lost=True),
        CreateAttempt(attempt=1),
    )


SILENT = ended(1, 208, cause="lost", message="nothing was heard of node worker-0 for 30 s", at=NOW - 1)


def test_the_node_of_who_outlives_a_dead_one_is_looked_into_in_time() -> None:
    """A pod whose node was deleted stays as it was until the cluster collects it, a minute later."""
    turn = decide(snapshot(running(0, host="node-9"), SILENT), NOW)
    assert turn.again_at is not None and NOW < turn.again_at < NOW + LATE_S


@pytest.mark.parametrize("cause", ["lost", "preemption"])
def test_a_deleted_node_whose_pods_were_collected_is_named(cause: str) -> None:
    collected = gone_by(0, PodEnd(exit_code=208, cause=cause, message="the pod was taken away: PodGC"), host="node-9")
    hosts = {"node-9": HostView(name="node-9", is_there=False)}
    over, _ = taken(snapshot(collected, SILENT, hosts=hosts), NOW)
    failure = over.attempts[0].failure
    assert failure is not None and failure.message.startswith("node node-9 (worker-0) is gone from the cluster")


def test_jobs_deleted_by_somebody_fail_the_run() -> None:
    state, _ = taken(snapshot(workloads=()))
    assert (state.phase, state.exit_code, state.cause) == ("failed", 208, "lost")


def test_what_a_slow_process_made_after_the_end_is_removed() -> None:
    final = State(phase="stopped", attempts=(opened(),))
    assert decide(snapshot(running(0), state=final), NOW).actions == (DeleteWorkloads(attempt=0),)
    assert decide(snapshot(ended(0), ended(1), state=final), NOW).actions == ()


def test_pods_that_outlive_the_verdict_are_stopped_and_then_deleted() -> None:
    seen = snapshot(ended(0, 3, gang=verdict(3, "setup"), at=NOW), running(1))
    due = NOW + 30 + LINGER_S
    early = decide(seen, NOW + LATE_S + 1)
    assert early.actions == () and early.again_at == due
    assert decide(seen, due).actions == (SendStop(pod="train-a0-worker-1", grace_s=0.0),)
    dropped = decide(seen, due + LINGER_S + 1).actions
    assert dropped == (Delete(pod="train-a0-worker-1", uid="uid-train-a0-worker-1"),)


@pytest.mark.parametrize("said", [verdict(0), verdict(3, "exit"), verdict(1, "timeout")])
def test_who_closes_after_the_verdict_of_a_gang_that_met_has_its_time(said: GangEnd) -> None:
    """Another node than 0 may be the one that sends checkpoints; all copy artifacts, and wait for readers of logs."""
    seen = snapshot(ended(0, said.exit_code or 0, gang=said, at=NOW), running(1))
    for later in (41, 61, 1700):
        assert decide(seen, NOW + later).actions == (), later
    assert [type(action) for action in decide(seen, NOW + 1801).actions] == [SendStop]


# the gate and the queue


def test_a_closed_gate_is_asked() -> None:
    held = snapshot(workloads=(workload(is_suspended=True),), record=record(gated_by="longboat"), state=PENDING)
    state, turn = taken(held)
    assert turn.actions == (Admit(attempt=0),) and state.phase == "pending"


def test_a_gang_that_was_let_in_and_does_not_get_going_is_shown_to_the_gate_again() -> None:
    state = State(phase="pending", attempts=(opened(),), gate=Gate(let_in=NOW - 10, not_before=NOW + 5))
    seen = snapshot(running(0), pod(1), record=record(gated_by="longboat"), state=state)
    turn = decide(seen, NOW)
    assert turn.actions == () and turn.again_at == NOW + 5
    assert decide(seen, NOW + 5).actions == (Admit(attempt=0),)
    complete = msgspec.structs.replace(seen, pods=(running(0), running(1)))
    assert decide(complete, NOW + 5).actions == ()


def test_a_run_in_a_queue_says_what_the_queue_says() -> None:
    held = snapshot(
        workloads=(workload(is_suspended=True),),
        record=record(gated_by="kueue", queue="research"),
        queue=QueueView(message="waits for 1 GPU in queue research; held by other"),
        state=PENDING,
    )
    state, turn = taken(held)
    assert turn.actions == () and state.phase == "pending"
    assert state.reason == "waits for 1 GPU in queue research; held by other"
    nothing = decide(msgspec.structs.replace(held, queue=None), NOW).state
    assert nothing is not None and nothing.reason == "waits for the queue research"


def test_a_gang_that_its_queue_took_back_has_been_preempted() -> None:
    seen = snapshot(
        workloads=(workload(is_suspended=True),),
        record=record(retried(), gated_by="kueue"),
        queue=QueueView(is_evicted=True, message="preempted by a higher priority"),
    )
    state, turn = taken(seen)
    assert turn.actions == (DeleteWorkloads(attempt=0),)
    state, _ = taken(msgspec.structs.replace(seen, state=state, workloads=()))
    assert (state.phase, state.attempt, state.cause) == ("recovering", 1, "preemption")


def test_a_record_that_is_being_deleted_is_left_alone() -> None:
    assert decide(snapshot(state=PENDING, workloads=(), is_deleting=True), NOW) == Decision()


def test_large_jobs_are_decided_quickly_enough_to_be_decided_often() -> None:
    """Not a matter of time but of shape: one pass over the pods, no matter how many."""
    many = job(nodes=2000)
    pods = tuple(running(index) for index in range(2000))
    state, _ = taken(snapshot(*pods, job_=many, state=PENDING))
    assert state.phase == "running"
