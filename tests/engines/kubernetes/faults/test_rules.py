"""Rules that hold under faults, as data: whose clock counts, when a retry may begin, who may finish a submission."""

from __future__ import annotations

from email.utils import formatdate

import msgspec
import pytest

from longboat.core.runs import Attempt
from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.observe.progress import progress_of
from longboat.engines.kubernetes.reconcile.decide import decide
from longboat.engines.kubernetes.reconcile.survivors import SETTLING_S
from longboat.engines.kubernetes.records import State
from longboat.engines.kubernetes.status import STARTING
from longboat.engines.kubernetes.submit.submission import is_same_submission
from longboat.kubeapi.connection.transport import clock_skew_s
from tests.engines.kubernetes.run_samples import NOW, ended, job, opened, record, retried, running, snapshot, workload


@pytest.mark.parametrize(
    ("known_s", "server", "took_s", "found_s"),
    [
        (0.0, NOW, 0.1, 0.0),
        (0.0, NOW + 1.5, 0.1, 0.0),
        (0.0, NOW - 9, 10.0, 0.0),
        (0.0, NOW + 3600, 0.0, 3600.5),
        (0.0, NOW - 3600, 0.0, -3599.5),
        (3600.5, NOW + 3601, 0.1, 3600.5),
        (3600.5, NOW, 0.1, 0.0),
    ],
)
def test_a_clock_is_wrong_only_by_more_than_an_answer_can_tell(
    known_s: float, server: float, took_s: float, found_s: float
) -> None:
    assert clock_skew_s(known_s, formatdate(server, usegmt=True), NOW - took_s, NOW) == pytest.approx(found_s, abs=0.01)


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_a_server_that_does_not_tell_the_time_changes_nothing(date: str | None) -> None:
    assert clock_skew_s(7.0, date, NOW, NOW) == 7.0


FAILED = (workload(failed="Job has failed indexes"),)
RAN = State(phase="running", started=NOW - 30, attempts=(opened(),))


def test_after_a_pod_that_vanished_the_retry_waits_until_its_grace_is_over() -> None:
    seen = snapshot(ended(1, 1), state=RAN, workloads=FAILED, job_=retried(grace_s=30.0))
    state = decide(seen, NOW).state
    assert state is not None and (state.attempt, state.not_before) == (1, NOW + 30.0 + SETTLING_S)


def test_after_pods_that_have_all_said_how_they_ended_nobody_waits() -> None:
    state = decide(snapshot(ended(0, 1), ended(1, 1), state=RAN, workloads=FAILED, job_=retried()), NOW).state
    assert state is not None and (state.attempt, state.not_before) == (1, NOW + 2.0)


def test_a_gang_that_lost_a_pod_is_not_told_to_be_starting() -> None:
    found = progress_of(snapshot(running(1), state=RAN))
    assert (found.phase, found.is_complete) == ("running", True) and "worker-0" in found.reason


HALF = State(reason=STARTING)


def body(state: State = HALF, **fields: object) -> dict[str, object]:
    return objects.record_object(msgspec.structs.replace(record(), **fields), state)


def test_the_same_submission_may_be_finished_by_anybody() -> None:
    assert is_same_submission(body(), record())


@pytest.mark.parametrize(
    "other",
    [
        body(State(reason=STARTING, attempts=(Attempt(number=0, started=NOW),))),
        body(State(phase="failed", reason="the submission was interrupted")),
        body(job=job(nodes=3)),
        body(uid="1" * 12),
        body(bundle="f" * 64),
        body(packs=("longboat-code-1",)),
        body(launcher="longboat-launcher-1"),
        body(images={"worker": "another"}),
    ],
)
def test_another_submission_or_one_that_is_under_way_is_left_alone(other: dict[str, object]) -> None:
    assert not is_same_submission(other, record())


def test_a_submission_that_somebody_stopped_is_not_finished() -> None:
    stopped = body()
    stopped["metadata"]["annotations"]["longboat.dev/stop"] = "{}"  # type: ignore[index]
    assert not is_same_submission(stopped, record())
