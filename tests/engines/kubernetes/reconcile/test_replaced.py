"""A member of a gang whose pod its Job makes anew: who is left alone meanwhile, and for how long. Tables."""

from __future__ import annotations

import msgspec
import pytest

from longboat.core.jobs import Retries
from longboat.engines.kubernetes.observe.progress import awaited_members, progress_of
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot, pod_view, pods_of_gang, with_failed
from longboat.engines.kubernetes.observe.termination import PodEnd
from longboat.engines.kubernetes.reconcile.actions import CreateAttempt, Delete, DeleteWorkloads, SendStop
from longboat.engines.kubernetes.reconcile.attempt_outcome import is_over
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.reconcile.survivors import KILLED_S, SETTLING_S, TELL_S
from longboat.engines.kubernetes.records import Gate, State
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

JOB = retried(2, nodes=3)


def gang(*pods: PodView, failed: tuple[str, ...] = (), **state: object) -> RunSnapshot:
    known = State(phase="running", attempts=(opened(),), started=NOW - 30, **state)  # type: ignore[arg-type]
    return snapshot(*pods, job_=JOB, state=known, failed_nodes=frozenset(failed))


PLACED = pod(1, is_scheduled=True, host="node-1")
STAYS = (running(0), running(2))


@pytest.mark.parametrize(
    ("pods", "failed", "awaited"),
    [
        (STAYS, (), ["worker-1"]),
        ((*STAYS, pod(1)), (), ["worker-1"]),
        ((*STAYS, PLACED), (), ["worker-1"]),
        ((*STAYS, running(1)), (), []),
        (STAYS, ("worker-1",), []),
        ((running(1), running(2)), (), []),
        ((*STAYS, ended(1, 137, cause="lost")), (), []),
        ((), (), []),
    ],
    ids=["gone", "made", "placed", "back", "its index has failed", "node 0", "killed", "all"],
)
def test_who_is_waited_for(pods: tuple[PodView, ...], failed: tuple[str, ...], awaited: list[str]) -> None:
    seen = gang(*pods, failed=failed)
    assert awaited_members(seen) == awaited
    turn = decide(seen, NOW)
    if awaited:
        assert turn.actions == (), "nobody ends the others"
        progress = progress_of(seen)
        assert (progress.phase, progress.is_complete) == ("running", True) and "worker-1" in progress.reason


