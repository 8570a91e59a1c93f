"""Nodes that are lost under running gangs: judged by time, named, and never waited for. Nothing runs twice."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from longboat.core.runs import LogQuery
from testbed import api, faults
from tests.engines.kubernetes.controlling import controlled, state_of
from tests.engines.kubernetes.faults.grounds import Ground
from tests.engines.kubernetes.faults.losses import FAULTS, driven, hosts, pods, start_apart, unfinished

pytestmark = [pytest.mark.pods, pytest.mark.xdist_group("own-cluster")]

SOON_S = 20.0
"""Far more than a command takes, and far less than it takes when it asks a dead node."""

ORDINARY = {("switched_off", "job", "attached"), ("cut_off", "job", "controller")}
MATRIX = [
    pytest.param(fault, flavour, how, marks=() if (fault, flavour, how) in ORDINARY else (pytest.mark.soak,))
    for flavour in ("job", "jobset", "kueue")
    for how in ("attached", "controller", "anew")
    for fault in FAULTS
]


def cause_words(ground: Ground) -> str:
    state = state_of(ground.engine.client, "job")
    failure = state.attempts[0].failure
    assert failure is not None and failure.cause in ("lost", "preemption"), failure
    return failure.message


@pytest.mark.parametrize(("fault", "flavour", "how"), MATRIX)
def test_the_next_attempt_runs_on_what_is_left(own_ground: Ground, fault: str, how: str) -> None:
    start_apart(own_ground)
    with FAULTS[fault](own_ground):
        with driven(own_ground, how):
            if how == "anew":
                time.sleep(40)  # nobody looks
            else:
                own_ground.until_started(ranks=2, attempt=1)
            own_ground.let_go(1)
        ended = own_ground.wait()
        assert (ended.phase, ended.exit_code, len(ended.attempts)) == ("succeeded", 0, 2), ended.reason
        assert {host for pod, host in hosts(own_ground).items() if "-a1-" in pod} == {"node-0"}
        if fault != "deleted":
            assert "node-1" in cause_words(own_ground)
    own_ground.until(lambda: not unfinished(own_ground, 0), "nothing of the first is left")
    own_ground.until(lambda: not own_ground.living_ranks(), "no rank is left")
    own_ground.check_book(ranks=2, attempts=2)
    own_ground.remove()


def test_commands_while_a_node_is_silent_and_after(own_ground: Ground) -> None:
    """No retries: nobody waits for the dead node, `status`, `explain`, `logs` and `rm` included."""
    start_apart(own_ground, lost="40s", retries=0)
    with ExitStack() as last:
        last.enter_context(FAULTS["switched_off"](own_ground))
        seen = []
        while True:
            began = time.monotonic()
            status, told = own_ground.engine.status("job"), own_ground.engine.explain("job")
            assert time.monotonic() - began < SOON_S, "somebody asked the dead node"
            if status.is_final:
                break
            seen.append((status.reason, told.headline))
            time.sleep(1)
        assert (status.phase, status.cause, status.exit_code) == ("failed", "lost", 208), status.reason
        assert "node-1" in status.reason and "node-1" in told.headline
        assert any("node-1" in reason and "silent" in reason for reason, _ in seen), seen
        assert any("node-1" in headline for _, headline in seen), seen
        began = time.monotonic()
        list(own_ground.engine.logs("job", LogQuery()))
        assert any("cannot be read" in notice for notice in own_ground.notices), own_ground.notices
        assert time.monotonic() - began < 3 * SOON_S
        began = time.monotonic()
        own_ground.remove()
        assert time.monotonic() - began < 3 * SOON_S


@pytest.mark.parametrize(
    "flavour", ["job", pytest.param("jobset", marks=pytest.mark.soak), pytest.param("kueue", marks=pytest.mark.soak)]
)
def test_a_stop_while_a_node_is_silent(own_ground: Ground) -> None:
    start_apart(own_ground)
    with FAULTS["switched_off"](own_ground):
        own_ground.until(lambda: "silent" in own_ground.engine.status("job").reason, "it is known to be silent")
        began = time.monotonic()
        own_ground.engine.stop("job", grace_s=1)
        ended = own_ground.wait()
        assert (ended.phase, len(ended.attempts)) == ("stopped", 1), ended.reason
        assert time.monotonic() - began < SOON_S
        own_ground.check_book(ranks=2)
        own_ground.remove()


@pytest.mark.soak
@pytest.mark.parametrize("flavour", ["job", "jobset", "kueue"])
def test_both_nodes_are_lost_and_come_back(own_ground: Ground) -> None:
    """The next attempt waits, says so, and starts when there is a node again."""
    start_apart(own_ground)
    for number in (0, 1):
        faults.kill(own_ground.cluster, f"node-{number}-kubelet")
    try:
        own_ground.until(lambda: own_ground.engine.status("job").attempt == 1, "the attempt is given up")
        own_ground.until(lambda: own_ground.engine.status("job").phase == "recovering", "it waits")
        own_ground.until(lambda: own_ground.engine.explain("job").facts, "it says for what")
    finally:
        for number in (0, 1):
            faults.start(own_ground.cluster, f"node-{number}-kubelet")
    with controlled(own_ground.environment, own_ground.namespace, []):
        own_ground.until_started(ranks=2, attempt=1)
        own_ground.let_go(1)
        ended = own_ground.wait()
    assert (ended.phase, len(ended.attempts)) == ("succeeded", 2), ended.reason
    own_ground.check_book(ranks=2, attempts=2)
    own_ground.remove()


@pytest.mark.soak
def test_a_node_that_comes_back_in_time_costs_nothing(own_ground: Ground) -> None:
    """Its kubelet was away for less than the run's limit; the launchers heard each other all the time."""
    start_apart(own_ground, lost="10m")
    with FAULTS["kubelet_killed"](own_ground):
        own_ground.until(lambda: "silent" in own_ground.engine.status("job").reason, "it is noticed")
    own_ground.let_go(0)
    ended = own_ground.wait()
    assert (ended.phase, len(ended.attempts), ended.reason) == ("succeeded", 1, "")
    assert pods(own_ground), "nobody took them away"
    own_ground.check_book(ranks=2)
    own_ground.remove()


def test_node_0_of_the_gang_killed_before_the_gang_has_met(own_ground: Ground) -> None:
    """The other waits for it, for ten minutes if nobody tells it."""
    slow = 'test "$LONGBOAT_NODE" = worker-1 || sleep 600'
    own_ground.submit(nodes=2, retries={"count": 1, "backoff": "0s"}, setup=slow)
    first: list[str] = []

    def both_run() -> bool:
        found = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods(own_ground)}
        first[:] = [name for name in found if "-a0-worker-0-" in name]
        return list(found.values()) == ["Running", "Running"]

    own_ground.until(both_run, "both pods run")
    own_ground.api.delete(api.path_of("Pod", "v1", own_ground.namespace, first[0]), grace_s=0)
    own_ground.until(lambda: own_ground.engine.status("job").attempt == 1, "the attempt is given up")
    own_ground.engine.stop("job", grace_s=0)
    assert own_ground.wait().phase == "stopped"
    own_ground.remove()
