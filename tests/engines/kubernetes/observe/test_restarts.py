"""Attempts that shared pods: from their last words and answers; what is believed of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from longboat.core.jobs import Job, Retries, Role
from longboat.core.runs import Attempt
from longboat.engines.kubernetes.exec.launcher_calls import checked
from longboat.engines.kubernetes.observe.restarts import attempts_of_pods, with_restarts
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot
from longboat.engines.kubernetes.observe.termination import outcome_of
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.kubernetes.status import make_status
from longboat.engines.shared.explanations import restart_words
from longboat.engines.shared.stop_request import StopRequest
from longboat.storage.fences import Fenced, check

EARLIER = [
    {"attempt": 0, "exit_code": 5, "cause": "exit", "message": "exit code 5", "rank": 1, "node": "worker-1"}
    | {"began": None, "running": 10.0, "ended": 20.0, "resumed_from": None},
    {"attempt": 1, "exit_code": 137, "cause": "signal", "message": "killed by SIGKILL", "rank": 0, "node": "worker-0"}
    | {"began": 20.5, "running": 21.0, "ended": 30.0, "resumed_from": "/c/step-1"},
]


def said(node: str, **fields: Any) -> str:
    facts = {"v": 1, "node": node, "attempt": 2, "exit_code": 0, "started": 31.0, "ended": 40.0, "began": 30.5}
    return json.dumps({**facts, "restarts": EARLIER, "ranks": [], "gang": None, **fields})


def snapshot_of_pods(*messages: str, retries: int = 3, restarts: int = 0, code: int = 0) -> RunSnapshot:
    job = Job(
        name="job", roles=(Role(name="worker", nodes=2, run="x"),), retries=Retries(count=retries), ends=("worker",)
    )
    record = Record(name="job", uid="a" * 8, job=job, namespace="ns", created=1.0, user="u")
    pods = []
    for index, message in enumerate(messages):
        end = outcome_of({"state": {"terminated": {"exitCode": code, "reason": "Error", "message": message}}})
        view = PodView(
            name=f"p{index}", uid=f"u{index}", role="worker", index=index, attempt=0, is_started=True, end=end
        )
        pods.append(view)
    state = State(phase="running", started=10.0, attempts=(Attempt(number=0, started=5.0),), restarts=restarts)
    return RunSnapshot(record=record, state=state, uid="u", version="1", pods=tuple(pods))


def test_the_attempts_of_pods_that_succeeded_in_the_third() -> None:
    gang = {"exit_code": 0, "cause": None, "message": "", "node": "", "first": None}
    snapshot = snapshot_of_pods(said("worker-0", gang=gang), said("worker-1"))
    state = decide(snapshot, 50.0).state
    assert state is not None and (state.phase, state.exit_code, state.number) == ("succeeded", 0, 2)
    rows = [(each.number, each.restart, each.started, each.running, each.ended) for each in state.attempts]
    assert rows == [(0, "", 5.0, None, 20.0), (1, "in-place", 20.5, 21.0, 30.0), (2, "in-place", 30.5, 31.0, 40.0)]
    failures = [each.failure for each in state.attempts]
    assert [failure and failure.exit_code for failure in failures] == [5, 137, None]
    assert state.started == 10.0 and state.restarted_in(0) == [1, 2] and state.is_in_place(2)


def test_the_next_attempt_after_a_failure_counts_those_in_place() -> None:
    gang = {"exit_code": 208, "cause": "lost", "message": "worker-1 is silent", "node": "worker-1", "first": None}
    snapshot = snapshot_of_pods(said("worker-0", exit_code=208, gang=gang), said("worker-1", exit_code=208), code=1)
    state = decide(snapshot, 50.0).state
    assert state is not None and (state.phase, state.attempt, state.restarts) == ("recovering", 3, 0)
    assert [each.number for each in state.attempts] == [0, 1, 2] and "retry 3 of 3" in state.reason
    last = decide(snapshot_of_pods(*(pod_text(pod) for pod in snapshot.pods), retries=2, code=1), 50.0).state
    assert last is not None and (last.phase, last.exit_code) == ("failed", 208)


def pod_text(pod: PodView, started: float | None = 31.0) -> str:
    gang = {"exit_code": 208, "cause": "lost", "message": "x", "node": "worker-1", "first": None}
    return said(pod.node, exit_code=208, started=started, gang=gang if pod.index == 0 else None)


@pytest.mark.parametrize("cause", ["peers", "lost", "preemption"])
def test_a_restart_that_does_not_come_together_costs_no_retry(cause: str) -> None:
    gang = {"exit_code": 209, "cause": cause, "message": "worker-1 did not come", "node": "worker-1", "first": None}
    fields: dict[str, Any] = {"exit_code": 209, "started": None}
    snapshot = snapshot_of_pods(said("worker-0", gang=gang, **fields), said("worker-1", **fields), retries=2, code=1)
    state = decide(snapshot, 50.0).state
    assert state is not None and (state.phase, state.attempt) == ("recovering", 2), "the same attempt, in new pods"
    assert [each.number for each in state.attempts] == [0, 1]


def test_a_launcher_that_was_killed_after_its_restart() -> None:
    """Its message says no more than which attempt it had begun: that counts, unless another knows that no rank ran."""
    going = json.dumps({"v": 1, "attempt": 2, "began": 30.5, "restarts": EARLIER})
    state = decide(snapshot_of_pods(going, going, code=137), 50.0).state
    assert state is not None and (state.cause, state.attempt) == ("lost", 3)
    assert [each.number for each in state.attempts] == [0, 1, 2]
    apart = decide(
        snapshot_of_pods(pod_text(PodView(name="", uid="", role="worker", index=0, attempt=0), None), going, code=137),
        50.0,
    )
    assert apart.state is not None and apart.state.attempt == 2


@pytest.mark.parametrize(("newest", "expected"), [(1, ("recovering", 2)), (2, ("recovering", 3)), (3, ("failed", 0))])
def test_pods_that_find_later_attempts_among_the_checkpoints(newest: int, expected: tuple[str, int]) -> None:
    """Those before them were restarted in place, and lost without a word. `on` is about the training's own failures."""
    with pytest.raises(Fenced) as fenced:
        check(newest, 0)
    gang = {"exit_code": 209, "cause": "setup", "message": fenced.value.message, "node": "worker-0", "first": None}
    fields: dict[str, Any] = {"attempt": 0, "exit_code": 209, "started": None, "restarts": []}
    snapshot = snapshot_of_pods(said("worker-0", gang=gang, **fields), said("worker-1", **fields), code=1)
    retries = Retries(count=3, on=("signal",))
    job = msgspec.structs.replace(snapshot.record.job, retries=retries)
    record = msgspec.structs.replace(snapshot.record, job=job)
    state = decide(msgspec.structs.replace(snapshot, record=record), 50.0).state
    assert state is not None and (state.phase, state.attempt) == expected


