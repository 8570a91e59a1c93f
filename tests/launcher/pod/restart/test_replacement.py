"""A pod that is gone is replaced alone: real launchers as plain processes; a new one takes the place of one of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from longboat.engines.kubernetes.logs.lines import lines_of_pod
from longboat.launcher.gang.membership import HUNG_UP_S
from longboat.launcher.node.plan import EXIT_KILLED, EXIT_REPLACED
from tests.launcher.pod.restart.test_in_place import RULE, TRAINS, wait_all
from tests.launcher.pods import Pods

Make = Callable[..., Pods]
WAITS = TRAINS + "if attempt == 0: time.sleep(600)"


def begun(pods: Pods, attempt: int = 0) -> None:
    places = range(len(pods.names))
    pods.until(lambda: all((pods.folder / f"here-{attempt}-{place}").exists() for place in places))


def replacement(pods: Pods, place: int, **env: str) -> subprocess.Popen[bytes]:
    """A launcher in a new pod of the same name, whose folders are new."""
    pods.roots[place] = pods.folder / f"new-{place}-{len(pods.roots)}"
    return pods.start(place, env=env)


def is_waiting(pods: Pods, place: int, attempt: int) -> bool:
    return pods.beat(place).get("phase") == "waiting" and pods.json(place, "plan.json").get("attempt") == attempt


def lines(pods: Pods, place: int) -> list[tuple[int, str]]:
    log = (pods.root(place) / "stdout").read_bytes()
    return [(line.attempt, line.data.decode()) for line in lines_of_pod(iter([log]), seen={})]


def test_a_pod_that_is_taken_away_is_replaced_and_the_others_stay(make_pods: Make) -> None:
    """The new one runs setup and takes part in the next attempt, from its checkpoint, as if it had been there."""
    pods = make_pods(script=WAITS, roles={"worker": 3}, plan={"setup": "echo prepared"}, restart=RULE)
    pods.start_all()
    begun(pods)
    first = {place: pods.processes[place].pid for place in range(3)}
    pods.processes[1].send_signal(signal.SIGTERM)
    assert pods.wait(1) == EXIT_REPLACED
    said = pods.message(1)
    assert (said["exit_code"], said["cause"], said["ended_by"], said["attempt"]) == (208, "preemption", "evicted", 0)
    pods.until(lambda: is_waiting(pods, 0, 1) and is_waiting(pods, 2, 1))
    replacement(pods, 1)
    wait_all(pods)
    assert pods.verdict["cause"] is None and pods.processes[0].pid == first[0]
    for place in range(3):
        said = pods.message(place)
        assert (said["attempt"], said["exit_code"]) == (1, 0)
        assert [(each["attempt"], each["cause"], each["replaced"]) for each in said["restarts"]] == [
            (0, "preemption", ["worker-1"])
        ]
    assert lines(pods, 1) == [(0, "prepared\n"), (1, "rank 1 attempt 1 from 'step-7' after []\n")]
    assert lines(pods, 2)[-1] == (1, "rank 2 attempt 1 from 'step-7' after ['a0']\n")
    assert pods.message(1)["lines"] == {"setup.out": 1, "1.out@1": 1}


def test_one_that_is_replaced_twice_and_a_rank_that_fails_between(make_pods: Make) -> None:
    script = TRAINS + "if attempt == 1 and rank == 0: sys.exit(5)\nif attempt < 3: time.sleep(600)"
    pods = make_pods(script=script, roles={"worker": 2}, restart={**RULE, "count": 3})
    pods.start_all()
    for attempt in (0, 2):
        begun(pods, attempt)
        pods.processes[1].send_signal(signal.SIGTERM)
        assert pods.wait(1) == EXIT_REPLACED
        replacement(pods, 1)
    wait_all(pods)
    said = pods.message(1)
    assert said["attempt"] == 3 and pods.verdict["cause"] is None
    assert [(each["attempt"], each["cause"], each.get("replaced")) for each in said["restarts"]] == [
        (0, "preemption", ["worker-1"]),
        (1, "exit", None),
        (2, "preemption", ["worker-1"]),
    ]


@pytest.mark.parametrize(
    ("rule", "place"),
    [(RULE, 0), ({**RULE, "count": 0}, 1), ({**RULE, "on": ["exit"]}, 1), (None, 1)],
    ids=["node 0", "no retry left", "another cause", "no retries"],
)
def test_whose_pod_is_not_replaced(make_pods: Make, rule: dict[str, Any] | None, place: int) -> None:
    """The last word of the process is one for which its Job makes no other pod."""
    pods = make_pods(script=WAITS, roles={"worker": 2}, restart=rule)
    pods.start_all()
    begun(pods)
    pods.processes[place].send_signal(signal.SIGTERM)
    assert pods.wait(place) == 208
    wait_all(pods)
    assert pods.verdict["cause"] == "preemption" and pods.message()["attempt"] == 0


@pytest.mark.parametrize("code", [EXIT_REPLACED, EXIT_KILLED])
def test_a_rank_whose_code_is_that_of_a_replaced_pod(make_pods: Make, code: int) -> None:
    pods = make_pods(script=f"import sys; sys.exit({code})", restart={**RULE, "count": 0})
    assert pods.run() == [208]
    assert pods.verdict["exit_code"] == code


def test_a_launcher_that_is_killed_is_replaced_and_the_others_stay(make_pods: Make) -> None:
    pods = make_pods(script=WAITS, roles={"worker": 3}, restart=RULE)
    pods.start_all()
    begun(pods)
    first = {place: pods.processes[place].pid for place in (0, 2)}
    pods.processes[1].kill()
    replacement(pods, 1)
    wait_all(pods)
    assert pods.verdict["cause"] is None and {place: pods.processes[place].pid for place in (0, 2)} == first
    (end,) = pods.message()["restarts"]
    assert (end["cause"], end["exit_code"], end["replaced"]) == ("lost", 208, ["worker-1"])
    assert "worker-1 was killed or cut off" in end["message"]
    assert lines(pods, 1)[-1] == (1, "rank 1 attempt 1 from 'step-7' after []\n")


@pytest.mark.parametrize("has_met", [True, False], ids=["while it waits", "in its setup"])
def test_a_launcher_that_is_killed_before_the_ranks_start_costs_nothing(make_pods: Make, has_met: bool) -> None:
    """Another one takes its place, in the same attempt."""
    slow = 0 if has_met else 2
    setup = f'until test "$NODE_RANK" != {slow} -o -e "$SHARED/go"; do sleep 0.05; done'
    pods = make_pods(script=TRAINS, roles={"worker": 3}, plan={"setup": setup}, restart=RULE)
    pods.start_all()
    pods.until(lambda: pods.beat(2).get("phase") == ("waiting" if has_met else "setup"))
    pods.until(lambda: pods.beat(0).get("phase") == ("setup" if has_met else "waiting"))
    pods.processes[2].kill()
    replacement(pods, 2)
    pods.until(lambda: pods.beat(2).get("phase") == ("waiting" if has_met else "setup"))
    (pods.folder / "go").touch()
    wait_all(pods)
    assert pods.verdict["cause"] is None and "restarts" not in pods.message()


def test_a_replacement_where_no_retry_is_left_is_sent_away(make_pods: Make) -> None:
    """It does not wait ten minutes for a gang that has ended."""
    pods = make_pods(script=WAITS, roles={"worker": 2}, restart={**RULE, "count": 0}, plan={"grace_s": 1})
    pods.start_all()
    begun(pods)
    pods.processes[1].kill()
    assert replacement(pods, 1).wait(60) == 208
    assert pods.message(1)["message"] == "node worker-0: the gang has ended"
    pods.wait(0)
    assert (pods.verdict["cause"], pods.message()["attempt"]) == ("lost", 0)


FAILS = WAITS.replace("time.sleep(600)", "time.sleep(600) if rank < 2 else wait_for('/fail') or sys.exit(5)")
FAILS = "import os, time\ndef wait_for(name):\n    while not os.path.exists(shared + name): time.sleep(0.01)\n" + FAILS
PATIENT: dict[str, Any] = {"roles": {"worker": 3}, "line": {"lost_s": 600}, "plan": {"grace_s": 1}}
"""Silence alone would be waited for longer than a test lasts."""


@pytest.mark.parametrize("killed", [True, False])
def test_the_others_do_not_wait_long_for_a_launcher_that_was_killed(make_pods: Make, killed: bool) -> None:
    """A rank of theirs fails as well. Where its pod is replaced they restart at once, and wait for the new one."""
    pods = make_pods(script=FAILS, restart={**RULE, "killed": killed}, **PATIENT)
    pods.start_all()
    begun(pods)
    pods.processes[1].kill()
    (pods.folder / "fail").touch()
    if killed:
        pods.until(lambda: is_waiting(pods, 0, 1) and is_waiting(pods, 2, 1))
        replacement(pods, 1)
    wait_all(pods)
    assert pods.message()["attempt"] == int(killed) and (pods.verdict["cause"] is None) == killed


DONE = """
import os, signal, sys, time
shared, rank = os.environ['SHARED'], int(os.environ['RANK'])
def leave(*_):
    time.sleep(2.5)
    sys.exit(1)
