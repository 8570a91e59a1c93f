"""Promise 6: a retry restarts the whole gang and resumes from the newest complete checkpoint."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Jobs

TRAINS = """
import os, sys
folder, rank = os.environ["LONGBOAT_CHECKPOINT_DIR"], int(os.environ["RANK"])
attempt, resume = int(os.environ["LONGBOAT_ATTEMPT"]), os.environ["LONGBOAT_RESUME_FROM"]
print(f"rank {rank} attempt {attempt} in {folder} from {os.path.basename(resume)!r}", flush=True)
def save(step, complete=True):
    path = os.path.join(folder, f"step-{step}")
    os.makedirs(path)
    open(os.path.join(path, "weights"), "w").write(str(step))
    if complete:
        open(os.path.join(path, ".complete"), "w").close()
"""


def test_the_whole_gang_restarts_and_resumes(jobs: Jobs) -> None:
    code = (
        TRAINS
        + """
import time
if attempt == 0 and rank == 0:
    save(10); save(20); save(30, complete=False)
open(os.path.join(folder, f"here-{attempt}-{rank}"), "x")
while not all(os.path.exists(os.path.join(folder, f"here-{attempt}-{n}")) for n in range(4)): time.sleep(0.01)
if attempt == 0:
    sys.exit(5) if rank == 3 else time.sleep(60)
if rank == 0: print("weights", open(os.path.join(resume, "weights")).read())
"""
    )
    run = jobs.run(code, nodes=2, procs=2, retries={"count": 1, "backoff": "0s"})
    assert (run.phase, run.exit_code, run.attempt) == ("succeeded", 0, 1), run.reason
    first, second = jobs.text(run.name, attempt=0), jobs.text(run.name, attempt=1)
    for rank in range(4):
        assert f"rank {rank} attempt 0 in {run.checkpoint_dir} from ''" in first
        assert f"rank {rank} attempt 1 in {run.checkpoint_dir} from 'step-20'" in second
    assert "weights 20" in second
    assert [(a.number, a.failure and a.failure.exit_code) for a in run.attempts] == [(0, 5), (1, None)]
    assert (run.attempts[1].resumed_from or "").endswith("/step-20")
    assert (run.checkpoint or "").endswith("/step-20")


def test_numbers_are_compared_as_numbers_and_keep_is_honoured(jobs: Jobs) -> None:
    code = (
        TRAINS
        + """
if attempt == 0:
    for step in (9, 10, 100, 99): save(step)
    sys.exit(1)
"""
    )
    run = jobs.run(code, retries={"count": 1, "backoff": "0s"}, checkpoints={"keep": 2})
    assert "attempt 1" in jobs.text(run.name) and "from 'step-100'" in jobs.text(run.name)
    assert jobs.checkpoints(run.name) == ["step-100", "step-99"]


def test_the_trainers_own_checkpoints(jobs: Jobs) -> None:
    code = """
import longboat, os, sys
begin = int(open(os.path.join(longboat.resume_from(), "n")).read()) if longboat.resume_from() else 0
print("begins at", begin)
for step in range(begin + 1, 6):
    with longboat.checkpoint(step) as folder:
        open(os.path.join(folder, "n"), "w").write(str(step))
    if step == 3 and begin == 0: sys.exit(1)
