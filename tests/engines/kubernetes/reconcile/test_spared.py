"""Gangs with spare nodes: whose end matters to the engine, and when a spare that is left is taken away. Tables."""

from __future__ import annotations

import time

import msgspec
import pytest

from longboat.core.jobs import Job, Retries, Role
from longboat.engines.kubernetes.explain.containers import StartTrouble
from longboat.engines.kubernetes.observe.progress import awaited_members, members_of, progress_of
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot, pods_of_gang
from longboat.engines.kubernetes.observe.termination import EarlierEnd, NodeEnd, PodEnd
from longboat.engines.kubernetes.reconcile.actions import ForceDelete, SendStop
from longboat.engines.kubernetes.reconcile.attempt_outcome import is_over
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.reconcile.survivors import SETTLING_S, dead_members
from longboat.engines.kubernetes.records import State
from longboat.engines.kubernetes.status import spares_of
from tests.engines.kubernetes.run_samples import NOW, ended, gone_by, opened, pod, record, running, snapshot, verdict

JOB = Job(
    name="train",
    roles=(Role(name="worker", run="true", nodes=3, spares=1),),
    ends=("worker",),
    retries=Retries(count=2),
)
LOST = gone_by(1, PodEnd(exit_code=208, cause="lost", ended=NOW - 20), is_lost=True)


def gang(*pods: PodView, phase: str = "running", **state: object) -> RunSnapshot:
    known = State(phase=phase, attempts=(opened(),), started=NOW - 30, **state)  # type: ignore[arg-type]
    return snapshot(*pods, job_=JOB, state=known)


@pytest.mark.parametrize(
    ("pods", "members", "awaited", "dead"),
    [
        ([running(n) for n in range(4)], [0, 1, 2], [], []),
        ([running(0), running(2), running(3)], [0, 2, 3], [], []),
        ([running(0), pod(1), running(2), running(3)], [0, 2, 3], [], []),
        ([running(0), LOST, running(2), running(3)], [0, 2, 3], [], []),
        ([running(0), running(1), running(2), ended(3, 209, cause="setup")], [0, 1, 2], [], []),
        ([running(0), running(3)], [0, 1, 3], ["worker-1"], []),
        ([running(0), LOST, running(3)], [0, 1, 3], [], ["worker-1"]),
        ([running(1), running(2), running(3)], [0, 1, 2], [], ["worker-0"]),
    ],
    ids=["all", "gone", "made anew", "node lost", "spare has failed", "two gone", "two lost", "node 0"],
)
def test_who_is_missed_while_a_gang_runs(
    pods: list[PodView], members: list[int], awaited: list[str], dead: list[str]
) -> None:
    """As long as there are as many pods as nodes, a lost one is the business of node 0, which has taken the spare."""
    seen = gang(*pods)
    assert members_of(seen) == [f"worker-{index}" for index in members]
    assert (awaited_members(seen), dead_members(seen)) == (awaited, dead)
    if not awaited and not dead:
        assert all(isinstance(action, ForceDelete) for action in decide(seen, NOW).actions), "of the lost pod alone"
        assert progress_of(seen).reason == ""


@pytest.mark.parametrize("spares", [0, 8])
def test_a_large_gang_that_has_lost_half_of_its_pods_holds_up_no_other_run(spares: int) -> None:
    """All runs share the processor of one controller. It took 7 s, and 200 s of three thousand nodes."""
    role = msgspec.structs.replace(JOB.roles[0], nodes=1000, spares=spares)
    seen = snapshot(
        *(running(index) for index in range(500)),
        job_=msgspec.structs.replace(JOB, roles=(role,)),
        state=State(phase="running", attempts=(opened(),), started=NOW - 30),
    )
    began = time.process_time()
    decide(seen, NOW)
    assert time.process_time() - began < 0.25