def test_an_attempt_for_which_one_pod_was_replaced() -> None:
    earlier = [EARLIER[0], {**EARLIER[1], "cause": "preemption", "exit_code": 208, "replaced": ["worker-1"]}]
    snapshot = snapshot_of_pods(said("worker-0", restarts=earlier), said("worker-1", restarts=earlier))
    attempts = with_restarts(snapshot.state.attempts, attempts_of_pods(snapshot))
    assert [(each.restart, each.replaced) for each in attempts[1:]] == [("in-place", ()), ("in-place", ("worker-1",))]
    words = restart_words(attempts[2], attempts)
    assert words == "worker-1 replaced, the others restarted in place 1.0 s after the failure"
    state = State(attempts=attempts)
    assert state.restarted_in(0) == [1, 2] and state.is_in_place(2)
    answer = checked({"attempt": 2, "began": 30.5, "restarts": earlier, "ranks": {}})
    assert attempts_of_pods(snapshot_of_pods(), {"worker-0": answer}).earlier[1].replaced == ("worker-1",)


def test_what_was_noted_before_the_pods_went_counts() -> None:
    pods = attempts_of_pods(snapshot_of_pods(restarts=2))
    assert (pods.first, pods.last) == (0, 2)
    assert [each.number for each in with_restarts((Attempt(number=0, started=5.0),), pods)] == [0, 1, 2]


