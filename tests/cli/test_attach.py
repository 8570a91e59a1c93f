"""Staying with a run: what is said when its phase changes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import cast

import msgspec
import pytest

from longboat.cli.attach import RunWatcher, closing_counts, exit_code, replay_words
from longboat.core.runs import Attempt, Failure, RankStatus, RunStatus
from longboat.engines.engine import Engine
from tests.cli.conftest import Longboat

LOST = Failure(cause="lost", exit_code=208, message="node n1 (worker-0) was lost")


def status(phase: str, attempt: int, reason: str = "") -> RunStatus:
    attempts = tuple(Attempt(number=n, started=1.0, failure=LOST if n < attempt else None) for n in range(attempt + 1))
    return RunStatus(
        name="r", uid="u", job="r", phase=phase, engine="kubernetes", created=0.0, nodes=1, gpus=0,
        attempt=attempt, retries=2, reason=reason, attempts=attempts,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (status("running", 1), ["attempt 1 failed: lost: node n1 (worker-0) was lost", "is running, attempt 2 of 3"]),
        (status("recovering", 1, "its pods are being created"), ["attempt 1 failed: lost: node n1", "pods are being"]),
        (status("recovering", 1, "lost: node n1 (worker-0) was lost; retry 1 of 2"), ["is recovering: lost: node n1"]),
    ],
)
def test_why_there_is_another_attempt_is_always_said(
    seen: RunStatus, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when nobody looked between the failure and the next attempt; once."""
    watcher = RunWatcher(cast(Engine, None), seen, quiet=False)
    watcher.report(status("running", 0))
    watcher.report(seen)
    watcher.report(seen)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(said) and all(words in line for words, line in zip(said, lines, strict=True)), lines


def test_a_slow_start_is_told_once_what_it_waits_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that cannot be pulled: only `ps` knew, for ten minutes."""
    first = status("starting", 0, "worker-0: image and volumes are being made ready")
    watcher = RunWatcher(cast(Engine, None), first, quiet=False)
    watcher.report(first)
    watcher.report(first)
    assert capsys.readouterr().err == "", "most starts are over soon"
    monkeypatch.setattr("longboat.cli.attach.SLOW_START_S", 0.0)
    for port in (4711, 4712):
        watcher.report(status("starting", 0, f"image x: the registry cannot be reached (udp {port})"))
    assert capsys.readouterr().err == "longboat: r is starting: image x: the registry cannot be reached (udp 4711)\n"
    watcher.report(status("starting", 0, "image x: no such tag"))
    watcher.report(status("running", 0, "image x: no such tag"))
    assert capsys.readouterr().err == "longboat: r is starting: image x: no such tag\n"


def test_output_that_waits_for_a_full_disk_is_told_once_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The log alone would look like a hang."""
    full = "the disk of /home is full: output waits until there is room"
    watcher = RunWatcher(cast(Engine, None), status("running", 0), quiet=False)
    watcher.shown = 0
    for reason in ("", full, full, "", full):
        watcher.report(status("running", 0, reason))
    assert capsys.readouterr().err == f"longboat: r is running: {full}\n" * 2


def test_a_run_stopped_before_it_started_has_the_code_of_one_that_a_stop_ends() -> None:
    assert [exit_code(status(phase, 0)) for phase in ("succeeded", "stopped", "failed")] == [0, 143, 208]


def test_a_state_that_lags_behind_the_output_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The first lines of the next attempt are shown, then a look says that the run is recovering."""
    watcher = RunWatcher(cast(Engine, None), status("running", 0), quiet=False)
    watcher.report(status("running", 0))
    watcher.report(status("recovering", 1, "lost: node n1 (worker-0) was lost; retry 1 of 2"))
    capsys.readouterr()
    watcher.note_output(1)
    watcher.report(status("recovering", 1, ""))
    watcher.report(status("running", 1))
    assert capsys.readouterr().err == ""
    watcher.report(status("recovering", 1, "its supervisor was killed; cleaning up"))
    assert capsys.readouterr().err == "longboat: r is recovering: its supervisor was killed; cleaning up\n"


@pytest.mark.parametrize("phase", ["recovering", "pending"])
def test_a_reason_that_is_over_is_no_news(phase: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The backoff ends, the next attempt is not there yet: the same phase again would say nothing."""
    watcher = RunWatcher(cast(Engine, None), status("starting", 0), quiet=False)
    for reason in ("retry 1 of 2", "", "", "retry 1 of 2"):
        watcher.report(status(phase, 0, reason))
    assert capsys.readouterr().err == f"longboat: r is {phase}: retry 1 of 2\n" * 2