signal.signal(signal.SIGTERM, leave)
print('up', flush=True)
while rank == 0 or (rank == 2 and not os.path.exists(os.path.join(shared, 'fail'))):
    time.sleep(0.01)
sys.exit(5 if rank == 2 else 0)
"""


def test_a_member_that_has_done_its_part_is_not_waited_for_as_one_that_was_killed(make_pods: Make) -> None:
    """Its connection has long been closed, and its Job, which is complete, makes no other pod."""
    pods = make_pods(script=DONE, roles={"worker": 3}, restart={**RULE, "killed": True})
    pods.start_all()
    assert pods.wait(1) == 0
    time.sleep(HUNG_UP_S)
    (pods.folder / "fail").touch()
    pods.wait(0)
    assert (pods.verdict["exit_code"], pods.message()["attempt"]) == (5, 0)


def test_a_stop_reaches_a_replacement_that_makes_itself_ready(make_pods: Make) -> None:
    setup = 'test -z "$SLOW" || sleep 600'
    pods = make_pods(script=WAITS, restart=RULE, roles={"worker": 2}, plan={"setup": setup, "grace_s": 1})
    pods.start_all()
    begun(pods)
    pods.processes[1].kill()
    replacement(pods, 1, SLOW="1")
    pods.until(lambda: is_waiting(pods, 0, 1) and pods.beat(1).get("phase") == "setup")
    pods.tell(0, "stop", "1")
    assert pods.wait(1) == 208 and pods.wait(0) == 0


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_second_node_0_sends_the_members_of_the_first_away(make_pods: Make, attempt: int) -> None:
    script = TRAINS + f"if rank == 1 and attempt < {attempt}: sys.exit(5)\ntime.sleep(600)"
    pods = make_pods(script=script, roles={"worker": 2}, restart=RULE, plan={"grace_s": 1})
    pods.start_all()
    begun(pods, attempt)
    pods.processes[0].kill()
    replacement(pods, 0)
    assert pods.wait(1) == 208
    assert pods.message(1)["message"] == "node worker-0: it is of a gang whose node 0 is gone"


def test_a_replacement_that_comes_while_the_old_one_is_silent(make_pods: Make) -> None:
    """The old one is given up at once; when it speaks again it is refused, and ends its ranks."""
    script = WAITS + "\nwhile not os.path.exists(shared + '/over'): time.sleep(0.01)"
    pods = make_pods(script=script, roles={"worker": 2}, restart=RULE, line={"lost_s": 60}, plan={"grace_s": 1})
    pods.start_all()
    begun(pods)
    old = pods.processes[1]
    os.kill(old.pid, signal.SIGSTOP)
    replacement(pods, 1)
    pods.until(lambda: pods.json(0, "plan.json").get("attempt") == 1)
    os.kill(old.pid, signal.SIGCONT)
    assert old.wait(60) == 208
    (pods.folder / "over").touch()
    wait_all(pods)
    assert pods.verdict["cause"] is None and pods.message()["attempt"] == 1
    assert pods.message()["restarts"][0]["cause"] == "lost"


def test_a_replacement_that_does_not_come(make_pods: Make) -> None:
    """After a time the others end: no rank has started, so this attempt has new pods, and costs no retry."""
    pods = make_pods(script=WAITS, roles={"worker": 2}, restart=RULE, line={"timeout_s": 2})
    pods.start_all()
    begun(pods)
    pods.processes[1].send_signal(signal.SIGTERM)
    wait_all(pods)
    said = pods.message()
    assert (said["attempt"], said["started"], pods.verdict["cause"]) == (1, None, "peers")
    assert "worker-1" in pods.verdict["message"]


def test_a_stop_while_the_others_wait(make_pods: Make) -> None:
    pods = make_pods(script=WAITS, roles={"worker": 2}, restart=RULE)
    pods.start_all()
    begun(pods)
    pods.processes[1].send_signal(signal.SIGTERM)
    assert pods.wait(1) == EXIT_REPLACED
    pods.until(lambda: is_waiting(pods, 0, 1))
    pods.tell(0, "stop", "1")
    assert pods.wait(0) == 0
    assert pods.message()["ended_by"] == "stop" and pods.message()["started"] is None


def test_a_slow_setup_of_the_replacement_is_waited_for(make_pods: Make) -> None:
    """It has called, so the time for those that never come does not end it."""
    setup = 'test -z "$SLOW" || sleep 4'
    pods = make_pods(script=WAITS, roles={"worker": 2}, restart=RULE, line={"timeout_s": 2}, plan={"setup": setup})
    pods.start_all()
    begun(pods)
    pods.processes[1].send_signal(signal.SIGTERM)
    assert pods.wait(1) == EXIT_REPLACED
    replacement(pods, 1, SLOW="1")
    wait_all(pods)
    assert pods.verdict["cause"] is None and pods.message()["attempt"] == 1


@pytest.mark.parametrize("place", [0, 2])
def test_another_pod_that_is_taken_away_meanwhile(make_pods: Make, place: int) -> None:
    """No rank of this attempt has started: all pods are made anew for it, and no second one is made for either node."""
    pods = make_pods(script=WAITS, roles={"worker": 3}, restart=RULE)
    pods.start_all()
    begun(pods)
    pods.processes[1].send_signal(signal.SIGTERM)
    assert pods.wait(1) == EXIT_REPLACED
    pods.until(lambda: is_waiting(pods, 0, 1) and pods.beat(0)["missing"] == ["worker-1"])
    pods.processes[place].send_signal(signal.SIGTERM)
    assert pods.wait(place) == 208
    wait_all(pods)
    assert (pods.verdict["cause"], pods.message()["attempt"], pods.message()["started"]) == ("preemption", 1, None)


def test_the_run_s_time_goes_on_while_a_pod_is_waited_for(make_pods: Make) -> None:
    script = TRAINS + "time.sleep(600)"
    pods = make_pods(script=script, roles={"worker": 2}, restart=RULE, timeout_s=8, plan={"grace_s": 1})
    pods.start_all()
    begun(pods)
    pods.processes[1].send_signal(signal.SIGTERM)
    assert pods.wait(1) == EXIT_REPLACED
    pods.until(lambda: is_waiting(pods, 0, 1))
    replacement(pods, 1)
    begun(pods, 1)
    left_s = pods.json(0, "plan.json")["wait"]["run_timeout_s"]
    assert 1.0 <= left_s < 8.0
    wait_all(pods)
    assert pods.verdict["cause"] == "timeout"


def test_a_replacement_that_cannot_be_prepared(make_pods: Make) -> None:
    """It leaves at once and says why; who sees the pods ends the others."""
    setup = 'test -z "$BROKEN" || { echo no such package; exit 3; }'
    pods = make_pods(script=WAITS, roles={"worker": 2}, restart=RULE, plan={"setup": setup})
    pods.start_all()
    begun(pods)
    pods.processes[1].send_signal(signal.SIGTERM)
    assert pods.wait(1) == EXIT_REPLACED
    pods.until(lambda: is_waiting(pods, 0, 1))
    replacement(pods, 1, BROKEN="1")
    assert pods.wait(1) == 3
    assert (pods.message(1)["cause"], pods.message(1)["attempt"]) == ("setup", 0)
    pods.tell(0, "stop", "1")
    assert pods.wait(0) == 0
