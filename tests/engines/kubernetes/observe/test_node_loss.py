"""Nodes that are lost: what becomes of the attempt, as data."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.core.errors import NotFound
from longboat.engines.kubernetes.exec.files import pod_of
from longboat.engines.kubernetes.observe.node_loss import (
    LATE_S,
    LEAST_LOST_S,
    SLOW_S,
    digests_of,
    doubtful_hosts,
    is_reachable,
    with_losses,
)
from longboat.engines.kubernetes.observe.snapshot import HostView, PodView, RunSnapshot, pod_view
from longboat.engines.kubernetes.observe.termination import PodEnd
from longboat.engines.kubernetes.reconcile.actions import (
    CreateAttempt,
    Decision,
    Delete,
    DeleteWorkloads,
    ForceDelete,
    SendStop,
)
from longboat.engines.kubernetes.reconcile.attempt_outcome import judge
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.reconcile.survivors import LINE_LOST_S, SETTLING_S, TELL_S
from longboat.engines.kubernetes.records import State
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

RAN = State(phase="running", started=NOW - 300, attempts=(opened(),))


def silent(for_s: float, **fields: Any) -> dict[str, HostView]:
    return {"node-1": HostView(name="node-1", not_ready_since=NOW - for_s, **fields)}


GONE = {"node-1": HostView(name="node-1", is_there=False)}
LOST = silent(60.0)


def away(index: int = 1, **fields: Any) -> PodView:
    return running(index, host="node-1", is_unready=True, **fields)


def broken(for_s: float, **fields: Any) -> State:
    return State(phase="running", started=NOW - 300, attempts=(opened(),), broken=NOW - for_s, **fields)


def kinds(turn: Decision) -> list[str]:
    return [type(action).__name__ for action in turn.actions]


@pytest.mark.parametrize("hosts", [GONE, LOST, silent(3600.0), silent(60.0, said="the kubelet says so")])
def test_a_run_without_retries_ends_as_lost_and_names_the_node(hosts: dict[str, HostView]) -> None:
    seen = snapshot(ended(0, 208, cause="lost", gang=verdict(208, "lost", "silent")), away(), state=RAN, hosts=hosts)
    turn = decide(seen, NOW)
    assert turn.state is not None
    assert (turn.state.phase, turn.state.cause, turn.state.exit_code) == ("failed", "lost", 208)
    assert "node-1 (worker-1)" in turn.state.reason
    assert kinds(turn) == ["ForceDelete"], "the other pods stay, with their logs"


def test_the_next_attempt_waits_for_no_pod_of_a_lost_node() -> None:
    first = ended(0, 208, cause="lost", gang=verdict(208, "lost", "silent"))
    turn = decide(snapshot(first, away(), state=RAN, hosts=LOST, job_=retried(grace_s=5.0)), NOW)
    assert turn.state is not None and (turn.state.attempt, turn.state.phase) == (1, "recovering")
    assert "node-1" in turn.state.reason and turn.state.not_before == NOW + 2.0
    assert kinds(turn) == ["ForceDelete", "DeleteWorkloads"] and turn.actions[1] == DeleteWorkloads(
        attempt=0, is_lost=True
    )
    later = snapshot(first, away(is_forced=True), state=turn.state, workloads=(), hosts=LOST, job_=retried())
    assert decide(later, NOW + 2).actions == (CreateAttempt(attempt=1),)


def test_ranks_that_are_cut_off_have_their_grace_before_the_next_attempt_starts() -> None:
    first = ended(0, 208, cause="lost", gang=verdict(208, "lost", "silent"))
    state = decide(snapshot(first, away(), state=RAN, hosts=LOST, job_=retried(grace_s=90.0)), NOW).state
    assert state is not None and state.not_before == NOW - 60 + LINE_LOST_S + 90 + SETTLING_S


def test_a_node_that_is_silent_for_less_is_named_and_waited_for() -> None:
    turn = decide(snapshot(running(0), away(), state=RAN, hosts=silent(30.0)), NOW)
    assert turn.state is not None and turn.actions == ()
    assert turn.state.reason == "node node-1 (worker-1) is silent and is given up after 60 s"
    assert turn.again_at is not None and turn.again_at <= NOW + 5
    back = decide(snapshot(running(0), running(1, host="node-1"), state=turn.state), NOW)
    assert back.state is not None and back.state.reason == ""


def test_how_long_is_the_runs_own_setting() -> None:
    def is_lost(limit_s: float, for_s: float) -> bool:
        seen = snapshot(away(), state=RAN, hosts=silent(for_s), record=record(node_lost_s=limit_s))
        return with_losses(seen, NOW).pods[0].is_lost

    assert is_lost(20.0, 20.0) and not is_lost(20.0, 19.0) and not is_lost(600.0, 599.0)
    assert not is_lost(0.0, LEAST_LOST_S - 1), "whatever a record says"


def test_a_pod_that_is_unready_is_looked_at_again_although_its_node_is_not_known() -> None:
    turn = decide(snapshot(running(0), away(), state=RAN), NOW)
    assert turn.actions == () and turn.again_at is not None


@pytest.mark.parametrize("index", [0, 1])
def test_survivors_of_a_lost_node_are_told_then_deleted(index: int) -> None:
    """The other one never met it, or does not hear."""
    other = running(1 - index)
    first = decide(snapshot(away(index), other, state=RAN, hosts=LOST, job_=retried()), NOW)
    assert first.state is not None and first.state.broken == NOW
    assert "node-1" in first.state.reason and "the others are ending" in first.state.reason
    assert kinds(first) == ["ForceDelete", "SendStop"] and first.actions[1] == SendStop(pod=other.name, grace_s=30.0)
    state = broken(30.0 + TELL_S)
    late = decide(snapshot(away(index, is_forced=True), other, state=state, hosts=LOST, job_=retried()), NOW)
    assert late.actions == (Delete(pod=other.name, uid=other.uid),)
    over = snapshot(away(index), ended(1 - index, ended_by="stop"), state=state, hosts=LOST, job_=retried())
    state = decide(over, NOW).state or State()
    assert (state.attempt, state.cause) == (1, "lost") and "node-1" in state.reason


def test_a_lost_pod_and_one_that_is_gone_are_the_end_although_the_job_does_not_notice() -> None:
    seen = snapshot(away(0, is_forced=True), state=broken(10.0, hosts=WHERE), hosts=LOST, job_=retried())
    state = decide(seen, NOW).state
    assert state is not None and (state.attempt, state.cause) == (1, "lost") and "node-1" in state.reason


def test_an_attempt_that_never_ends_is_given_up() -> None:
    """A pod was lost before the other one was even created, and nobody creates it."""
    state = State(phase="pending", attempts=(opened(),), broken=NOW - 30 - TELL_S)
    turn = decide(snapshot(away(0, is_forced=True), state=state, hosts=LOST, job_=retried()), NOW)
    assert turn.actions == (DeleteWorkloads(attempt=0),)
    assert turn.state is not None and turn.state.attempts[0].failure is not None
    gone = snapshot(state=turn.state, workloads=(), hosts=LOST, job_=retried())
    assert (decide(gone, NOW).state or state).attempt == 1


def test_a_gang_that_succeeded_is_not_lost_because_its_job_does_not_notice() -> None:
    done = ended(0, 0, gang=verdict(0), at=NOW - 300)
    state = decide(snapshot(done, state=broken(300.0), job_=retried()), NOW).state
    assert state is not None and (state.phase, state.exit_code) == ("succeeded", 0)


def test_both_nodes_lost() -> None:
    turn = decide(snapshot(away(0), away(1), state=RAN, hosts=LOST, job_=retried()), NOW)
    assert kinds(turn) == ["ForceDelete", "ForceDelete", "DeleteWorkloads"]
    assert turn.state is not None and turn.state.attempt == 1 and "and 1 more" in turn.state.reason


@pytest.mark.parametrize("grace_s", [None, 0.0, 30.0])
def test_a_stop_waits_for_no_silent_node(grace_s: float | None) -> None:
    stop = StopRequest(at=NOW, grace_s=grace_s)
    seen = snapshot(running(0), away(), state=RAN, hosts=silent(3.0), stop=stop)
    first = decide(seen, NOW)
    assert [one.pod for one in first.actions if isinstance(one, SendStop)] == ["train-a0-worker-0"]
    assert [one.pod for one in first.actions if isinstance(one, ForceDelete)] == ["train-a0-worker-1"]
    over = snapshot(ended(0, 143, ended_by="stop"), away(is_forced=True), state=RAN, hosts=silent(4.0), stop=stop)
    state = decide(over, NOW).state
    assert state is not None and state.phase == "stopped"


def test_a_stop_when_node_0_is_silent_is_told_to_the_others() -> None:
    seen = snapshot(away(0), running(1), running(2), state=RAN, hosts=silent(3.0), stop=StopRequest(at=NOW))
    seen = snapshot(*seen.pods, state=RAN, hosts=silent(3.0), stop=StopRequest(at=NOW), job_=job(nodes=3))
    told = [one.pod for one in decide(seen, NOW).actions if isinstance(one, SendStop)]
    assert told == ["train-a0-worker-1", "train-a0-worker-2"]


def test_what_node_0_saw_before_is_not_overridden() -> None:
    """A rank failed by itself, or all had finished; then a node was lost."""
    failed = ended(0, 5, gang=verdict(5, "exit", "it failed"))
    found = judge(with_losses(snapshot(failed, away(), state=RAN, hosts=LOST), NOW), 0)
    assert found.failure is not None and (found.failure.cause, found.exit_code) == ("exit", 5)
    done = ended(0, 0, gang=verdict(0))
    assert judge(with_losses(snapshot(done, away(), state=RAN, hosts=LOST), NOW), 0).how == "succeeded"


@pytest.mark.parametrize(("at", "cause"), [(NOW - 58, "lost"), (NOW - 70, "exception")])
def test_a_rank_that_fails_after_the_silence_began_is_a_victim(at: float, cause: str) -> None:
    other = ended(1, 1, cause="exception", message="connection reset", at=at)
    seen = with_losses(snapshot(away(0), other, state=RAN, hosts=LOST), NOW)
    found = judge(seen, 0)
    assert found.failure is not None and found.failure.cause == cause


def test_a_node_that_was_deleted_with_its_pod_is_named() -> None:
    """The pod is gone with it: which node it ran on was noted when the gang ran."""
    turn = decide(snapshot(running(0), running(1, host="node-1"), state=RAN), NOW)
    assert turn.state is not None and turn.state.hosts == {"worker-0": "node-0", "worker-1": "node-1"}
    first = ended(0, 208, cause="lost", gang=verdict(208, "lost", "nothing was heard"))
    failed = (workload(failed="failed indexes"),)
    over = snapshot(first, state=turn.state, workloads=failed, hosts=GONE, job_=retried(grace_s=5.0))
    state = decide(over, NOW).state
    assert state is not None and "node node-1 (worker-1) is gone from the cluster" in state.reason
    assert state.not_before == NOW + 5 + SETTLING_S, "its ranks may live on there for their grace"


READY = {"node-1": HostView(name="node-1")}
WHERE = {"worker-0": "node-0", "worker-1": "node-1"}
EVICTED = verdict(208, "preemption", "node worker-1 was taken away by the cluster")


@pytest.mark.parametrize(
    ("left", "hosts", "settles"),
    [
        (ended(0, 208, cause="preemption", gang=EVICTED), {}, False),  # node 0 waited for it
        (ended(0, 208, cause="lost", gang=verdict(208, "lost", "silent")), READY, False),  # its kubelet saw it end
        (ended(0, 208, cause="lost", gang=verdict(208, "lost", "silent")), {}, True),
        (ended(0, 208, cause="lost", gang=verdict(208, "lost", "silent")), GONE, True),
    ],
)
def test_after_a_deleted_pod_only_an_end_that_nobody_saw_costs_the_grace(
    left: PodView, hosts: dict[str, HostView], settles: bool
) -> None:
    state = State(phase="running", started=NOW - 30, attempts=(opened(),), hosts=WHERE)
    seen = snapshot(left, state=state, workloads=(workload(failed="failed indexes"),), hosts=hosts, job_=retried())
    after = decide(seen, NOW).state
    assert after is not None and after.not_before == NOW + (30.0 + SETTLING_S if settles else 2.0)


KILLED = PodEnd(exit_code=208, cause="lost", message="the launcher was killed", ended=NOW - 1)
STARTING = State(phase="starting", attempts=(opened(),))


def test_node_0_killed_before_the_gang_has_met_ends_the_attempt() -> None:
    state = decide(snapshot(gone_by(0, KILLED), running(1), state=STARTING), NOW).state
    assert state is not None and state.broken == NOW
    turn = decide(snapshot(gone_by(0, KILLED), running(1), state=state), NOW + SETTLING_S)
    assert turn.actions == (SendStop(pod="train-a0-worker-1", grace_s=30.0),)
    over = snapshot(gone_by(0, KILLED), ended(1, 0, ended_by="stop"), state=state, job_=retried())
    after = decide(over, NOW + 10).state
    assert after is not None and (after.attempt, after.cause) == (1, "lost")


def test_a_pod_that_vanished_while_the_gang_started_is_known_by_its_failed_index() -> None:
    waiting = snapshot(running(1), state=STARTING)
    assert (decide(waiting, NOW).state or STARTING).broken == 0.0, "it may be about to be created"
    found = snapshot(running(1), state=STARTING, failed_nodes=frozenset({"worker-0"}))
    assert (decide(found, NOW).state or STARTING).broken == NOW


def test_a_member_that_told_why_it_failed_leaves_the_rest_to_node_0() -> None:
    state = broken(SETTLING_S)
    assert decide(snapshot(running(0), ended(1, 1, cause="exit"), state=state), NOW).actions == ()
    never = ended(1, 209, cause="setup")
    assert kinds(decide(snapshot(running(0), never, state=state), NOW)) == ["SendStop"], (
        "node 0 may never have heard of it"
    )


@pytest.mark.parametrize(
    ("one", "hosts", "may"),
    [
        (running(0), {}, True),
        (running(0), {"node-0": HostView(name="node-0")}, True),
        (running(0), {"node-0": HostView(name="node-0", not_ready_since=NOW)}, False),
        (running(0), {"node-0": HostView(name="node-0", is_there=False)}, False),
        (running(0, is_unready=True), {}, False),
        (pod(0), {}, False),
    ],
)
def test_nobody_asks_a_launcher_on_a_node_that_is_not_ready(
    one: PodView, hosts: dict[str, HostView], may: bool
) -> None:
    assert is_reachable(one, snapshot(one, hosts=hosts)) is may


def test_commands_beside_the_ranks_go_to_a_node_that_answers() -> None:
    seen = snapshot(away(0), running(1), state=RAN, hosts=silent(3.0))
    assert pod_of(seen, node=None).node == "worker-1"
    with pytest.raises(NotFound, match="worker-0 cannot be reached: node node-1 is not ready"):
        pod_of(seen, node="worker-0")


@pytest.mark.parametrize(
    ("pods", "wanted"),
    [
        ([running(0), running(1, host="node-1")], set()),
        ([running(0), away()], {"node-1"}),
        ([running(0), running(1, host="node-1", deleting_since=NOW - LATE_S - 1)], {"node-1"}),
        ([running(0), pod(1, host="node-1", is_scheduled=True)], {"node-1"} if SLOW_S < 40 else set()),
        ([ended(0, 1, at=NOW - LATE_S - 1), running(1, host="node-1")], {"node-1"}),
        ([ended(0, 1, at=NOW - 1), running(1, host="node-1")], set()),
        ([ended(0, 0, at=NOW - 600), running(1, host="node-1")], set()),
        ([running(0)], {"node-1"}),
        ([ended(0), gone_by(1, PodEnd(exit_code=208, cause="lost"), host="node-1")], {"node-1"}),
    ],
)
def test_which_nodes_are_looked_at(pods: list[PodView], wanted: set[str]) -> None:
    state = State(phase="running", attempts=(opened(),), hosts=WHERE)
    assert doubtful_hosts(state, pods, NOW) == wanted


def test_kueue_gets_its_quota_back_when_a_run_ended_with_a_lost_node() -> None:
    first = ended(0, 208, cause="lost", gang=verdict(208, "lost", "silent"))
    seen: RunSnapshot = snapshot(
        first, away(), state=RAN, hosts=LOST, record=record(gated_by="kueue", workload="jobset", queue="q")
    )
    assert kinds(decide(seen, NOW)) == ["ForceDelete", "DeleteWorkloads"]


def test_the_digest_of_an_image_is_noted_with_the_next_state_and_stays_when_its_pods_are_gone() -> None:
    first, second = (f"sha256:{mark * 64}" for mark in "ab")
    seen = snapshot(running(0, digest=first), running(1, digest=second), state=State(attempts=(opened(),)))
    noted = decide(seen, NOW).state
    assert noted is not None and noted.phase == "running" and noted.digests == {"worker": first}
    assert decide(snapshot(running(0, digest=second), running(1), state=noted), NOW).state is None, "no reason to write"
    assert digests_of(snapshot(state=noted)) == {"worker": first}
    status = {"name": "main", "imageID": f"registry.example/x@{first}"}
    assert pod_view({"status": {"containerStatuses": [status]}}).digest == first
    assert pod_view({"status": {"containerStatuses": [{"name": "main", "imageID": "odd"}]}}).digest == ""