def test_what_an_import_counts_is_told_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = status("starting", 0, "imports x")
    watcher = RunWatcher(cast(Engine, None), first, quiet=False)
    for done in ("", ": 1.0 GiB of 5.0 GiB (20 %)", ": 1.5 GiB of 5.0 GiB (30 %)"):
        watcher.report(status("starting", 0, f"imports x{done}"))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("longboat.cli.attach.SPARSE_S", 0.0)
    watcher.report(status("starting", 0, "imports x: 2.0 GiB of 5.0 GiB (40 %)"))
    watcher.report(status("starting", 0, "imports x: 2.0 GiB of 5.0 GiB (40 %)"))
    assert capsys.readouterr().err == "longboat: r is starting: imports x: 2.0 GiB of 5.0 GiB (40 %)\n"
    watcher.note_output(0)
    watcher.report(status("starting", 0, "imports x: 4.0 GiB of 5.0 GiB (80 %)"))
    assert capsys.readouterr().err == ""


def test_a_run_that_is_being_started_needs_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    """On a busy machine the first look comes before the supervisor."""
    watcher = RunWatcher(cast(Engine, None), status("pending", 0), quiet=False)
    watcher.report(status("pending", 0, "is being started"))
    watcher.report(status("running", 0))
    assert capsys.readouterr().err == ""


class Answers:
    """An engine as far as a look at a run needs it."""

    def __init__(self, answer: RunStatus) -> None:
        self.answer = answer

    def status(self, run: str) -> RunStatus:
        return self.answer


@pytest.mark.parametrize("phase", ["running", "succeeded"])
def test_why_there_is_another_attempt_is_said_before_its_output(phase: str, capsys: pytest.CaptureFixture[str]) -> None:
    watcher = RunWatcher(cast(Engine, Answers(status(phase, 1))), status("pending", 0), quiet=False)
    watcher.report(status("running", 0))
    watcher.note_output(0)
    assert capsys.readouterr().err == ""
    watcher.note_output(1)
    said = capsys.readouterr().err
    assert said == "longboat: r: attempt 1 failed: lost: node n1 (worker-0) was lost\n", "before this line is printed"
    watcher.note_output(1)
    watcher.report(status(phase, 1))
    assert capsys.readouterr().err == ""


def test_a_run_that_was_there_already_is_no_fresh_start() -> None:
    assert "exists already and is running: nothing new" in replay_words(status("running", 0))
    ended = msgspec.structs.replace(status("stopped", 0), ended=time.time() - 120)
    assert replay_words(ended) == " exists already and was stopped 2m ago: nothing new is started"


def test_the_closing_counts_are_those_of_the_roles() -> None:
    def rank(number: int, role: str, node: str, step: int | None = None, **metrics: float) -> RankStatus:
        return RankStatus(rank=number, role=role, node=node, alive=False, step=step, metrics=metrics)

    workers = [rank(number, "worker", f"worker-{number // 2}", 300, loss=0.5) for number in range(4)]
    plain = msgspec.structs.replace(status("succeeded", 0), ranks=tuple(workers), step=300)
    assert closing_counts(plain) == "", "one role is the usual case, and was said at the start"
    others = [rank(4, "ps", "ps-0"), rank(5, "eval", "eval-0", 200, accuracy=0.9, loss=0.7)]
    several = msgspec.structs.replace(plain, ranks=(*workers, *others))
    assert closing_counts(several) == "2 worker, 1 ps, 1 eval; step 300: loss=0.5, accuracy=0.9"
    silent = msgspec.structs.replace(several, step=None, ranks=(workers[0], others[0]))
    assert closing_counts(silent) == "1 worker, 1 ps"


def test_a_command_that_is_ended_by_sigterm_says_that_the_run_goes_on(longboat: Longboat) -> None:
    """As `timeout` ends it: it died without a word, and the run held its GPUs."""
    process = longboat.popen("run", "-q", "-n", "nap", "--", "sh", "-c", "echo hi; exec sleep 600")
    assert process.stdout is not None and process.stdout.readline() == "hi\n"
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert err == (
        "longboat: ended by SIGTERM; run nap goes on\n"
        "hint: longboat logs -f nap follows it, longboat stop nap stops it\n"
    )
    assert '"running"' in longboat("ps", "-o", "json").out


def test_whoever_ignores_sigterm_goes_on_to(longboat: Longboat) -> None:
    line = "trap '' TERM; exec \"$0\" -m longboat run -n nap -- sh -c 'trap - TERM; echo hi; sleep 2'"
    process = subprocess.Popen(
        ["/bin/sh", "-c", line, sys.executable], env=longboat.environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "hi\n"
    process.terminate()
    assert process.wait(60) == 0
