"""Who is to blame: ended pods in, the verdict out."""

from __future__ import annotations

import pytest

from longboat.core.runs import Failure, RankReport
from longboat.engines.kubernetes.observe.snapshot import PodView
from longboat.engines.kubernetes.observe.termination import PodEnd
from longboat.engines.kubernetes.reconcile.attempt_outcome import is_over, judge
from longboat.engines.kubernetes.records import State
from longboat.engines.shared.stop_request import StopRequest
from tests.engines.kubernetes.run_samples import (
    NOW,
    ended,
    gone_by,
    job,
    opened,
    pod,
    running,
    snapshot,
    verdict,
    workload,
)

LOST = PodEnd(exit_code=208, cause="lost", message="the launcher was killed before it could report", ended=NOW - 4)
OOM = PodEnd(exit_code=137, cause="oom", message="out of memory", reason="OOMKilled", ended=NOW - 3)
TAKEN = PodEnd(exit_code=208, cause="preemption", message="the pod was taken away: drained", ended=NOW - 2)
NO_PYTHON = PodEnd(exit_code=209, cause="image", message="the image has no python3", ended=NOW - 2)

JUDGED: list[tuple[list[PodView], tuple[str, int | None, str | None]]] = [
    # the verdict of node 0 counts, whatever others say
    ([ended(0, gang=verdict()), ended(1)], ("succeeded", 0, None)),
    ([ended(0, 9, gang=verdict(7, "exit")), ended(1, 7, cause="exit")], ("failed", 7, "exit")),
    ([ended(0, 143, gang=verdict(143), ended_by="stop"), ended(1, 143)], ("stopped", 143, None)),
    ([ended(0, gang=verdict(0), ended_by="stop"), ended(1)], ("stopped", 0, None)),
    ([ended(0, gang=verdict(3, "setup"))], ("failed", 209, "setup")),
    ([ended(0, gang=verdict(208, "preemption")), ended(1)], ("failed", 208, "preemption")),
    ([ended(0, 5, gang=verdict(5)), ended(1)], ("failed", 5, "exit")),
    # without it: the first of those who failed by themselves
    ([gone_by(0, LOST), ended(1, 9, cause="exit", at=NOW - 8)], ("failed", 9, "exit")),
    ([ended(0, 3, cause="exit", at=NOW - 8), ended(1, 4, cause="exit", at=NOW - 9)], ("failed", 4, "exit")),
    ([gone_by(0, OOM), ended(1, 208, cause="lost", at=NOW - 30)], ("failed", 137, "oom")),
    ([gone_by(0, TAKEN), ended(1, 208, cause="lost")], ("failed", 208, "preemption")),
    ([gone_by(0, NO_PYTHON), gone_by(1, NO_PYTHON)], ("failed", 209, "image")),
    ([gone_by(0, LOST), ended(1, 209, cause="peers")], ("failed", 209, "peers")),
    ([gone_by(0, LOST), ended(1, 143)], ("failed", 208, "lost")),
    # all who decide have succeeded, although the one who would say so is gone
    ([ended(0), ended(1)], ("succeeded", 0, None)),
]


@pytest.mark.parametrize(("pods", "expected"), JUDGED)
def test_the_outcome_of_an_attempt_by_its_pods(
    pods: list[PodView], expected: tuple[str, int | None, str | None]
) -> None:
    found = judge(snapshot(*pods), 0)
    assert (found.how, found.exit_code, found.failure and found.failure.cause) == expected


def test_the_rank_to_blame_travels_along() -> None:
    culprit = RankReport(rank=3, node="worker-1", exit_code=7, message="boom")
    found = judge(snapshot(ended(0, gang=verdict(7, "exit", "boom", first=culprit)), ended(1)), 0)
    assert found.failure == Failure(cause="exit", exit_code=7, message="boom", rank=culprit)


def test_roles_that_do_not_decide_do_not_matter() -> None:
    server = job(roles={"ps": 1, "worker": 1}, ends=("worker",))
    found = judge(snapshot(gone_by(0, LOST, role="ps"), ended(0, role="worker"), job_=server), 0)
    assert found.how == "succeeded"


def test_a_pod_that_vanished_is_named() -> None:
    found = judge(snapshot(ended(0, 143), workloads=(workload(failed="index 1 failed"),)), 0)
    assert found.failure is not None and found.failure.cause == "lost"
    assert "worker-1" in found.failure.message and "index 1 failed" in found.failure.message


def test_jobs_that_somebody_deleted() -> None:
    found = judge(snapshot(workloads=()), 0)
    assert found.failure is not None and "deleted" in found.failure.message


def test_what_was_decided_before_the_pods_were_removed_stands() -> None:
    sentence = Failure(cause="image", exit_code=209, message="no such image")
    state = State(phase="starting", attempts=(opened(failure=sentence),))
    assert judge(snapshot(workloads=(), state=state), 0).failure == sentence


@pytest.mark.parametrize(
    ("pods", "code"),
    [
        ([gone_by(0, TAKEN), gone_by(1, TAKEN)], None),
        ([], None),
        ([ended(0, 143, cause="preemption"), ended(1, 143, cause="preemption")], 143),
        ([ended(0, gang=verdict(9, "exit")), ended(1, 9)], 9),
    ],
)
def test_a_run_that_was_asked_to_stop_is_stopped_however_it_ended(pods: list[PodView], code: int | None) -> None:
    found = judge(snapshot(*pods, stop=StopRequest(at=NOW)), 0)
    assert (found.how, found.exit_code) == ("stopped", code)


def test_success_before_the_stop_stays_success() -> None:
    pods = [ended(0, gang=verdict()), ended(1)]
    assert judge(snapshot(*pods, stop=StopRequest(at=NOW)), 0).how == "succeeded"


OVER = [
    ([ended(0), ended(1)], (workload(),), True),
    ([ended(0), running(1)], (workload(),), False),
    ([ended(0)], (workload(),), False),  # the other may still come
    ([ended(0)], (workload(failed="index 1 failed"),), True),
    ([ended(0), pod(1)], (workload(failed="index 1 failed"),), False),  # a pod that ends late
    ([], (workload(),), False),
    ([], (), True),
    ([ended(0)], (workload(is_complete=True), workload(failed="no")), True),
]


@pytest.mark.parametrize(("pods", "workloads", "expected"), OVER)
def test_an_attempt_is_over_when_nothing_of_it_can_run(
    pods: list[PodView], workloads: tuple[object, ...], expected: bool
) -> None:
    assert is_over(snapshot(*pods, workloads=workloads), 0) is expected
