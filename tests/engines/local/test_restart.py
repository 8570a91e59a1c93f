"""Restart in place: after a failure of ranks the launchers stay, and their processes run the next attempt."""

from __future__ import annotations

import os
import signal

from longboat.core.runs import LogQuery
from longboat.engines.local.supervise.processes import is_alive
from tests.engines.local.conftest import WAITS, LocalJobs

FAILS_TWICE = """
import os, sys, time
attempt, rank = int(os.environ["LONGBOAT_ATTEMPT"]), int(os.environ["RANK"])
print("attempt", attempt, "launcher", os.getppid(), "kept", os.path.exists("mine"), flush=True)
open("mine", "w").close()
here = os.path.join(os.environ["LONGBOAT_CHECKPOINT_DIR"], "here-%d-" % attempt)
open(here + str(rank), "w").close()
while not os.path.exists(here + str(1 - rank)): time.sleep(0.01)
if attempt < 2:
    sys.exit(7 + attempt) if rank == 1 else time.sleep(600)
open("result.txt", "w").write("done")
"""


def test_the_same_launchers_run_all_attempts_and_keep_what_there_is(local: LocalJobs) -> None:
    fields = {"setup": "echo setting up", "artifacts": ["result.txt"], "retries": {"count": 3, "backoff": "0s"}}
    run = local.run(FAILS_TWICE, nodes=2, procs=1, **fields)
    assert (run.phase, run.attempt) == ("succeeded", 2), run.reason
    assert [attempt.restart for attempt in run.attempts] == ["", "in-place", "in-place"]
    assert [(a.failure.exit_code, a.failure.rank.rank) for a in run.attempts if a.failure and a.failure.rank] == [
        (7, 1), (8, 1)
    ]  # fmt: skip
    assert all(attempt.running is not None for attempt in run.attempts)
    first = {process.pid for process in local.launchers(run.name)}
    assert {process.pid for process in local.launchers(run.name, 2)} == first
    lines = list(local.engine.logs(run.name, LogQuery(attempt=2)))
    assert sorted(line.node for line in lines) == ["worker-0", "worker-1"]  # and no line of setup
    assert all(line.data.endswith(b"kept True\n") for line in lines)
    assert not any(map(is_alive, local.launchers(run.name, 2)))
    kept = local.files(run.name).directory / "artifacts"
    assert sorted(path.parent.name for path in kept.glob("*/result.txt")) == ["worker-0", "worker-1"]


def test_new_makes_all_of_it_anew(local: LocalJobs) -> None:
    run = local.run(FAILS_TWICE, nodes=2, procs=1, retries={"count": 2, "backoff": "0s", "restart": "new"})
    assert (run.phase, [attempt.restart for attempt in run.attempts]) == ("succeeded", ["", "new", "new"])
    assert "kept True" not in local.text(run.name)
    works = local.files(run.name).directory.glob("attempts/*/worker-0/work")
    assert [path.parent.parent.name for path in works] == ["2"]


def test_a_launcher_that_is_killed_while_it_stays_makes_room_for_new_ones(local: LocalJobs) -> None:
    code = FAILS_TWICE.replace("attempt < 2", "attempt < 1")
    run = local.submit(code, nodes=2, procs=1, retries={"count": 1, "backoff": "2s"})
    local.until_phase(run.name, "recovering")
    local.kill(local.launchers(run.name)[0])
    ended = local.wait(run.name)
    assert (ended.phase, ended.attempt, ended.attempts[1].restart) == ("succeeded", 1, "new"), ended.reason
    assert ended.attempts[0].failure is not None and ended.attempts[0].failure.exit_code == 7


def test_a_killed_launcher_is_replaced_and_the_next_failure_restarts_in_place(local: LocalJobs) -> None:
    run = local.submit(WAITS, retries={"count": 2, "backoff": "0s"})
    local.until_said(run.name, "ready")
    local.kill(local.launchers(run.name)[0])
    local.until(lambda: "ready" in local.text(run.name, attempt=1), "the next attempt runs")
    os.kill(int(local.text(run.name, attempt=1).split()[1]), signal.SIGKILL)
    local.until(lambda: "ready" in local.text(run.name, attempt=2), "the last attempt runs")
    local.let_go(run.name)
    ended = local.wait(run.name)
    assert (ended.phase, [a.restart for a in ended.attempts]) == ("succeeded", ["", "new", "in-place"]), ended.reason
    assert [attempt.failure and attempt.failure.cause for attempt in ended.attempts] == ["lost", "signal", None]


def test_a_stop_during_the_backoff_leaves_no_launcher(local: LocalJobs) -> None:
    code = FAILS_TWICE.replace("attempt < 2", "attempt < 1")
    run = local.submit(code, nodes=2, procs=1, retries={"count": 1, "backoff": "60s"})
    local.until_phase(run.name, "recovering")
    launchers = local.launchers(run.name)
    assert len(launchers) == 2 and all(map(is_alive, launchers))
    local.engine.stop(run.name)
    ended = local.wait(run.name)
    assert (ended.phase, ended.exit_code, ended.attempt) == ("stopped", 7, 1), ended.reason
    assert not any(map(is_alive, launchers)) and local.place.processes(run.uid) == []


def test_launchers_that_stay_leave_with_their_supervisor(local: LocalJobs) -> None:
    code = FAILS_TWICE.replace("attempt < 2", "attempt < 1")
    run = local.submit(code, nodes=2, procs=1, retries={"count": 1, "backoff": "60s"})
    local.until_phase(run.name, "recovering")
    local.kill(local.supervisor(run.name))
    local.until(lambda: not any(map(is_alive, local.launchers(run.name))), "they notice")
    ended = local.wait(run.name)
    assert (ended.phase, [a.restart for a in ended.attempts]) == ("succeeded", ["", "new"]), ended.reason