@pytest.mark.parametrize("number", [-1, 4, 10**15, "2", None])
def test_no_number_counts_that_is_not_one_of_the_job_s_retries(number: object) -> None:
    assert attempts_of_pods(snapshot_of_pods(said("worker-0", attempt=number))).last == 0
    answer = checked({"attempt": number, "restarts": EARLIER, "began": 3.0, "ranks": {}})
    assert attempts_of_pods(snapshot_of_pods(), {"worker-0": answer}).last == 0


@pytest.mark.parametrize("restarts", [7, [7], [{"attempt": "x"}], [{}], [{"attempt": 0, "message": ["x"]}]])
def test_nonsense_in_place_of_earlier_attempts_is_passed_over(restarts: object) -> None:
    pods = attempts_of_pods(snapshot_of_pods(said("worker-0", restarts=restarts)))
    assert pods.last == 2 and pods.earlier == {}
    assert len(with_restarts((Attempt(number=0, started=5.0),), pods)) == 3


@pytest.mark.parametrize(("ranks", "phase", "numbers"), [({}, "recovering", [0, 1]), (True, "running", [0, 1, 2])])
def test_a_status_while_it_goes_on(ranks: Any, phase: str, numbers: list[int]) -> None:
    """As its launchers answer: waiting for its next attempt, and running again."""
    rows = {"0": {"alive": True, "started": 31.0}} if ranks else {}
    answer = {
        "attempt": 2,
        "began": 30.5,
        "restarts": EARLIER,
        "ranks": rows,
        "phase": "running" if ranks else "waiting",
    }
    snapshot = snapshot_of_pods()
    pod = PodView(name="p0", uid="u0", role="worker", index=0, attempt=0, is_started=True, is_running=True)
    status = make_status(msgspec.structs.replace(snapshot, pods=(pod,)), {"worker-0": checked(answer)})
    assert (status.phase, status.attempt, [each.number for each in status.attempts]) == (phase, 2, numbers)
    assert ("retry 2 of 3" in status.reason) == (phase == "recovering")


def test_who_took_whose_place_is_told_with_the_attempt() -> None:
    spares = {"worker-1": "worker-2"}
    earlier = [{**EARLIER[0], "replaced": ["worker-1"], "spares": spares}, EARLIER[1]]
    (first,) = checked({"restarts": earlier[:1]})["restarts"]
    assert first["spares"] == spares
    assert checked({"restarts": [{"spares": {"worker-1": 7}}, {"spares": [1]}]})["restarts"][0]["spares"] == {}
    pods = attempts_of_pods(snapshot_of_pods(said("worker-0", restarts=earlier)))
    attempts = with_restarts((Attempt(number=0, started=5.0),), pods)
    assert [attempt.spares for attempt in attempts] == [{}, spares, {}]
    words = "the spare worker-2 in the place of worker-1, the others restarted in place 1.0 s after the failure"
    assert restart_words(attempts[1], attempts) == words
    both = msgspec.structs.replace(attempts[1], replaced=("worker-1", "worker-0"), running=None)
    assert restart_words(both, attempts).endswith("worker-1 and worker-0 replaced, the others restarted in place")