def test_before_its_ranks_run_a_spare_stands_for_nobody() -> None:
    seen = gang(running(0), running(1), pod(2), running(3), phase="starting")
    assert members_of(seen) == ["worker-0", "worker-1", "worker-2"]
    assert not progress_of(seen).is_complete
    assert progress_of(gang(running(0), running(1), running(2), pod(3), phase="starting")).phase == "running"


def test_a_spare_that_cannot_start_ends_nothing() -> None:
    stuck = StartTrouble(what="no such image", hint="", cause="image", is_final=True)
    spare = pod(3, trouble=stuck, is_scheduled=True)
    members = [running(0), running(1), running(2)]
    assert decide(gang(*members, spare), NOW + 10_000).actions == ()
    failed = decide(gang(running(0), running(1), pod(2, trouble=stuck), running(3), phase="starting"), NOW + 10_000)
    assert failed.state is not None and failed.state.attempts[-1].failure is not None


def test_one_that_has_not_heard_of_the_end_is_told_soon() -> None:
    over = [ended(index, gang=verdict() if index == 0 else None) for index in range(3)]
    turn = decide(gang(*over, running(3)), NOW)
    (stop,) = turn.actions
    assert isinstance(stop, SendStop) and stop.pod == running(3).name
    assert decide(gang(*over, running(3)), NOW - 5 + SETTLING_S - 1).actions == ()
    done = decide(gang(*over, ended(3)), NOW).state
    assert done is not None and (done.phase, done.exit_code) == ("succeeded", 0)


@pytest.mark.parametrize(
    ("attempt", "earlier"),
    [(1, [EarlierEnd(attempt=0, spares={"worker-1": "worker-3"})]), (9, [EarlierEnd(attempt=8)]), (1, [])],
    ids=["it does", "long ago, for all that is told", "nothing is told"],
)
def test_one_that_may_play_a_node_by_now_is_left_its_time(attempt: int, earlier: list[EarlierEnd]) -> None:
    """It may be sending a checkpoint. Of many restarts a termination message tells the last."""
    first = ended(0, gang=verdict())
    assert first.end is not None and first.end.said is not None
    said = msgspec.structs.replace(first.end.said, attempt=attempt, restarts=tuple(earlier))
    first = msgspec.structs.replace(first, end=msgspec.structs.replace(first.end, said=said))
    assert decide(gang(first, ended(2), running(3)), NOW).actions == ()


@pytest.mark.parametrize(("index", "is_late"), [(3, True), (2, False)])
def test_a_spare_that_starts_when_all_is_over_is_too_late(index: int, is_late: bool) -> None:
    head = ended(0, gang=verdict())
    pods = pods_of_gang(record(JOB), [head, ended(1), pod(index)])
    assert [each.index for each in pods.late] == ([index] if is_late else [])


def test_a_lost_pod_whose_place_was_taken_does_not_keep_the_run_open() -> None:
    over = [ended(index, gang=verdict() if index == 0 else None) for index in (0, 2, 3)]
    assert is_over(gang(*over), 0)
    state = decide(gang(*over), NOW).state
    assert state is not None and state.phase == "succeeded"


def test_a_spare_that_has_failed_is_no_failure_of_the_run() -> None:
    over = [ended(index, gang=verdict() if index == 0 else None) for index in range(3)]
    state = decide(gang(*over, ended(3, 209, cause="setup", message="setup failed")), NOW).state
    assert state is not None and (state.phase, state.exit_code) == ("succeeded", 0)


def test_the_status_names_those_who_wait() -> None:
    pods = [running(index) for index in range(4)]
    (spare,) = spares_of(gang(*pods), {"worker-3": {"phase": "waiting"}})
    assert (spare.node, spare.pod, spare.host, spare.is_ready) == ("worker-3", pods[3].name, "node-0", True)
    (spare,) = spares_of(gang(*pods), {"worker-3": {"phase": "setup"}})
    assert not spare.is_ready
    said = NodeEnd(exit_code=0)
    assert spares_of(gang(*pods[:3], gone_by(3, PodEnd(exit_code=0, said=said))), {}) == ()
