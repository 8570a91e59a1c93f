"""What a user sees: a Snapshot and the launchers' answers in, a RunStatus out."""

from __future__ import annotations

import msgspec
import pytest

from longboat.cli.commands.runs.status import print_status
from longboat.core.errors import UsageError
from longboat.core.jobs import Gpus, Job, Resources, Role
from longboat.engines.kubernetes.exec.launcher_calls import checked
from longboat.engines.kubernetes.gate.serve import begun
from longboat.engines.kubernetes.manifests.objects import record_object
from longboat.engines.kubernetes.record_store import PRIORITY, read_record
from longboat.engines.kubernetes.records import Gate, State
from longboat.engines.kubernetes.status import make_status
from longboat.engines.refusals import check_same_job
from longboat.engines.shared.secret_urls import redacted_job
from longboat.metrics.judgements import gpu_hours
from tests.engines.kubernetes.run_samples import NOW, ended, job, opened, record, running, snapshot, verdict


def answer(phase: str = "running", **fields: object) -> dict[str, object]:
    """Of a launcher whose clock is an hour behind."""
    times = {"output_time": NOW - 3603, "step_time": NOW - 3608, "silent_s": 3.0}
    facts = {"alive": True, "step": 4, "metrics": {"loss": 0.5}, **times}
    return {"phase": phase, "ranks": {"1": facts}, **fields}


def test_running_ranks_are_those_that_the_launchers_tell_of() -> None:
    told = {"worker-1": answer(checkpoint="/c/step-4")}
    status = make_status(snapshot(running(0), running(1)), told)
    (rank,) = status.ranks
    assert (rank.rank, rank.node, rank.alive, rank.step, rank.silent_s) == (1, "worker-1", True, 4, 3.0)
    assert rank.metrics == {"loss": 0.5}
    assert (status.phase, status.step, status.checkpoint) == ("running", 4, "/c/step-4")
    assert status.spec is not None and status.engine == "kubernetes"


def test_an_ended_rank_is_not_silent() -> None:
    facts = {"alive": False, "exit_code": 0, "silent_s": 9.0}
    (rank,) = make_status(snapshot(running(0), running(1)), {"worker-1": {"ranks": {"1": facts}}}).ranks
    assert rank.silent_s is None and rank.exit_code == 0


def test_launchers_that_prepare_are_not_running_yet() -> None:
    seen = snapshot(running(0), running(1))
    assert make_status(seen, {"worker-0": answer("setup")}).reason == "runs setup"
    waiting = make_status(seen, {"worker-0": answer("waiting", missing=["worker-1"])})
    assert (waiting.phase, waiting.reason) == ("starting", "waits for worker-1")


def test_a_full_disk_in_a_pod_is_no_silent_hang() -> None:
    """As the launcher says it, and past the look at whether its answer can be believed."""
    full = "the disk of /longboat/node is full: output waits until there is room"
    seen = snapshot(running(0), running(1))
    status = make_status(seen, {"worker-1": checked(answer(problems=[full, 7]))})
    assert (status.phase, status.reason) == ("running", f"node worker-1: {full}")
    assert make_status(seen, {"worker-1": checked(answer(problems=[]))}).reason == ""


def test_ended_ranks_have_the_codes_of_their_last_words() -> None:
    state = State(phase="failed", exit_code=7, cause="exit", attempts=(opened(),), checkpoint="/c/step-9")
    status = make_status(snapshot(ended(0, gang=verdict(7, "exit")), ended(1, 7), state=state), {})
    assert [(rank.rank, rank.exit_code, rank.alive) for rank in status.ranks] == [(0, 0, False), (1, 7, False)]
    assert status.checkpoint == "/c/step-9"


def test_nonsense_from_a_launcher_is_left_out() -> None:
    told = {
        "worker-0": {"ranks": {"0": {"step": "four", "metrics": 7, "exit_code": "x", "silent_s": "long"}}},
        "worker-1": {"ranks": 3},
    }
    (rank,) = make_status(snapshot(running(0), running(1)), told).ranks  # type: ignore[arg-type]
    assert (rank.step, rank.metrics, rank.exit_code, rank.alive) == (None, {}, None, False)