def test_what_the_new_pod_waits_for_is_told() -> None:
    unplaced = pod(1, message="0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    words = "worker-1: the pod is replaced, the others wait for it; worker-1 waits for a place: 2 nodes"
    assert progress_of(gang(*STAYS, unplaced)).reason.startswith(words)
    assert progress_of(gang(*STAYS, PLACED)).reason.endswith("image and volumes are being made ready")


@pytest.mark.parametrize("job_", [job(nodes=3), job(nodes=3, retries=Retries(count=2, restart="new"))])
def test_without_restarts_in_place_a_pod_that_is_gone_ends_the_others(job_: object) -> None:
    seen = msgspec.structs.replace(gang(*STAYS), record=record(job_))  # type: ignore[arg-type]
    assert awaited_members(seen) == []
    state = decide(seen, NOW).state
    assert state is not None and state.broken == NOW


def test_a_gang_that_waits_for_a_pod_is_not_put_back_by_the_gate() -> None:
    seen = gang(*STAYS, pod(1), gate=Gate(let_in=NOW - 10_000))
    gated = msgspec.structs.replace(seen, record=record(JOB, gated_by="longboat"))
    assert decide(gated, NOW).actions == ()


def test_a_later_death_has_its_own_time() -> None:
    state = decide(gang(*STAYS, running(1), broken=NOW - 1000), NOW).state
    assert state is not None and state.broken == 0.0


def test_others_that_have_given_up_are_followed_by_new_pods() -> None:
    """The pod that came too late goes, and then the attempt is over."""
    gave_up = (ended(0, 209, cause="peers", gang=verdict(209, "peers", "worker-1 did not come")), ended(2, 0))
    (drop,) = decide(gang(*gave_up, pod(1)), NOW + 100).actions
    assert isinstance(drop, Delete) and drop.pod == pod(1).name
    (removal,) = decide(gang(*gave_up), NOW + 100).actions
    assert isinstance(removal, DeleteWorkloads)


@pytest.mark.parametrize(("pods", "dropped"), [(STAYS, 0), ((*STAYS, pod(1)), 1)])
def test_a_stop_meanwhile_is_told_to_those_who_wait(pods: tuple[PodView, ...], dropped: int) -> None:
    seen = msgspec.structs.replace(gang(*pods), stop=StopRequest(at=NOW, grace_s=None))
    actions = decide(seen, NOW).actions
    assert [type(action) for action in actions] == [SendStop, Delete][: 1 + dropped]
    assert isinstance(actions[0], SendStop) and actions[0].pod == running(0).name


def test_a_pod_that_has_asked_for_another_one_is_none_of_the_gang_any_more() -> None:
    def view(code: int) -> PodView:
        ended = {"name": "main", "state": {"terminated": {"exitCode": code, "message": ""}}}
        return pod_view({"metadata": {"name": f"p{code}"}, "status": {"phase": "Failed", "containerStatuses": [ended]}})

    pods = [view(213), view(208), view(137)]
    assert [each.name for each in pods_of_gang(record(JOB), pods).present] == ["p208"]
    assert pods_of_gang(record(job(nodes=3)), pods).present == tuple(pods), "whose Jobs make no other one"
    picky = job(nodes=3, retries=Retries(count=2, on=("lost", "exit")))
    assert [each.name for each in pods_of_gang(record(picky), pods).present] == ["p208", "p137"], "it may be for memory"


def test_node_0_is_never_replaced_and_its_verdict_counts() -> None:
    """Launchers of older versions end as their ranks do, with 213 too."""
    first = msgspec.structs.replace(ended(0, 213, gang=verdict(213, "exit")), is_replaced=True)
    assert pods_of_gang(record(JOB), (first, running(2))).present == (first, running(2))


def killed(index: int, **fields: object) -> PodView:
    end = PodEnd(exit_code=208, cause="lost", message="the launcher was killed before it could report", ended=NOW - 5)
    return msgspec.structs.replace(gone_by(index, end, **fields), is_killed=True)  # type: ignore[arg-type]


def seen_by(*pods: PodView, failed: tuple[str, ...] = ()) -> RunSnapshot:
    known = pods_of_gang(record(JOB), pods)
    seen = msgspec.structs.replace(gang(*known.present), replaced=known.replaced, late=known.late)
    return with_failed(seen, frozenset(failed))


def test_a_launcher_that_was_killed_is_waited_for_and_one_on_node_0_is_not() -> None:
    assert awaited_members(seen_by(*STAYS, killed(1))) == ["worker-1"]
    alone = seen_by(killed(0), running(1), running(2))
    state = decide(alone, NOW).state
    assert awaited_members(alone) == [] and state is not None and state.broken == NOW


def test_a_killed_launcher_whose_job_has_given_up_is_dead_and_named() -> None:
    """One that an older version made fails its index at once; so does one that was killed more often than retried."""
    seen = seen_by(*STAYS, killed(1), failed=("worker-1",))
    assert awaited_members(seen) == [] and [each.node for each in seen.pods] == ["worker-0", "worker-2", "worker-1"]
    state = decide(seen, NOW).state
    assert state is not None and state.broken == NOW


@pytest.mark.parametrize(
    ("retries", "wait_s"),
    [
        (Retries(count=2, restart="new"), KILLED_S),
        (Retries(count=0), KILLED_S),
        (Retries(count=2, on=("lost",)), SETTLING_S),
    ],
    ids=["new pods", "no retries", "a spare may take its place"],
)
def test_who_outlives_a_killed_launcher_is_told_soon_where_nobody_goes_on_without_it(
    retries: Retries, wait_s: float
) -> None:
    of_three = job(nodes=3, retries=retries)
    (*present,) = pods_of_gang(record(of_three), (*STAYS, killed(1))).present
    state = State(phase="running", attempts=(opened(),), started=NOW - 30, broken=NOW)
    seen = snapshot(*present, job_=of_three, state=state)
    early = decide(seen, NOW + wait_s - 0.1)
    assert (early.actions, early.again_at) == ((), NOW + wait_s)
    turn = decide(seen, NOW + wait_s)
    (order,) = turn.actions
    assert isinstance(order, SendStop) and order.pod == running(0).name
    assert turn.after is not None and turn.after.told_when == NOW + wait_s
    seen = msgspec.structs.replace(seen, state=turn.after)
    again = decide(seen, NOW + wait_s + 1.0)
    assert (again.actions, again.again_at) == ((), NOW + wait_s + of_three.grace_s + TELL_S), "once"
    alone = decide(msgspec.structs.replace(seen, pods=(killed(0), running(2), killed(1))), NOW + wait_s + 1.0)
    assert alone.actions == (SendStop(pod=running(2).name, grace_s=of_three.grace_s),), "nobody else does"


def test_who_comes_after_node_0_has_ended_is_late() -> None:
    """Its own second pod, and others in whose place there is nothing left to take part in; one that took part stays."""
    over = ended(0, 5, cause="exit", at=NOW - 5, gang=verdict(5, "exit"))
    second = msgspec.structs.replace(pod(0), name="again", created=NOW)
    after = msgspec.structs.replace(running(1), name="new", created=NOW - 20)
    for started, is_late in ((NOW - 15, False), (NOW - 1, True), (None, True)):
        new = msgspec.structs.replace(after, started=started)
        seen = seen_by(over, ended(2, 0), killed(1), new, second)
        assert [each.name for each in seen.late] == ["again", "new"][: 1 + is_late]
        drops = [action.pod for action in decide(seen, NOW).actions if isinstance(action, Delete)]
        assert drops == ["again", "new"][: 1 + is_late]


def test_the_next_attempt_waits_until_a_late_pod_is_gone_but_not_for_ever() -> None:
    """Two that came too late may have met, and train: for a moment the run would go on twice."""
    over = ended(0, 5, cause="exit", at=NOW - 5, gang=verdict(5, "exit"))
    second = msgspec.structs.replace(running(0), name="again", created=NOW, started=NOW)
    known = pods_of_gang(record(JOB), (over, ended(1, 0), ended(2, 0), second))
    between = State(phase="recovering", attempt=1, attempts=(opened(),), started=NOW - 30)
    for since, is_made in ((None, False), (NOW, False), (NOW - 60, True)):
        late = tuple(msgspec.structs.replace(each, deleting_since=since) for each in known.late)
        seen = snapshot(*known.present, job_=JOB, state=between)
        actions = decide(msgspec.structs.replace(seen, late=late), NOW).actions
        assert any(isinstance(action, CreateAttempt) for action in actions) is is_made


def test_an_attempt_whose_node_0_has_ended_waits_for_no_other_pod() -> None:
    over = ended(0, 5, cause="exit", gang=verdict(5, "exit"))
    assert is_over(seen_by(over, ended(2, 0), killed(1)), 0)
    assert not is_over(seen_by(running(0), ended(2, 0), killed(1)), 0)


def test_a_gang_that_its_queue_takes_back_meanwhile_has_been_preempted() -> None:
    """Its queue suspends the Jobs, which delete all pods: nobody is waited for."""
    queued = record(JOB, gated_by="kueue", queue="q")
    seen = gang(*STAYS)
    taken = msgspec.structs.replace(seen, record=queued, workloads=(workload(is_suspended=True),))
    turn = decide(taken, NOW)
    assert [type(action) for action in turn.actions] == [DeleteWorkloads]
    failure = turn.state.attempts[-1].failure if turn.state is not None else None
    assert failure is not None and failure.cause == "preemption"


def test_a_new_pod_that_cannot_be_prepared_ends_the_others_soon_and_is_to_blame() -> None:
    broken = ended(1, 3, cause="setup", message="setup failed: exit code 3")
    state = decide(gang(*STAYS, broken, restarts=1), NOW).state
    assert state is not None and state.broken == NOW
    (order,) = decide(gang(*STAYS, broken, restarts=1, broken=NOW), NOW + SETTLING_S).actions
    assert isinstance(order, SendStop) and order.pod == running(0).name
    stopped = (ended(0, 0, ended_by="stop", gang=verdict()), ended(2, 0, ended_by="stop"))
    after = decide(gang(*stopped, broken, restarts=1, broken=NOW), NOW + 10).state
    assert after is not None and (after.phase, after.cause, after.attempt) == ("recovering", "setup", 2)


@pytest.mark.parametrize(("store", "wait_s"), [(None, 10.0), ("s3://b/runs/train", 1800.0)])
def test_who_never_met_a_node_0_that_was_taken_away_meanwhile_is_told(store: str | None, wait_s: float) -> None:
    """No rank of that attempt had started. Where checkpoints are sent, a node may still be sending one of the last."""
    first = ended(0, 208, cause="preemption", at=NOW, gang=verdict(208, "preemption"))
    assert first.end is not None and first.end.said is not None
    said = msgspec.structs.replace(first.end.said, started=None)
    first = msgspec.structs.replace(first, end=msgspec.structs.replace(first.end, said=said))
    seen = gang(first, running(1), running(2), broken=NOW)
    grace_s = JOB.grace_s
    known = msgspec.structs.replace(seen, record=record(JOB, checkpoint_store=store))
    due = NOW + max(wait_s, grace_s + 10.0)
    assert decide(known, due - 1.0).actions == () and decide(known, due).actions != ()
