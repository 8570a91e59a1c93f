"""A spare takes the place of a lost member at once: real launchers as plain processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from longboat.launcher.gang.membership import SPARED_S
from longboat.launcher.node.plan import EXIT_REPLACED
from tests.launcher.gang.test_membership_losses import relayed
from tests.launcher.pod.restart.test_in_place import RULE, TRAINS, wait_all
from tests.launcher.pod.restart.test_replacement import lines, replacement
from tests.launcher.pods import Pods, Relay

Make = Callable[..., Pods]
WAITS = TRAINS + "if attempt == 0: time.sleep(600)"
SPARED = {"roles": {"worker": 3}, "spares": 1, "restart": {**RULE, "killed": True}, "plan": {"setup": "echo prepared"}}
"""Silence alone would be waited for longer than a test lasts."""


def all_begun(pods: Pods, attempt: int = 0) -> None:
    pods.until(lambda: all((pods.folder / f"here-{attempt}-{rank}").exists() for rank in range(3)))


def waits_as_spare(pods: Pods, place: int, attempt: int = 0) -> bool:
    plan = pods.json(place, "plan.json") if (pods.node(place) / "plan.json").exists() else {}
    is_spare = plan.get("node") in (plan.get("spares") or [])
    return is_spare and plan.get("attempt") == attempt and pods.beat(place).get("phase") == "waiting"


def test_it_ends_with_the_others_and_starts_nothing(make_pods: Make) -> None:
    """It prepares itself, has no rank, delays nobody and counts as no failure."""
    pods = make_pods(script=TRAINS + "sys.exit(5)", **{**SPARED, "restart": {**RULE, "count": 0}})
    pods.start_all()
    wait_all(pods)
    assert [pods.wait(place) for place in range(4)] == [5, 5, 5, 0] or pods.wait(3) == 0
    said = pods.message(3)
    assert (said["exit_code"], said["cause"], said["ranks"], said["ended_by"]) == (0, None, [], "success")
    assert lines(pods, 3) == [(0, "prepared\n")]
    assert pods.verdict["exit_code"] == 5


@pytest.mark.parametrize("how", ["killed", "taken away", "killed, and nobody makes another"])
def test_it_takes_the_place_of_a_member(make_pods: Make, how: str) -> None:
    """Without waiting for the pod that its Job makes."""
    rule = {**RULE, "killed": how == "killed"}
    pods = make_pods(script=WAITS, **{**SPARED, "restart": rule}, line={"lost_s": 600})
    pods.start_all()
    all_begun(pods)
    pods.until(lambda: waits_as_spare(pods, 3))
    first = {place: pods.processes[place].pid for place in (0, 2, 3)}
    if how == "taken away":
        pods.processes[1].send_signal(signal.SIGTERM)
        assert pods.wait(1) == EXIT_REPLACED
    else:
        os.killpg(pods.processes[1].pid, signal.SIGKILL)
    wait_all(pods)
    assert pods.verdict["cause"] is None, pods.stderr()
    assert {place: pods.processes[place].pid for place in first} == first
    for place in (0, 2, 3):
        (end,) = pods.message(place)["restarts"]
        assert (end["replaced"], end["spares"]) == (["worker-1"], {"worker-1": "worker-3"})
        assert end["cause"] == ("preemption" if how == "taken away" else "lost")
    said = pods.message(3)
    assert (said["node"], said["attempt"], [row[0] for row in said["ranks"]]) == ("worker-1", 1, [1])
    assert lines(pods, 3) == [(0, "prepared\n"), (1, "rank 1 attempt 1 from 'step-7' after []\n")]
    plan = pods.json(2, "plan.json")
    assert {"node": "worker-1", "address": pods.gang["spares"][0]["address"]} in plan["peers"]


def test_the_pod_that_comes_for_the_lost_one_is_the_next_spare(make_pods: Make) -> None:
    """And takes another place, or its own again, when somebody else is lost."""
    script = TRAINS + "if attempt < 2: time.sleep(600)"
    pods = make_pods(script=script, **SPARED)
    pods.start_all()
    all_begun(pods)
    pods.until(lambda: waits_as_spare(pods, 3))
    pods.processes[1].send_signal(signal.SIGTERM)
    assert pods.wait(1) == EXIT_REPLACED
    all_begun(pods, 1)
    replacement(pods, 1)
    pods.until(lambda: waits_as_spare(pods, 1, 1))
    pods.processes[2].send_signal(signal.SIGTERM)
    assert pods.wait(2) == EXIT_REPLACED
    wait_all(pods)
    assert pods.verdict["cause"] is None, pods.stderr()
    assert [end["spares"] for end in pods.message()["restarts"]] == [
        {"worker-1": "worker-3"},
        {"worker-2": "worker-1"},
    ]
    assert lines(pods, 1) == [(0, "prepared\n"), (2, "rank 2 attempt 2 from 'step-7' after []\n")]
    assert lines(pods, 3)[-1] == (2, "rank 1 attempt 2 from 'step-7' after ['a1']\n")
    assert pods.message(1)["lines"] == {"setup.out": 1, "2.out@2": 1}


def test_a_failure_of_ranks_leaves_it_where_it_is(make_pods: Make) -> None:
    script = TRAINS + "if attempt < 2: sys.exit(5) if rank == 1 else time.sleep(600)"
    pods = make_pods(script=script, **SPARED)
    pods.start_all()
    for attempt in (0, 1):
        all_begun(pods, attempt)
    wait_all(pods)
    assert pods.verdict["cause"] is None and pods.message()["attempt"] == 2
    assert all(not end.get("spares") for end in pods.message()["restarts"])
    assert pods.wait(3) == 0 and pods.message(3)["node"] == "worker-3"


@pytest.mark.parametrize("how", ["killed", "taken away", "setup fails"])
def test_what_becomes_of_a_spare_is_no_failure_of_the_gang(make_pods: Make, how: str) -> None:
    setup = 'echo prepared; test -z "$BAD"' if how == "setup fails" else "echo prepared"
    script = TRAINS + "while not os.path.exists(shared + '/over'): time.sleep(0.01)"
    pods = make_pods(script=script, **{**SPARED, "plan": {"setup": setup}})
    for place in range(4):
        pods.start(place, env={"BAD": "1"} if place == 3 else None)
    all_begun(pods)
    if how == "setup fails":
        assert pods.wait(3) == 1
    else:
        pods.until(lambda: waits_as_spare(pods, 3))
        pods.processes[3].send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
        assert pods.wait(3) == (-9 if how == "killed" else EXIT_REPLACED)
        replacement(pods, 3)
        pods.until(lambda: waits_as_spare(pods, 3))
    (pods.folder / "over").touch()
    wait_all(pods)
    assert pods.verdict["cause"] is None and "restarts" not in pods.message()


def test_one_that_is_not_prepared_is_not_waited_for(make_pods: Make) -> None:
    """The lost member's own pod comes back to its place, and the spare joins the attempt that runs by then."""
    setup = 'test -z "$SLOW" || until test -e "$SHARED/go"; do sleep 0.05; done'
    script = TRAINS + "if attempt == 0: time.sleep(600)\nwhile not os.path.exists(shared + '/over'): time.sleep(0.01)"
    pods = make_pods(script=script, **{**SPARED, "plan": {"setup": setup}})
    for place in range(4):
        pods.start(place, env={"SLOW": "1"} if place == 3 else None)
    all_begun(pods)
    pods.processes[1].send_signal(signal.SIGTERM)
    assert pods.wait(1) == EXIT_REPLACED
    pods.until(lambda: pods.json(0, "plan.json").get("attempt") == 1)
    replacement(pods, 1)
    all_begun(pods, 1)
    (pods.folder / "go").touch()
    pods.until(lambda: waits_as_spare(pods, 3, 1))
    (pods.folder / "over").touch()
    wait_all(pods)
    assert pods.verdict["cause"] is None and pods.message(1)["node"] == "worker-1"
    assert [pods.wait(place) for place in range(4)] == [0, 0, 0, 0]