WILD = {"step": 10**400, "silent_s": float("inf"), "exit_code": -(10**400), "metrics": {"a": "x", "b": 10**400, "c": 2}}


def test_numbers_of_a_strangers_launcher_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    told = {node: checked({"ranks": {str(rank): WILD}}) for rank, node in enumerate(("worker-0", "worker-1"))}
    status = make_status(snapshot(running(0), running(1)), told)
    assert [(rank.step, rank.exit_code, rank.metrics) for rank in status.ranks] == [(None, None, {"c": 2})] * 2
    print_status(status, wide=True)
    assert "c=2" in capsys.readouterr().out


def test_the_attempt_under_way_shows_what_it_was_resumed_from() -> None:
    state = State(phase="running", attempt=1, attempts=(opened(0), opened(1)))
    pods = (running(0, attempt=1), running(1, attempt=1))
    told = {"worker-0": answer(resumed_from="/c/step-4"), "worker-1": answer()}
    status = make_status(snapshot(*pods, state=state), told)
    assert [one.resumed_from for one in status.attempts] == [None, "/c/step-4"]


def test_when_the_next_attempt_comes() -> None:
    between = State(phase="recovering", attempt=1, attempts=(opened(0),), not_before=NOW + 30)
    assert make_status(snapshot(state=between), {}).next_attempt == NOW + 30
    under_way = State(phase="recovering", attempt=1, attempts=(opened(0), opened(1)), not_before=NOW + 30)
    assert make_status(snapshot(state=under_way), {}).next_attempt is None
    over = State(phase="failed", attempt=1, attempts=(opened(0),), not_before=NOW + 30)
    assert make_status(snapshot(state=over), {}).next_attempt is None


def test_a_priority_given_later_counts_and_the_job_stays_as_it_was_submitted() -> None:
    body = record_object(record(job(priority=3)), State())
    body["metadata"]["annotations"][PRIORITY] = "7"
    seen = msgspec.structs.replace(snapshot(), record=read_record(body)[0])
    status = make_status(seen, {})
    assert status.priority == 7 and status.spec is not None and status.spec.priority == 3
    check_same_job(status, redacted_job(job(priority=3)))
    with pytest.raises(UsageError, match="another job: `priority` differs"):
        check_same_job(status, redacted_job(job(priority=7)))
    left = record_object(seen.record, State())  # what is left of an expired run has no annotation
    assert read_record(left)[0].priority == 7 and read_record(left)[0].job.priority == 3


def test_a_run_at_the_gate_is_queued_and_holds_no_gpus() -> None:
    """Its objects are there from its submission on, its pods are not."""
    asked = Role(name="worker", run="true", nodes=2, resources=Resources(gpus=Gpus(count=8)))
    gated = msgspec.structs.replace(record(Job(name="train", roles=(asked,), ends=("worker",))), gated_by="longboat")
    waits = State(phase="pending", reason="waits for 16 GPUs", attempts=(opened(),))
    status = make_status(snapshot(record=gated, state=waits), {})
    assert (status.attempts, gpu_hours(status, NOW)) == ((), 0.0)
    assert [(span.phase, span.ended, span.reason) for span in status.timeline] == [("queued", None, waits.reason)]
    stopped = msgspec.structs.replace(waits, phase="stopped", ended=NOW)
    assert gpu_hours(make_status(snapshot(record=gated, state=stopped), {}), NOW) == 0.0

    let_in = msgspec.structs.replace(begun(waits, NOW - 10), gate=Gate(let_in=NOW - 10), phase="starting", reason="")
    status = make_status(snapshot(record=gated, state=let_in), {})
    assert [each.started for each in status.attempts] == [NOW - 10]
    assert gpu_hours(status, NOW) == round(16 * 10 / 3600, 4)
    assert [span.phase for span in status.timeline] == ["queued", "pulling"]