def test_a_forged_record_makes_no_endless_list() -> None:
    snapshot = snapshot_of_pods(retries=10**15, restarts=10**15)
    pods = attempts_of_pods(snapshot)
    assert len(with_restarts(snapshot.state.attempts, pods)) <= 1001
    forged = State(attempts=(Attempt(number=10**15, started=1.0, restart="in-place"),))
    assert forged.number == 1 and forged.restarted_in(0) == [10**15]


def stopped(snapshot: RunSnapshot, **fields: Any) -> State:
    """The state after a turn of a run that is being stopped, which has been told."""
    told = msgspec.structs.replace(snapshot.state, told=40.0, told_when=40.0)
    asked = msgspec.structs.replace(snapshot, stop=StopRequest(at=40.0), **{"state": told, **fields})
    return decide(asked, 50.0).state or asked.state


def test_a_stop_that_deletes_the_pods_keeps_what_those_told_that_ended_first() -> None:
    """Launchers could not be reached. All pods are gone before anybody looks again."""
    both = snapshot_of_pods(said("worker-0"), said("worker-1", exit_code=143))
    going = msgspec.structs.replace(both.pods[0], end=None)
    noted = stopped(both, pods=(going, both.pods[1]))
    assert (noted.phase, noted.restarts, [each.number for each in noted.restarted]) == ("running", 2, [0, 1, 2])
    assert stopped(both, state=noted, pods=(going, both.pods[1])) == noted, "nothing to be written again"
    gone = stopped(both, state=noted, pods=())
    rows = [(each.number, each.started, each.running, each.ended) for each in gone.attempts]
    assert rows == [(0, 5.0, None, 20.0), (1, 20.5, 21.0, 30.0), (2, 30.5, 31.0, 50.0)]
    failures = [each.failure and (each.failure.exit_code, each.failure.rank and each.failure.rank.rank)
                for each in gone.attempts]  # fmt: skip
    assert (gone.phase, failures, gone.restarted) == ("stopped", [(5, 1), (137, 0), None], ())
    assert gone.exit_code is None, "that of ranks that were stopped, not of a failure before"
    assert [each.number for each in stopped(both, pods=()).attempts] == [0], "nobody has told"


def test_what_was_noted_of_pods_that_restarted_once_more_as_they_were_deleted() -> None:
    """The first that is taken away has the others restart, and none of their ranks starts any more."""
    first = snapshot_of_pods(
        said("worker-0"), said("worker-1", attempt=1, began=20.5, started=21.0, restarts=EARLIER[:1])
    )
    going = msgspec.structs.replace(first.pods[0], end=None)
    noted = stopped(first, pods=(going, first.pods[1]))
    assert [(each.number, each.ended) for each in noted.restarted] == [(0, 20.0), (1, None)]
    late = snapshot_of_pods(said("worker-0", started=None), said("worker-1"))
    noted = stopped(late, state=noted, pods=(late.pods[0], msgspec.structs.replace(late.pods[1], end=None)))
    gone = stopped(late, state=noted, pods=())
    assert [(each.number, each.ended) for each in gone.attempts] == [(0, 20.0), (1, 30.0)]
    assert gone.exit_code == 137, "between two attempts that of the last failure stays"
    alone = stopped(late, state=msgspec.structs.replace(noted, restarted=noted.restarted[:2]), pods=())
    assert [each.number for each in alone.attempts] == [0, 1]


def test_a_restart_that_the_stop_itself_brought_about_gives_no_exit_code() -> None:
    """The first launcher whose pod the stop deletes believes that it is taken away."""
    ended = [EARLIER[0], {**EARLIER[1], "exit_code": 208, "cause": "preemption", "rank": None}]
    fields: dict[str, Any] = {"restarts": ended, "started": None, "exit_code": 208, "cause": "preemption"}
    state = stopped(snapshot_of_pods(said("worker-0", **fields), said("worker-1", **fields), code=1))
    assert (state.phase, state.exit_code, [each.number for each in state.attempts]) == ("stopped", None, [0, 1])
