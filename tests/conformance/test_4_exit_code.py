"""Promise 4: the exit code of a run is that of the first rank that failed, 128 + n for signal n."""

from __future__ import annotations

import pytest

from longboat.core.errors import RUN_HANG_EXIT, RUN_SETUP_EXIT, RUN_TIMEOUT_EXIT
from tests.conformance.conftest import Jobs

ENDS = [
    ("pass", 0, None),
    ("import sys; sys.exit(7)", 7, "exit"),
    ("import sys; sys.exit(200)", 200, "exit"),
    ("raise ValueError('bad batch')", 1, "exception"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139, "signal"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, "signal"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143, "signal"),
]


@pytest.mark.parametrize(("code", "exit_code", "cause"), ENDS)
def test_the_exit_code_is_the_trainers_own(jobs: Jobs, code: str, exit_code: int, cause: str | None) -> None:
    run = jobs.run(code, run=["python", "train.py"])
    assert (run.exit_code, run.cause) == (exit_code, cause), run.reason
    assert run.phase == ("succeeded" if exit_code == 0 else "failed")
    assert run.ended is not None


FIRST = """
import os, signal, sys, time
rank = int(os.environ["RANK"])
if rank == 2:
    sys.exit(7)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(40 + rank))
time.sleep(60)
"""


def test_the_first_rank_that_failed_of_several(jobs: Jobs) -> None:
    """Rank 2 fails; the others fail as a consequence, each in its own way."""
    run = jobs.run(FIRST, nodes=2, procs=2)
    assert (run.phase, run.exit_code) == ("failed", 7)
    assert {rank.rank: rank.exit_code for rank in run.ranks}[2] == 7
    assert run.attempts[0].failure is not None and run.attempts[0].failure.rank is not None
    assert run.attempts[0].failure.rank.rank == 2
    assert "rank 2" in run.reason


def test_ranks_that_fail_one_after_the_other_by_themselves(jobs: Jobs) -> None:
    """Rank 3 fails because rank 1 is gone, as it happens when a connection breaks."""
    code = """
import os, sys, time
rank, folder = int(os.environ["RANK"]), os.environ["LONGBOAT_CHECKPOINT_DIR"]
mark = os.path.join(folder, "gone")
if rank == 1:
    open(mark, "x"); os._exit(9)
while not os.path.exists(mark):
    time.sleep(0.005)
time.sleep(0.05)
sys.exit(20 + rank)
"""
    run = jobs.run(code, nodes=4)
    assert (
        run.exit_code,
        run.attempts[0].failure and run.attempts[0].failure.rank and run.attempts[0].failure.rank.rank,
    ) == (9, 1)


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        (["no-such-program"], 127),
        ("no-such-program --flag", 127),
        (["./train.py"], 126),
        ("exit 3", 3),
        ("kill -9 $$", 137),
        (["sh", "-c", "exit 255"], 255),
    ],
)
def test_commands(jobs: Jobs, command: object, exit_code: int) -> None:
    run = jobs.run("", run=command)
    assert (run.phase, run.exit_code) == ("failed", exit_code), run.reason


PS = """
import os, signal, sys, time
role = os.environ["LONGBOAT_ROLE"]
"""


def test_servers_end_when_the_workers_have_succeeded(jobs: Jobs) -> None:
    code = (
        PS
        + """
if role == "ps":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(99))
    while True: time.sleep(1)
print("worker done")
"""
    )
    run = jobs.run(code, roles={"ps": {"nodes": 1}, "worker": {"nodes": 2}})
    assert (run.phase, run.exit_code) == ("succeeded", 0), run.reason
    assert jobs.text(run.name).count("worker done") == 2


def test_a_server_that_crashes_fails_the_run_with_its_code(jobs: Jobs) -> None:
    code = (
        PS
        + """
if role == "ps":
    sys.exit(11)
time.sleep(60)
"""
    )
    run = jobs.run(code, roles={"ps": {"nodes": 1}, "worker": {"nodes": 2}})
    assert (run.phase, run.exit_code) == ("failed", 11), run.reason


def test_ends_says_which_roles_decide(jobs: Jobs) -> None:
    """The helper works for ever and is not asked; the chief decides."""
    code = (
        PS
        + """
if role == "chief":
    sys.exit(0)
time.sleep(60)
"""
    )
    run = jobs.run(code, roles={"chief": {"nodes": 1}, "helper": {"nodes": 1}}, ends=["chief"])
    assert (run.phase, run.exit_code) == ("succeeded", 0), run.reason


def test_one_of_the_deciding_roles_alone_does_not_end_the_run(jobs: Jobs) -> None:
    code = (
        PS
        + """
if role == "worker":
    time.sleep(0.5)
    sys.exit(4)
"""
    )
    run = jobs.run(code, roles={"chief": {"nodes": 1}, "worker": {"nodes": 1}})
    assert (run.phase, run.exit_code) == ("failed", 4), run.reason


def test_a_run_that_takes_too_long(jobs: Jobs) -> None:
    run = jobs.run("import time; time.sleep(60)", timeout="1s", retries=3)
    assert (run.phase, run.exit_code, run.cause) == ("failed", RUN_TIMEOUT_EXIT, "timeout")
    assert run.attempt == 0
    assert jobs.place.processes(run.uid) == []


def test_setup_that_fails(jobs: Jobs) -> None:
    run = jobs.run("print('never')", setup="echo broken pipework; exit 3", nodes=2)
    assert (run.phase, run.cause, run.exit_code) == ("failed", "setup", RUN_SETUP_EXIT), run.reason
    assert "exit code 3" in run.reason and "broken pipework" in run.reason
    assert "never" not in jobs.text(run.name)


def test_a_hung_rank_ends_the_run(jobs: Jobs) -> None:
    code = """
import os, time
print("begins", flush=True)
def reads_for_ever():
    time.sleep(1000)
reads_for_ever()
"""
    run = jobs.run(code, stall="1s", grace="1s")
    assert (run.phase, run.exit_code, run.cause) == ("failed", RUN_HANG_EXIT, "hang"), run.reason
    assert jobs.place.processes(run.uid) == []


def test_more_memory_than_allowed(jobs: Jobs) -> None:
    code = """
import time
hoard = bytearray(300 << 20)
for i in range(0, len(hoard), 4096): hoard[i] = 1
time.sleep(60)
"""
    run = jobs.run(code, memory="100Mi")
    assert (run.phase, run.exit_code, run.cause) == ("failed", 137, "oom"), run.reason
