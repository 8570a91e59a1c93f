"""Restart in place: real launchers as plain processes; a failed attempt goes on in the same ones."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longboat.engines.kubernetes.logs.lines import lines_of_pod
from longboat.launcher.pod.restart.in_place import free_shared_memory
from longboat.launcher.pod.termination import LIMIT, compose
from tests.launcher.pods import Pods, free_port

Make = Callable[..., Pods]
RULE = {"count": 2, "on": [], "backoff_s": 0.0, "within_s": 1000.0}
TRAINS = """
import os, sys, time
import longboat
rank, attempt, shared = int(os.environ["RANK"]), int(os.environ["LONGBOAT_ATTEMPT"]), os.environ["SHARED"]
resume = os.path.basename(os.environ["LONGBOAT_RESUME_FROM"])
before = sorted(name for name in os.listdir(".") if name[0] == "a")
print("rank", rank, "attempt", attempt, "from", repr(resume), "after", before)
sys.stdout.flush()
open("a%d" % attempt, "w")
if rank == 0 and attempt == 0:
    with longboat.checkpoint(7) as folder:
        open(folder + "/weights", "w").write("w")
open("%s/here-%d-%d" % (shared, attempt, rank), "x")
while not all(os.path.exists("%s/here-%d-%d" % (shared, attempt, n)) for n in range(int(os.environ["WORLD"]))):
    time.sleep(0.01)
"""


def test_attempts_go_on_in_the_same_launchers(make_pods: Make, tmp_path: Path) -> None:
    """Setup runs once, the working copy is kept, each attempt has its number, checkpoint, lines, files and report."""
    script = TRAINS + "if attempt < 2: sys.exit(5 + attempt) if rank == 1 else time.sleep(600)"
    keep = tmp_path / "kept"
    pods = make_pods(script=script, roles={"worker": 2}, plan={"setup": "echo prepared"}, restart=RULE, keep=str(keep))
    assert pods.run() == [0, 0], pods.stderr()
    for place in range(2):
        log = (pods.root(place) / "stdout").read_bytes()
        lines = [(line.attempt, line.stream, line.data.decode()) for line in lines_of_pod(iter([log]), seen={})]
        assert lines == [
            (0, "setup", "prepared\n"),
            (0, "out", f"rank {place} attempt 0 from '' after []\n"),
            (1, "out", f"rank {place} attempt 1 from 'step-7' after ['a0']\n"),
            (2, "out", f"rank {place} attempt 2 from 'step-7' after ['a0', 'a1']\n"),
        ]
        said = pods.message(place)
        assert (said["attempt"], said["exit_code"]) == (2, 0)
        assert [(each["attempt"], each["exit_code"], each["rank"]) for each in said["restarts"]] == [
            (0, 5, 1),
            (1, 6, 1),
        ]
        stream = f"{place}.out"
        assert said["lines"] == {"setup.out": 1, stream: 1, f"{stream}@1": 1, f"{stream}@2": 1}
        for attempt in range(3):
            kept = keep / str(attempt) / f"worker-{place}"
            assert (kept / "logs" / stream).read_text().startswith(f"rank {place} attempt {attempt} ")
            assert json.loads((kept / f"rank-{place}.json").read_text())["rank"] == place
            assert not list((kept / "logs").glob("*@*"))
    assert pods.verdict["cause"] is None


@pytest.mark.parametrize(
    ("rule", "code", "last"),
    [
        ({**RULE, "count": 1}, 4, 1),
        ({**RULE, "on": [7]}, 4, 0),
        ({**RULE, "on": ["exit"], "count": 3}, 4, 3),
        ({**RULE, "backoff_s": 0.1, "within_s": 0.15}, 4, 1),
        (None, 4, 0),
    ],
)
def test_the_job_s_retries_decide_how_often(make_pods: Make, rule: dict[str, Any] | None, code: int, last: int) -> None:
    pods = make_pods(script=f"import sys; sys.exit({code})", restart=rule)
    assert pods.run() == [code]
    assert (pods.message()["attempt"], pods.verdict["exit_code"]) == (last, code)
    assert len(pods.message().get("restarts") or []) == last


def test_mpirun_and_the_nodes_that_follow_it(make_pods: Make) -> None:
    """What mpirun is stands in for it: a command that starts another one on the second node, by Longboat's agent."""
    command = (
        "$OMPI_MCA_plm_rsh_agent worker-1 'echo on $LONGBOAT_NODE in $LONGBOAT_ATTEMPT; test $LONGBOAT_ATTEMPT = 1'"
    )
    pods = make_pods(command, roles={"worker": 2}, plan={"mpi": {"port": free_port("127.0.0.2")}}, restart=RULE)
    for node, starter in zip(pods.gang["nodes"], ("mpirun", "follower")):
        node["starter"] = starter
        node["env"]["LONGBOAT_MPI_HOSTS"] = "worker-0:1,worker-1:1"
    assert pods.run() == [0, 0], pods.stderr()
    assert pods.log(0, "0.out") == "on worker-1 in 0\n" and pods.log(0, "0.out@1") == "on worker-1 in 1\n"
    assert [each["exit_code"] for each in pods.message()["restarts"]] == [1]


