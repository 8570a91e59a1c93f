"""Gangs of real launchers that lose nodes, the network, or each other before they have met."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from longboat.launcher.gang.membership import HUNG_UP_S, SPARED_S
from tests.launcher.pods import SLEEP, STOPPABLE, Pods, Relay

Make = Callable[..., Pods]


@pytest.mark.parametrize("place", [0, 1])
def test_a_pod_that_is_taken_away(make_pods: Make, place: int) -> None:
    """SIGTERM that nobody told of."""
    pods = make_pods(script=STOPPABLE, roles={"worker": 2})
    pods.start_all()
    pods.until_said("up")
    pods.processes[place].send_signal(signal.SIGTERM)
    codes = [pods.wait(0), pods.wait(1)]
    assert codes[place] == 208
    assert (pods.verdict["cause"], pods.verdict["exit_code"]) == ("preemption", 208)
    assert pods.verdict["node"] == f"worker-{place}"
    evicted = pods.message(place)
    assert (evicted["cause"], evicted["ended_by"]) == ("preemption", "evicted")
    assert pods.report(1 - place, 1 - place)["ended_by"] == "evicted"
    pods.until_said("leaves")  # with their grace


def test_sigterm_while_waiting_for_the_gang_is_a_preemption(make_pods: Make) -> None:
    pods = make_pods(script=SLEEP, roles={"worker": 2})
    pods.start(1)
    pods.until(lambda: (pods.node(1) / "ready.json").exists())
    pods.processes[1].send_signal(signal.SIGTERM)
    assert pods.wait(1) == 208
    assert pods.message(1)["cause"] == "preemption"


def test_a_lost_node(make_pods: Make) -> None:
    pods = make_pods(script=SLEEP, roles={"worker": 3}, line={"lost_s": 2})
    pods.start_all()
    pods.until_said("up")
    pods.processes[1].kill()
    assert pods.wait(2) == 143
    assert pods.wait(0) == 143
    assert (pods.verdict["cause"], pods.verdict["exit_code"], pods.verdict["node"]) == ("lost", 208, "worker-1")
    assert "worker-1" in pods.verdict["message"]


def test_a_stop_does_not_wait_for_a_launcher_that_was_killed(make_pods: Make) -> None:
    """Whoever sees that its pod has ended tells node 0 to stop: new pods follow when these have ended."""
    pods = make_pods(script=SLEEP, roles={"worker": 3}, plan={"grace_s": 1})
    pods.start_all()
    pods.until_said("up")
    pods.processes[1].kill()
    killed = time.monotonic()
    assert pods.tell(0, "stop", "1") == 0
    assert [pods.wait(0), pods.wait(2)] == [143, 143]
    assert SPARED_S <= time.monotonic() - killed < HUNG_UP_S, "one that lives calls again meanwhile"
    assert (pods.message(0)["ended_by"], pods.verdict["cause"]) == ("stop", None)


def test_those_who_fail_because_a_node_is_gone_are_its_victims(make_pods: Make) -> None:
    script = """
import os, time
print('up', flush=True)
while not os.path.exists(os.path.join(os.environ['SHARED'], 'gone')):
    time.sleep(0.01)
raise ConnectionError('peer')
"""
    pods = make_pods(script=script, roles={"worker": 3}, line={"lost_s": 2})
    pods.start_all()
    pods.until_said("up")
    pods.processes[1].kill()
    (pods.folder / "gone").touch()
    assert pods.wait(2) in (1, 143)
    pods.wait(0)
    assert (pods.verdict["cause"], pods.verdict["node"]) == ("lost", "worker-1")


def test_node_0_is_lost(make_pods: Make) -> None:
    pods = make_pods(script=SLEEP, roles={"worker": 3}, line={"lost_s": 2})
    pods.start_all()
    pods.until_said("up")
    pods.processes[0].kill()
    assert [pods.wait(1), pods.wait(2)] == [208, 208]
    message = pods.message(1)
    assert (message["cause"], message["ended_by"]) == ("lost", "lost") and "worker-0" in message["message"]


def relayed(pods: Pods, relay: Relay) -> dict[str, object]:
    """The gang file of a node that reaches node 0 only through the relay."""
    nodes = [dict(node) for node in pods.gang["nodes"]]
    nodes[0]["address"] = "127.0.0.1"
    return {"nodes": nodes, "line": {**pods.gang["line"], "port": relay.port}}


def test_a_short_break_of_the_network_is_nothing(make_pods: Make) -> None:
    """What was said meanwhile arrives, once and in its order."""
    script = """
