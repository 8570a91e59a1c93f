"""The timeline of a run as tables: what was seen, and the spans that follow."""

from __future__ import annotations

from longboat.core.runs import Attempt, Failure, RunStatus
from longboat.engines.lifecycle.timeline import AttemptMarks, timeline_of

LOST = Failure(cause="lost", exit_code=208, message="node gpu-3 is lost")


def run(**fields) -> RunStatus:
    fields = {"phase": "running", **fields}
    return RunStatus(name="a", uid="u", job="a", engine="local", created=100.0, nodes=1, gpus=0, **fields)


def spans(status: RunStatus, marks=None, pulls=False):
    return [
        (span.phase, span.started, span.ended, span.attempt, span.reason)
        for span in timeline_of(status, marks or {}, pulls=pulls)
    ]


def test_a_run_that_waits_is_queued_for_a_reason():
    status = run(phase="pending", reason="8 GPUs are taken")
    assert spans(status) == [("queued", 100.0, None, 0, "8 GPUs are taken")]


def test_a_run_that_was_stopped_while_it_waited():
    assert spans(run(phase="stopped", ended=150.0)) == [("queued", 100.0, 150.0, 0, "")]


def test_an_attempt_that_starts():
    status = run(phase="starting", reason="runs setup", attempts=(Attempt(number=0, started=110.0),))
    assert spans(status)[-1] == ("setup", 110.0, None, 0, "runs setup")
    assert spans(status, pulls=True)[-1] == ("pulling", 110.0, None, 0, "runs setup")
    seen = {0: AttemptMarks(pulled=130.0)}
    assert spans(status, seen, pulls=True)[-2:] == [
        ("pulling", 110.0, 130.0, 0, ""),
        ("setup", 130.0, None, 0, "runs setup"),
    ]


def test_a_run_that_recovers_has_both_attempts_and_why():
    attempts = (Attempt(number=0, started=110.0, ended=200.0, failure=LOST), Attempt(number=1, started=220.0))
    status = run(attempt=1, started=120.0, attempts=attempts)
    seen = {0: AttemptMarks(pulled=115.0), 1: AttemptMarks(pulled=225.0, trained=230.0)}
    assert spans(status, seen) == [
        ("queued", 100.0, 110.0, 0, ""),
        ("pulling", 110.0, 115.0, 0, ""),
        ("setup", 115.0, 120.0, 0, ""),
        ("training", 120.0, 200.0, 0, ""),
        ("recovering", 200.0, 220.0, 1, "node gpu-3 is lost"),
        ("pulling", 220.0, 225.0, 1, ""),
        ("setup", 225.0, 230.0, 1, ""),
        ("training", 230.0, None, 1, ""),
    ]


def test_between_two_attempts():
    attempts = (Attempt(number=0, started=110.0, ended=200.0, failure=LOST),)
    status = run(phase="recovering", started=110.0, attempts=attempts, reason="next attempt in 8s")
    assert spans(status)[-1] == ("recovering", 200.0, None, 1, "next attempt in 8s")


def test_an_ended_run_ends_and_has_no_gaps():
    status = run(
        phase="succeeded", started=101.0, ended=150.0, attempts=(Attempt(number=0, started=100.5, ended=149.0),)
    )
    assert spans(status) == [
        ("queued", 100.0, 100.5, 0, ""),
        ("setup", 100.5, 101.0, 0, ""),
        ("training", 101.0, 149.0, 0, ""),
    ]


def test_clocks_that_differ_make_no_negative_spans():
    status = run(phase="failed", started=90.0, ended=120.0, attempts=(Attempt(number=0, started=99.0, ended=95.0),))
    times = [(span[1], span[2]) for span in spans(status, {0: AttemptMarks(pulled=500.0)})]
    assert all(end is None or end >= start for start, end in times)