def test_a_stop_while_it_waits_for_its_next_attempt(make_pods: Make) -> None:
    """Nothing starts any more, and the last word is of the stop."""
    pods = make_pods(script="import sys; sys.exit(4)", roles={"worker": 2}, restart={**RULE, "backoff_s": 60.0})
    pods.start_all()
    pods.until(lambda: all(pods.beat(place).get("phase") == "waiting" and _is_again(pods, place) for place in range(2)))
    pods.tell(0, "stop", "1")
    wait_all(pods)
    assert pods.message()["ended_by"] == "stop" and pods.message()["attempt"] == 1
    assert pods.message()["started"] is None and pods.message()["ranks"] == []


def test_a_member_that_is_gone_meanwhile_ends_the_attempt_before_any_rank_has_started(make_pods: Make) -> None:
    script = TRAINS + "sys.exit(5)"
    pods = make_pods(script=script, roles={"worker": 2}, restart={**RULE, "backoff_s": 600.0}, line={"lost_s": 2})
    pods.start_all()
    pods.until(lambda: all(pods.beat(place).get("phase") == "waiting" and _is_again(pods, place) for place in range(2)))
    os.killpg(pods.processes[1].pid, signal.SIGKILL)
    wait_all(pods)
    said = pods.message()
    assert (said["attempt"], said["started"]) == (1, None)
    assert pods.verdict["cause"] == "lost" and "worker-1" in (pods.verdict["node"], *pods.verdict["message"].split())


def test_the_run_s_time_counts_over_all_attempts(make_pods: Make) -> None:
    script = TRAINS + "time.sleep(1.5)\nif attempt < 5: sys.exit(3)\ntime.sleep(600)"
    pods = make_pods(script=script, restart={**RULE, "count": 9}, timeout_s=4)
    began = time.monotonic()
    pods.run()
    assert pods.verdict["cause"] == "timeout" and time.monotonic() - began < 60
    assert 0 < pods.message()["attempt"] < 5


def test_shared_memory_of_killed_ranks_is_freed_and_no_other(tmp_path: Path) -> None:
    for name, age_s in (("older", 1000), ("left", 0)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - age_s, time.time() - age_s))
    free_shared_memory(str(tmp_path), None)
    assert len(list(tmp_path.iterdir())) == 2, "nobody knows since when"
    free_shared_memory(str(tmp_path), time.time() - 100)
    assert [path.name for path in tmp_path.iterdir()] == ["older"]


def test_many_attempts_fit_into_the_termination_message() -> None:
    restarts = [
        {"attempt": number, "message": "x" * 200, "exit_code": 1, "cause": "exit", "rank": 0, "ended": 1794869182.32}
        for number in range(200)
    ]
    facts = {"node": "worker-0", "attempt": 200, "exit_code": 1, "message": "m" * 500, "restarts": restarts}
    text = compose({**facts, "first": None, "ranks": [], "gang": None})
    said = json.loads(text)
    assert len(text) <= LIMIT and said["attempt"] == 200
    assert [each["attempt"] for each in said["restarts"]][-3:] == [197, 198, 199]


def wait_all(pods: Pods) -> None:
    for place in pods.processes:
        pods.wait(place)


def _is_again(pods: Pods, place: int) -> bool:
    return pods.json(place, "plan.json").get("again") is not None