def test_one_that_was_given_up_leaves_so_that_its_job_makes_the_next_spare(make_pods: Make) -> None:
    script = WAITS + "\nwhile not os.path.exists(shared + '/over'): time.sleep(0.01)"
    pods = make_pods(script=script, **{**SPARED, "plan": {"grace_s": 1}}, line={"lost_s": 3})
    pods.start_all()
    all_begun(pods)
    pods.until(lambda: waits_as_spare(pods, 3))
    silent = pods.processes[1]
    os.kill(silent.pid, signal.SIGSTOP)
    all_begun(pods, 1)
    os.kill(silent.pid, signal.SIGCONT)
    assert silent.wait(60) == EXIT_REPLACED
    (pods.folder / "over").touch()
    wait_all(pods)
    assert pods.verdict["cause"] is None and pods.message(3)["node"] == "worker-1"


def test_more_connections_that_break_than_there_are_spares_are_the_network(make_pods: Make) -> None:
    """One spare could not help two: they have as long as in a gang without spares to come back."""
    script = TRAINS + "while not os.path.exists(shared + '/over'): time.sleep(0.01)"
    pods = make_pods(script=script, **SPARED, line={"lost_s": 600})
    relay = Relay((pods.gang["nodes"][0]["address"], pods.gang["line"]["port"]))
    try:
        for place in range(4):
            pods.start(place, gang=relayed(pods, relay) if place in (1, 2) else None)
        all_begun(pods)
        pods.until(lambda: waits_as_spare(pods, 3))
        relay.cut()
        time.sleep(SPARED_S + 2)
        before = relay.connections
        relay.mend()
        pods.until(lambda: relay.connections >= before + 2)
        (pods.folder / "over").touch()
        wait_all(pods)
        assert pods.verdict["cause"] is None and "restarts" not in pods.message()
    finally:
        relay.close()


def test_node_0_is_not_replaced_by_a_spare(make_pods: Make) -> None:
    pods = make_pods(script=WAITS, **SPARED)
    pods.start_all()
    all_begun(pods)
    pods.until(lambda: waits_as_spare(pods, 3))
    pods.processes[0].send_signal(signal.SIGTERM)
    wait_all(pods)
    assert (pods.verdict["cause"], pods.message()["attempt"], pods.wait(0)) == ("preemption", 0, 208)
    assert pods.wait(3) == 0


def test_a_stop_ends_the_spare_too(make_pods: Make) -> None:
    pods = make_pods(script=WAITS, **SPARED)
    pods.start_all()
    begun_members = lambda: all((pods.folder / f"here-0-{rank}").exists() for rank in range(3))  # noqa: E731
    pods.until(begun_members)
    pods.tell(0, "stop", "1")
    wait_all(pods)
    assert pods.message()["ended_by"] == "stop" and pods.wait(3) == 0
