"""What the controller reads, and what it leaves to the copies that its watches keep."""

from __future__ import annotations

import msgspec
import pytest

from longboat.core.runs import Attempt
from longboat.engines.kubernetes.reconcile import outlook
from longboat.engines.kubernetes.reconcile.outlook import CopiedRuns, CopyVerdict, predicted
from longboat.engines.kubernetes.record_store import STOP, stop_text
from longboat.engines.kubernetes.records import Gate, State
from longboat.kubeapi.kinds import CONFIG_MAP, POD
from tests.engines.kubernetes.run_bodies import RUNNING, copies, pod_body, record_body
from tests.engines.kubernetes.run_samples import NOW, job, record

RUN = ("ns", "train")
OPENED = (Attempt(number=0, started=NOW - 50),)


@pytest.fixture
def copied() -> CopiedRuns:
    made = CopiedRuns(look_s=60.0)
    made.note_open(RUN)
    return made


def settle(copied: CopiedRuns) -> None:
    """The record says all that a turn would write into it."""
    seen = copied.copies.snapshot(*RUN, NOW)
    assert seen is not None
    copied.copies.note(CONFIG_MAP, record_body(predicted(seen, NOW).snapshot.state, seen.record), is_gone=False)


def test_a_run_that_runs_is_left_alone(copied: CopiedRuns) -> None:
    copies(made=copied.copies)
    settle(copied)
    judged = copied.judge(RUN, NOW)
    assert judged.snapshot is None and judged.pause_s is not None and 0 < judged.pause_s <= 60.0


def test_every_run_is_read_once_in_a_while(copied: CopiedRuns) -> None:
    copies(made=copied.copies)
    settle(copied)
    copied.forget(RUN)  # as after a time without a look
    assert copied.judge(RUN, NOW) == CopyVerdict()
    copied.note_read(RUN)
    assert copied.judge(RUN, NOW).pause_s is not None


def test_an_end_is_read(copied: CopiedRuns) -> None:
    copies(made=copied.copies)
    settle(copied)
    failed = pod_body()
    failed["status"] = {"phase": "Failed"}
    copied.copies.note(POD, failed, is_gone=False)
    assert copied.judge(RUN, NOW) == CopyVerdict()


def test_that_all_run_is_written_by_the_copy_and_a_stop_is_not(copied: CopiedRuns) -> None:
    copies(State(phase="starting", attempts=OPENED), made=copied.copies)
    judged = copied.judge(RUN, NOW)
    assert judged.snapshot is not None and judged.snapshot.version == "7"
    stopped = record_body(State(phase="starting", attempts=OPENED))
    stopped["metadata"]["annotations"] = {STOP: stop_text(1.0, 0.0)}
    copied.copies.note(CONFIG_MAP, stopped, is_gone=False)
    assert copied.judge(RUN, NOW).snapshot is None


@pytest.mark.parametrize("reason", ["", "waits"])
def test_a_run_that_waits_asks_the_gate_by_its_copy(copied: CopiedRuns, reason: str) -> None:
    state = State(phase="pending", reason=reason, gate=Gate(reason=reason), attempts=OPENED)
    copies(state, record(job(nodes=1), gated_by="longboat"), suspend=True, pod=False, made=copied.copies)
    assert copied.judge(RUN, NOW).snapshot is not None


def test_words_about_the_start_wait_for_a_moment(copied: CopiedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    copies(State(phase="pending", attempts=OPENED), pod=False, made=copied.copies)
    judged = copied.judge(RUN, NOW)
    assert judged.pause_s is not None and judged.pause_s <= outlook.WORDS_S
    monkeypatch.setattr(outlook, "WORDS_S", 0.0)  # the moment is over
    assert copied.judge(RUN, NOW) == CopyVerdict()


def test_without_a_copy_it_is_read(copied: CopiedRuns) -> None:
    assert copied.judge(RUN, NOW) == CopyVerdict()
    copies(made=copied.copies)
    body = msgspec.json.decode(msgspec.json.encode(record_body(RUNNING)))
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    copied.copies.note(CONFIG_MAP, body, is_gone=False)
    assert copied.judge(RUN, NOW) == CopyVerdict()