"""
    run = jobs.run(code, procs=1, retries={"count": 2, "backoff": "0s"})
    assert (run.phase, run.attempt) == ("succeeded", 1), jobs.text(run.name)
    assert jobs.text(run.name) == "begins at 0\nbegins at 3\n"
    assert (run.checkpoint or "").endswith("/step-5")


def test_retries_end_with_the_last_exit_code(jobs: Jobs) -> None:
    run = jobs.run(
        "import os, sys; sys.exit(10 + int(os.environ['LONGBOAT_ATTEMPT']))", retries={"count": 2, "backoff": "0s"}
    )
    assert (run.phase, run.exit_code, run.attempt, len(run.attempts)) == ("failed", 12, 2, 3)
    assert [attempt.failure.exit_code for attempt in run.attempts if attempt.failure] == [10, 11, 12]


@pytest.mark.parametrize(
    ("on", "code", "attempts"),
    [
        ([7], "sys.exit(7)", 2),
        ([7], "sys.exit(8)", 1),
        (["exception"], "raise KeyError('x')", 2),
        (["exception"], "sys.exit(1)", 1),
        (["signal", 3], "os.kill(os.getpid(), 9)", 2),
        (["oom", "lost"], "os.kill(os.getpid(), 9)", 1),
        ([137], "os.kill(os.getpid(), 9)", 2),
    ],
)
def test_retries_only_on_what_was_asked(jobs: Jobs, on: list[object], code: str, attempts: int) -> None:
    run = jobs.run(f"import os, sys; {code}", retries={"count": 1, "on": on, "backoff": "0s"})
    assert (run.phase, len(run.attempts)) == ("failed", attempts), run.reason


def test_while_it_recovers_it_says_why(jobs: Jobs) -> None:
    run = jobs.submit("import sys; sys.exit(3)", retries={"count": 1, "backoff": "60s"})
    status = jobs.until_phase(run.name, "recovering")
    assert "retry 1 of 1" in status.reason and "rank 0" in status.reason
    assert status.retries == 1


def test_an_attempt_that_was_resumed_says_from_what_while_it_runs(jobs: Jobs) -> None:
    code = TRAINS + "import time\nif attempt == 0: save(7); sys.exit(5)\ntime.sleep(600)"
    run = jobs.submit(code, retries={"count": 1, "backoff": "0s"}).name

    def resumed() -> list[str]:
        return [(one.resumed_from or "").rpartition("/")[2] for one in jobs.engine.status(run).attempts]

    jobs.until(lambda: resumed() == ["", "step-7"], "it says so")
    jobs.engine.stop(run, grace_s=0)
    jobs.wait(run)
    assert resumed() == ["", "step-7"]


def test_beginning_with_the_checkpoint_of_another_run(jobs: Jobs) -> None:
    code = (
        TRAINS
        + """
if not resume: save(7)
"""
    )
    first = jobs.run(code, name="first")
    second = jobs.run(code, name="second", checkpoints={"resume": "first"})
    assert "from 'step-7'" in jobs.text(second.name)
    assert second.attempts[0].resumed_from == first.checkpoint
    third = jobs.run(code, name="third", checkpoints={"resume": str(first.checkpoint_dir)})
    assert "from 'step-7'" in jobs.text(third.name)


def test_checkpoints_in_a_folder_of_the_users(jobs: Jobs) -> None:
    code = (
        TRAINS
        + """
open("checkpoints/hello", "w").write("x")   # the same folder, seen from the working copy
save(1)
"""
    )
    run = jobs.run(code, checkpoints={"to": "./checkpoints"})
    assert run.phase == "succeeded", jobs.text(run.name)
    if jobs.place.is_this_machine:
        assert run.checkpoint_dir == str(jobs.root / "code" / "checkpoints" / run.name)
    assert jobs.checkpoints(run.name) == ["hello", "step-1"]


def test_of_several_roles_one_writes_and_an_older_attempt_does_not_count(jobs: Jobs) -> None:
    """All roles save the same steps at once; then one goes on as if it were the attempt before, on a lost machine."""
    code = """
import os, sys, longboat
attempt, node = int(os.environ["LONGBOAT_ATTEMPT"]), os.environ["LONGBOAT_NODE"]
resume = longboat.resume_from()
print("from", resume and open(os.path.join(resume, "who")).read(), flush=True)
def save(step):
    with longboat.checkpoint(step) as folder:
        open(os.path.join(folder, "who"), "w").write("%s of attempt %s" % (node, os.environ["LONGBOAT_ATTEMPT"]))
for step in range(1, 6): save(step)
if attempt == 0 and node == "chief-0": sys.exit(3)
if attempt == 1 and node == "chief-0":
    os.environ["LONGBOAT_ATTEMPT"] = "0"
    save(9)
    save(5)
    print("step-5 is of", open(os.path.join(longboat.checkpoint_dir(), "step-5", "who")).read(), flush=True)
"""
    roles = {"ps": {"nodes": 1}, "chief": {"nodes": 1}, "worker": {"nodes": 1}}
    run = jobs.run(code, roles=roles, retries={"count": 1, "backoff": "0s"}, checkpoints={"keep": 0})
    text = jobs.text(run.name)
    assert (run.phase, run.attempt) == ("succeeded", 1), text
    assert "from chief-0 of attempt 0" in jobs.text(run.name, attempt=1)
    assert "step-5 is of chief-0 of attempt 1" in text
    assert "attempt 2 of the run has started, and this is attempt 1" in text
    assert jobs.checkpoints(run.name) == [f"step-{step}" for step in range(1, 6)]
    assert (run.checkpoint or "").endswith("/step-5")
