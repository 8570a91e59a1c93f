"""Submitters that die, that come at once, and whose clocks are wrong: one run, or none that holds anything."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from http.client import HTTPResponse
from typing import Any

import pytest

from longboat.core.errors import NotFound
from longboat.core.runs import RunStatus
from longboat.engines.engine import Submission
from longboat.kubeapi.connection.transport import ApiRequest, Connection, Transport
from tests.engines.kubernetes.faults.grounds import Ground

pytestmark = pytest.mark.pods

NOTE = """
import os
with open(f"/book/{os.environ['LONGBOAT_RUN']}", "a") as book:
    book.write(os.environ["TOKEN"] + "\\n")
"""
HOUR_S = 3600.0
FORKS, HUNG_S = 3, 60.0
fork = multiprocessing.get_context("fork")


@pytest.fixture
def ground(ground: Ground) -> Ground:
    """Without a storage: a run is removed without a pod that clears it."""
    ground.configure(storage=None)
    ground.engine = ground.open()
    return ground


def note(ground: Ground, run_id: str) -> Submission:
    """A job that waits at the gate and has a secret: all there can be of requests."""
    ground.environment["TOKEN"] = "here"
    return ground.submission(NOTE, run_id, cpus=0.01, secrets=["TOKEN"])


def in_child(work: Callable[[], None]) -> int | None:
    """The exit code of a process that does this.

    Threads of other tests may live in this process, and a fork of it can hang in a lock that one of them held: then it
    is killed, before it has done anything, and another one is made.
    """
    for _ in range(FORKS):
        child = fork.Process(target=work)
        child.start()
        child.join(HUNG_S)
        if not child.is_alive():
            return child.exitcode
        child.kill()
        child.join()
    raise AssertionError(f"{FORKS} processes hung")


def when_answered(tell: Callable[[ApiRequest], None]) -> None:
    """Have every request of this process told of, as soon as it has been answered."""
    exchange = Transport._exchange

    def told(self: Transport, connection: Connection, ask: ApiRequest) -> HTTPResponse:
        response = exchange(self, connection, ask)
        tell(ask)
        return response

    Transport._exchange = told  # type: ignore[method-assign]


def is_change(ask: ApiRequest) -> bool:
    return ask.method != "GET" and "dryRun" not in ask.path and "selfsubjectaccessreviews" not in ask.path


def changes_of_submit(ground: Ground) -> int:
    """How many requests of a submission change something; the run is called `whole`."""
    answers = fork.SimpleQueue()

    def count() -> None:
        seen: list[bool] = []
        when_answered(lambda ask: seen.append(is_change(ask)))
        ground.open().submit(note(ground, "whole"))
        answers.put(sum(seen))

    assert in_child(count) == 0
    found = answers.get()
    assert ground.wait("whole").phase == "succeeded"
    return int(found)


def submit_and_die(ground: Ground, run_id: str, after: int) -> None:
    """After so many changes; the first makes the record. With 0: while it is still trying what would be accepted.

    Changes are counted and not requests: how often it looks depends on what is there, and on what must be asked twice.
    """

    def die() -> None:
        changes = itertools.count(1)

        def tell(ask: ApiRequest) -> None:
            if (is_change(ask) and next(changes) >= after) or (after == 0 and "dryRun" in ask.path):
                os.kill(os.getpid(), signal.SIGKILL)

        when_answered(tell)
        ground.open().submit(note(ground, run_id))

    assert in_child(die) in (0, -signal.SIGKILL)


@pytest.mark.soak
def test_a_submitter_that_dies_after_any_of_its_requests(ground: Ground) -> None:
    """What it leaves can be removed; submitting the same again makes it one run, which runs once."""
    uids: dict[str, str] = {}
    for number in range(changes_of_submit(ground) + 1):
        submit_and_die(ground, f"away-{number}", number)
        with contextlib.suppress(NotFound):
            ground.engine.delete(f"away-{number}")
        submit_and_die(ground, f"again-{number}", number)
        uids[f"again-{number}"] = ground.engine.submit(note(ground, f"again-{number}")).uid
    for run, uid in uids.items():
        ended = ground.wait(run)
        assert (ended.phase, ended.exit_code, ended.uid) == ("succeeded", 0, uid), ended.reason
        assert (ground.book / run).read_text() == "here\n", "it ran once, with its secret"
    assert {run.name for run in ground.engine.list()} == {"whole", *uids}
    for run in uids:
        ground.engine.delete(run)
    ground.remove("whole")


def test_submitters_at_once_with_the_same_id(ground: Ground) -> None:
    """One of them died half-way; of the others each gets the same run."""
    changes_of_submit(ground)
    submit_and_die(ground, "one", 1)
    answers = fork.SimpleQueue()

    def submit() -> None:
        try:
            answers.put(ground.open().submit(note(ground, "one")).uid)
        except Exception as error:
            answers.put(repr(error))

    submitters = [fork.Process(target=submit) for _ in range(4)]
    for submitter in submitters:
        submitter.start()
    found = {answers.get() for _ in submitters}
    for submitter in submitters:
        submitter.join()
    ended = ground.wait("one")
    assert found == {ended.uid}
    assert (ended.phase, ended.exit_code) == ("succeeded", 0), ended.reason
    assert (ground.book / "one").read_text() == "here\n"
    ground.engine.delete("one")
    ground.remove("whole")


def with_clock(ahead_s: float, work: Callable[[], Any], meanwhile: Callable[[], None] = lambda: None) -> Any:
    """The result of work in a process whose clock is wrong."""
    answers = fork.SimpleQueue()

    def run() -> None:
        right = time.time
        time.time = lambda: right() + ahead_s
        answers.put(work())

    child = fork.Process(target=run)
    child.start()
    meanwhile()
    child.join()
    assert child.exitcode == 0
    return answers.get()


def check_times(run: RunStatus, began: float) -> None:
    """Whole seconds of Kubernetes and the way of an answer aside."""
    assert run.started is not None and run.ended is not None
    assert began - 3 <= run.created <= run.started <= run.ended <= time.time() + 3
    for attempt in run.attempts:
        assert attempt.ended is not None and began - 3 <= attempt.started <= attempt.ended <= run.ended


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_a_wrong_clock_changes_nothing(ground: Ground, ahead_s: float) -> None:
    """Submitted and driven from a machine that is an hour off, through the gate and a retry."""
    began = time.time()

    def work() -> RunStatus:
        engine = ground.open()
        engine.submit(ground.submission(nodes=2, retries={"count": 1, "backoff": "1s"}))
        return ground.wait(engine=engine)

    def lead() -> None:
        ground.until_started(ranks=2)
        ground.let_go(0, 0, 5)
        ground.let_go(1, 0, 0)

    ended = with_clock(ahead_s, work, lead)
    assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("succeeded", 0, 2), ended.reason
    failure = ended.attempts[0].failure
    assert failure is not None and (failure.cause, failure.exit_code) == ("exit", 5)
    check_times(ended, began)
    check_times(ground.engine.status("job"), began)
    ground.check_book(ranks=2, attempts=2)
    ground.remove()


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_nobody_with_a_wrong_clock_gives_up_a_submission(ground: Ground, ahead_s: float) -> None:
    changes_of_submit(ground)
    submit_and_die(ground, "half", 1)
    assert with_clock(ahead_s, lambda: ground.open().status("half").phase) == "pending"
    assert ground.engine.submit(note(ground, "half")).uid == ground.engine.status("half").uid
    assert ground.wait("half").phase == "succeeded"
    ground.engine.delete("half")
    ground.remove("whole")