import os, time
print('up', flush=True)
while not os.path.exists(os.path.join(os.environ['SHARED'], 'now')):
    time.sleep(0.01)
raise ValueError('later')
"""
    pods = make_pods(
        script=script, roles={"worker": 2}, commands={"other": SLEEP}, line={"lost_s": 60}, plan={"grace_s": 1}
    )
    relay = Relay((pods.gang["nodes"][0]["address"], pods.gang["line"]["port"]))
    try:
        pods.gang["roles"]["worker"]["command"] = "test $NODE_RANK = 1 || exec sleep 600; exec python train.py"
        pods.start(0)
        pods.start(1, gang=relayed(pods, relay))
        pods.until_said("up", [1])
        for _ in range(3):
            before = relay.connections
            relay.cut()
            relay.mend()
            pods.until(lambda before=before: relay.connections > before)
        relay.cut()
        (pods.folder / "now").touch()
        pods.until(lambda: (pods.node(1) / "outcome.json").exists())
        assert pods.processes[0].poll() is None
        relay.mend()
        assert pods.wait(1) == 1
        pods.wait(0)
        assert pods.verdict["message"] == "ValueError: later" and pods.verdict["node"] == "worker-1"
    finally:
        relay.close()


def test_a_long_break_of_the_network(make_pods: Make) -> None:
    pods = make_pods(script=SLEEP, roles={"worker": 2}, line={"lost_s": 2})
    relay = Relay((pods.gang["nodes"][0]["address"], pods.gang["line"]["port"]))
    try:
        pods.start(0)
        pods.start(1, gang=relayed(pods, relay))
        pods.until_said("up")
        relay.cut()
        assert pods.wait(1) == 208
        pods.wait(0)
        assert (pods.verdict["cause"], pods.verdict["node"]) == ("lost", "worker-1")
    finally:
        relay.close()


def test_peers_that_do_not_come(make_pods: Make) -> None:
    pods = make_pods(script=SLEEP, roles={"worker": 4}, line={"timeout_s": 2})
    pods.start(2, gang={"line": {**pods.gang["line"], "timeout_s": 60}})
    pods.until(lambda: (pods.node(2) / "ready.json").exists())
    pods.start(0)
    assert pods.wait(0) == 209
    assert pods.wait(2) == 0
    assert (pods.verdict["cause"], pods.verdict["exit_code"]) == ("peers", 209)
    assert pods.verdict["message"] == "2 of 4 nodes did not come within 2 s: worker-1, worker-3"
    assert pods.message(0)["cause"] == "peers"


def test_node_0_does_not_come(make_pods: Make) -> None:
    pods = make_pods(script=SLEEP, roles={"worker": 2}, line={"timeout_s": 1})
    pods.start(1)
    assert pods.wait(1) == 209
    message = pods.message(1)
    assert message["cause"] == "peers"
    assert message["message"] == "worker-0 could not be reached within 1 s: Connection refused"


def test_a_name_that_never_becomes_known(make_pods: Make) -> None:
    pods = make_pods(script=SLEEP, roles={"worker": 2}, line={"timeout_s": 1})
    pods.gang["nodes"][0]["address"] = "r-a0-0.r-a0.invalid"
    pods.start(1)
    assert pods.wait(1) == 209
    words = pods.message(1)["message"].partition(" within 1 s: ")
    assert words[0] == "worker-0 could not be reached" and words[2]


def test_another_token(make_pods: Make) -> None:
    pods = make_pods(script=SLEEP, roles={"worker": 2}, line={"timeout_s": 2})
    pods.start(0)
    pods.make(1)
    (pods.root(1) / "gang" / "token").write_text("of another attempt")
    pods.make = lambda *_, **__: None  # type: ignore[method-assign]
    pods.start(1)
    assert [pods.wait(0), pods.wait(1)] == [209, 209]
    assert "worker-1" in pods.verdict["message"] and pods.verdict["cause"] == "peers"
    assert "closed the connection" in pods.message(1)["message"]
